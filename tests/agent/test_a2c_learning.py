"""A2C on environments whose optimum is known, each in about a second."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toy_worlds import Toy, bandit, chain, choices, discrete, identity, one_state, train, value

from digideep.agent.a2c.agent import A2CAgent
from digideep.agent.a2c.config import A2CConfig
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig
from digideep.spec import ArraySpec
from digideep.utility.node import node


def made_agent(toy: Toy, **fields: Any) -> A2CAgent:
    config = A2CConfig(**{"model": node(MLPConfig, hidden_sizes=[32]), "lr": 3e-3, **fields})
    memory = RollBuffer(RollBufferConfig(), name="train")
    return A2CAgent(
        config, name="agent", spec=toy.spec, memory=memory, device="cpu", seed=1, monitor=lambda name, value: None
    )


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_a2c_finds_the_better_arm_of_a_bandit(optimizer: str) -> None:
    toy = bandit()
    agent = made_agent(toy, optimizer=optimizer)

    train(agent, toy, cycles=200, n_steps=8)

    output = agent.act({"observation": np.ones((500, 1), np.float32)})
    assert (output.actions[""] == 1).mean() > 0.95
    assert abs(value(agent, [1.0]) - 0.8) < 0.1


def test_a2c_learns_to_give_the_discrete_action_that_is_shown() -> None:
    toy = identity(discrete(4), lambda seen, actions: (seen.argmax(1) == actions).astype(np.float32), 4)
    agent = made_agent(toy, gamma=0.0)

    train(agent, toy, cycles=150, n_steps=8)

    assert choices(agent, np.eye(4)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "action", [ArraySpec("multi_binary", (2,), "int8"), ArraySpec("multi_discrete", (2,), "int64", n=(2, 2))]
)
def test_a2c_learns_to_give_the_bits_that_are_shown(action: ArraySpec) -> None:
    toy = identity(action, lambda seen, actions: ((seen > 0) == (actions == 1)).mean(1), 2)
    agent = made_agent(toy, gamma=0.0)

    train(agent, toy, cycles=200, n_steps=8)

    observations = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    assert choices(agent, observations).tolist() == [[1, 0], [0, 1], [1, 1], [0, 0]]


def test_a2c_learns_to_give_the_number_that_is_shown() -> None:
    toy = identity(ArraySpec("box", (2,), "float32"), lambda seen, actions: -np.square(actions - 0.5 * seen).sum(1), 2)
    agent = made_agent(toy, gamma=0.0, entropy_coef=0.0)

    train(agent, toy, cycles=400, n_steps=8)

    observations = np.array([[1.0, -1.0], [-1.0, 1.0]])
    np.testing.assert_allclose(choices(agent, observations), 0.5 * observations, atol=0.15)


def test_a2c_walks_to_the_far_end_of_a_chain_of_five_states() -> None:
    toy = chain()
    agent = made_agent(toy, gamma=0.9)

    train(agent, toy, cycles=300, n_steps=8)

    assert choices(agent, np.eye(5)[:4]).tolist() == [1, 1, 1, 1]
    assert abs(value(agent, [0.0, 0.0, 0.0, 1.0, 0.0]) - 1.0) < 0.15
    assert abs(value(agent, [0.0, 1.0, 0.0, 0.0, 0.0]) - 0.81) < 0.15


@pytest.mark.parametrize("gae_lambda", [1.0, 0.9])
def test_a_time_limit_is_no_death_to_a2c_one_state_with_reward_one_is_worth_ten(gae_lambda: float) -> None:
    toy = one_state()
    agent = made_agent(toy, gamma=0.9, gae_lambda=gae_lambda, lr=0.01, max_grad_norm=None)

    train(agent, toy, cycles=300, n_steps=8)

    assert abs(value(agent, [1.0]) - 10.0) < 0.5
