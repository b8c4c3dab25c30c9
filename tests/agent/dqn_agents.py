"""DQN agents for tests: made from flat options, with transitions made up for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from digideep.agent.dqn.agent import DQNAgent
from digideep.agent.dqn.config import DQNConfig
from digideep.agent.replay.transitions import Transitions
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig
from digideep.model.config import QNetworkConfig
from digideep.spec import ArraySpec, EnvSpec
from digideep.utility.node import build, node

OBSERVATIONS = {"seen": ArraySpec("box", (3,), "float32"), "kind": ArraySpec("discrete", (), "int64", n=(4,))}
CHOICE = {"": ArraySpec("discrete", (), "int64", n=(3,))}
MADE = EnvSpec("Made-v0", OBSERVATIONS, CHOICE)
ROWS = 32


def make_dqn(
    options: Mapping[str, Any] = {},
    *,
    spec: EnvSpec = MADE,
    cls: type[DQNAgent] = DQNAgent,
    prioritized: bool = False,
    capacity: int = 5000,
) -> Any:
    """Return an agent that keeps what it tells in `told`; options are fields of its configuration or its network's."""
    options = {"hidden_sizes": [16, 16], **options}
    names = {field.name for field in dataclasses.fields(QNetworkConfig)}
    model = node(QNetworkConfig, **{key: value for key, value in options.items() if key in names})
    fields = {key: value for key, value in options.items() if key not in names}
    memory = PrioritizedBufferConfig if prioritized else RingBufferConfig
    told: dict[str, float] = {}
    agent = cls(
        DQNConfig(**{"model": model, "lr": 1e-3, **fields}),
        name="agent",
        spec=spec,
        memory=build(node(memory, capacity=capacity), where="/memory/train", name="train"),
        device="cpu",
        seed=3,
        monitor=told.__setitem__,
    )
    agent.told = told  # type: ignore[attr-defined]
    agent._memory = agent.replay.memory  # type: ignore[attr-defined]
    return agent


def made_transitions(rng: np.random.Generator, *, rows: int = ROWS) -> Transitions:
    """Return transitions of `MADE`, a fifth of which ended the task."""

    def observations() -> dict[str, np.ndarray[Any, Any]]:
        return {"seen": rng.standard_normal((rows, 3)).astype(np.float32), "kind": rng.integers(4, size=rows)}

    return Transitions(
        observations=observations(),
        actions={"": rng.integers(3, size=rows)},
        rewards=(3.0 * rng.standard_normal(rows)).astype(np.float32),
        discounts=np.where(rng.random(rows) < 0.2, 0.0, 0.99).astype(np.float32),
        following=observations(),
        importance=rng.uniform(0.2, 1.0, rows).astype(np.float32),
        is_prioritized=True,
        indices=np.arange(rows),
        generations=np.zeros(rows, np.int64),
    )
