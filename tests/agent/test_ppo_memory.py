"""A task that needs memory: learnt with a recurrent network, and out of reach without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from noisy_world import RecurrentTriangle

from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig
from digideep.types import Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

RECALL = "digideep.testing:Recall-v0"


def returns(agent: Any, episodes: int = 40) -> float:
    """Play episodes greedily and return the mean of what they paid."""
    env = node(EnvConfig, model_name=RECALL)
    config = ExplorerConfig(env=env, num_envs=4, n_episodes=episodes, deterministic=True)
    explorer = Explorer(config, mode="test", seed=1)
    explorer.set_actors({"agent": agent.actor(Normalizer())})
    played = explorer.evaluate()
    explorer.close()
    return float(np.mean([episode.return_ for episode in played]))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_bit_is_remembered_until_it_is_asked_for(cell: str) -> None:
    with RecurrentTriangle(
        RECALL, n_steps=24, num_envs=8, sequence_length=8, minibatch_size=96, lr=0.01, gamma=0.9,
        model={"cell": cell, "hidden_sizes": [16], "units": 16},
    ) as triangle:  # fmt: skip
        before = returns(triangle.agent)

        triangle.train(40)

        assert before < 0.8
        assert returns(triangle.agent) == 1.0


def test_without_memory_nothing_better_than_a_guess_can_be_learnt() -> None:
    env = node(EnvConfig, model_name=RECALL)
    explorer = Explorer(ExplorerConfig(env=env, num_envs=8, n_steps=24), mode="train", seed=1)
    memory = RollBuffer(RollBufferConfig(), name="train")
    agent = PPOAgent(
        PPOConfig(model=node(MLPConfig, hidden_sizes=[16, 16]), lr=0.01, minibatch_size=96, gamma=0.9),
        name="agent", spec=explorer.spec, memory=memory, device="cpu", seed=1, monitor=lambda name, value: None,
    )  # fmt: skip
    for number in range(40):
        explorer.set_actors({"agent": agent.actor(Normalizer())})
        memory.store(explorer.update())
        agent.update(Normalizer(), Counters(env_steps=192 * (number + 1)))
    explorer.close()

    assert 0.2 < returns(agent) < 0.8
