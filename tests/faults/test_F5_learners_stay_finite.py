"""F5: a learner stays finite on chunks in which nothing varies, or nothing is real, or everything is enormous."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest

from digideep.agent.a2c.agent import A2CAgent
from digideep.agent.a2c.config import A2CConfig
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.agent.rollout.agent import RolloutAgent
from digideep.environment.config import StatisticsConfig
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta, Counters
from digideep.utility.node import node
from digideep.utility.statistics import Statistics

Array: TypeAlias = np.ndarray[Any, Any]

ACTIONS = {
    "discrete": ArraySpec("discrete", (), "int64", n=(3,)),
    "box": ArraySpec("box", (2,), "float32", low=(-1.0,), high=(1.0,)),
}


class Reference(PPOAgent):
    """A learner on the reference path."""

    def entropy_bonus(self, batch: Any, evaluated: Any) -> Any:
        """Return what PPO's own does."""
        return super().entropy_bonus(batch, evaluated)


PATHS: dict[str, tuple[type[RolloutAgent], str]] = {
    "packed": (PPOAgent, "tanh"),
    "fused": (PPOAgent, "gelu"),
    "reference": (Reference, "tanh"),
    "packed, of A2C": (A2CAgent, "tanh"),
    "fused, of A2C": (A2CAgent, "gelu"),
}


def make_agent(
    path: str, spec: EnvSpec, metrics: dict[str, float], *, minibatch_size: int, lr: float = 1e-3
) -> RolloutAgent:
    cls, activation = PATHS[path]
    model = node(MLPConfig, hidden_sizes=[8], activation=activation)
    config = (
        A2CConfig(model=model, entropy_coef=0.0, lr=lr)
        if cls is A2CAgent
        else PPOConfig(model=model, update_epochs=2, entropy_coef=0.0, minibatch_size=minibatch_size, lr=lr)
    )
    agent = cls(
        config,
        name="agent",
        spec=spec,
        memory=RollBuffer(RollBufferConfig(), name="train"),
        device="cpu",
        seed=1,
        monitor=metrics.__setitem__,
    )
    assert agent.path.startswith(path.partition(",")[0])
    return agent


def make_chunk(agent: RolloutAgent, statistics: Statistics, *, case: str, size: float, rows: tuple[int, int]) -> Chunk:
    rng = np.random.default_rng(3)
    shape = (rows[1] + 1, rows[0])
    varied = {"constant": np.ones, "varied": rng.standard_normal}.get(case, rng.standard_normal)
    arrays: dict[str, Array] = {
        "/observations/observation": (size * varied((*shape, 4))).astype(np.float32),
        "/rewards": (size * varied(shape)).astype(np.float32),
        "/masks": np.ones(shape, np.float32),
        "/terminations": np.zeros(shape, np.float32),
    }
    if case == "unreal":
        arrays["/masks"][:] = 0.0
    if case == "short":  # one step an episode: a real row, an unreal one
        arrays["/masks"][::2] = 0.0
        arrays["/terminations"][::2] = 1.0
    actor = agent.actor(statistics.snapshot())
    outputs = [actor.act({"observation": row}) for row in arrays["/observations/observation"]]
    arrays["/agents/agent/actions"] = np.stack([output.actions[""] for output in outputs])
    for name in ("log_probs", "values"):
        arrays[f"/agents/agent/artifacts/{name}"] = np.stack([output.artifacts[name] for output in outputs])
    real = int(arrays["/masks"][1:].sum())
    return Chunk({key: array.swapaxes(0, 1) for key, array in arrays.items()}, ChunkMeta(real, real, 0, 0))


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("path", PATHS)
def test_F5_learning_from_degenerate_chunks_is_finite(path: str, actions: str) -> None:
    spec = EnvSpec("Made-v0", {"observation": ArraySpec("box", (4,), "float32")}, {"": ACTIONS[actions]})
    for case in ("constant", "varied", "unreal", "short"):
        for rows, minibatch in (((1, 1), 1), ((3, 5), 4)):
            for size in (1e-30, 1e30):
                metrics: dict[str, float] = {}
                agent = make_agent(path, spec, metrics, minibatch_size=minibatch)
                statistics = Statistics(StatisticsConfig(observations=True, rewards=True), spec=spec, num_envs=rows[0])
                for _ in range(2):
                    chunk = make_chunk(agent, statistics, case=case, size=size, rows=rows)
                    agent._memory.store(chunk)  # type: ignore[attr-defined]
                    agent.update(statistics.snapshot(), Counters(chunk.meta.env_steps))
                    statistics.merge(chunk)

                bad = {name: value for name, value in metrics.items() if not np.isfinite(value)}
                assert bad == {}, (case, rows, size)
                moments = [part for part in agent.state_dict()["optimiser"].values() if isinstance(part, dict)]
                for arrays in (agent.state_dict()["policy"], *moments):
                    assert all(np.isfinite(array).all() for array in arrays.values()), (case, rows, size)


@pytest.mark.parametrize("path", PATHS)
def test_F5_the_deviation_of_actions_stays_one_that_there_is(path: str) -> None:
    spec = EnvSpec("Made-v0", {"observation": ArraySpec("box", (4,), "float32")}, {"": ACTIONS["box"]})
    agent = make_agent(path, spec, {}, minibatch_size=4, lr=1e30)
    agent._flat.gradients.fill_(1.0)
    agent.apply(agent._flat.gradients)

    assert agent.policy.log_std is not None
    assert agent.policy.log_std.tolist() == [-20.0, -20.0]
