from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.agent.rollout.config import RolloutConfig
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

sys.path.insert(0, str(Path(__file__).resolve().parent))

ACTIONS = {
    "discrete": {"": ArraySpec("discrete", (), "int64", n=(3,))},
    "multi_discrete": {"": ArraySpec("multi_discrete", (2,), "int64", n=(3, 2))},
    "multi_binary": {"": ArraySpec("multi_binary", (3,), "int8")},
    "box": {"": ArraySpec("box", (2,), "float32", low=(-1.0,), high=(1.0,))},
    "dict": {
        "arm": ArraySpec("box", (2, 1), "float32", low=(-1.0,), high=(1.0,)),
        "gear": ArraySpec("discrete", (), "int64", n=(3,)),
        "pedal": ArraySpec("box", (), "float32", low=(-1.0,), high=(1.0,)),
    },
}


@pytest.fixture
def action_spaces() -> Mapping[str, Mapping[str, ArraySpec]]:
    return ACTIONS


@pytest.fixture
def make_spec() -> Callable[..., EnvSpec]:
    def make(actions: str = "discrete", *, size: int = 4) -> EnvSpec:
        observation = ArraySpec("box", (size,), "float32", low=(-10.0,), high=(10.0,))
        return EnvSpec("Made-v0", {"observation": observation}, ACTIONS[actions])

    return make


@pytest.fixture
def make_agent() -> Callable[..., Any]:
    def make(
        spec: EnvSpec,
        *,
        cls: type[Any] = PPOAgent,
        config: type[RolloutConfig] = PPOConfig,
        seed: int = 1,
        allowed: Sequence[str] = ("digideep",),
        **fields: Any,
    ) -> Any:
        fields.setdefault("model", node(MLPConfig, hidden_sizes=[16, 16]))
        if config is PPOConfig:
            fields.setdefault("minibatch_size", 16)
        metrics: dict[str, float] = {}
        agent = cls(
            config(**fields),
            name="agent",
            spec=spec,
            memory=RollBuffer(RollBufferConfig(), name="train"),
            device="cpu",
            seed=seed,
            monitor=metrics.__setitem__,
            allowed=allowed,
        )
        agent.metrics = metrics
        return agent

    return make


@pytest.fixture
def make_chunk() -> Callable[..., Chunk]:
    """Time-major slabs that the agent itself has acted on, with random episode boundaries."""

    def make(agent: Any, rng: np.random.Generator, *, num_envs: int = 4, n_steps: int = 12) -> Chunk:
        rows = (n_steps + 1, num_envs)
        slab: dict[str, np.ndarray[Any, Any]] = {
            "/masks": (rng.random(rows) > 0.15).astype(np.float32),
            "/rewards": rng.standard_normal(rows).astype(np.float32),
            "/terminations": (rng.random(rows) < 0.1).astype(np.float32),
        }
        for slot, array in agent.spec.observations.items():
            slab[f"/observations/{slot}"] = rng.standard_normal((*rows, *array.shape)).astype(np.float32)
        for slot, array in agent.spec.actions.items():
            dtype = {"box": "float32", "multi_binary": "int8"}.get(array.kind, "int64")
            slab["/agents/agent/actions" + ("/" + slot if slot else "")] = np.zeros((*rows, *array.shape), dtype)
        for artifact in ("log_probs", "values"):
            slab[f"/agents/agent/artifacts/{artifact}"] = np.zeros(rows, np.float32)
        actor = agent.actor(Normalizer())
        for t in range(n_steps):
            output = actor.act({slot: slab[f"/observations/{slot}"][t] for slot in agent.spec.observations})
            for slot, actions in output.actions.items():
                slab["/agents/agent/actions" + ("/" + slot if slot else "")][t] = actions
            for artifact, numbers in output.artifacts.items():
                slab[f"/agents/agent/artifacts/{artifact}"][t] = numbers
        real = int(slab["/masks"][1:].sum())
        return Chunk({key: value.swapaxes(0, 1) for key, value in slab.items()}, ChunkMeta(real, real, 0, 0))

    return make
