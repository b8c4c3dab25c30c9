"""PPO on environments whose optimum is known, each in about a second."""

from __future__ import annotations

from typing import Any

import numpy as np
from toy_worlds import Toy, bandit, chain, choices, discrete, identity, one_state, train, value

from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig
from digideep.spec import ArraySpec
from digideep.utility.node import node


def made_agent(toy: Toy, **fields: Any) -> PPOAgent:
    config = PPOConfig(**{"model": node(MLPConfig, hidden_sizes=[32]), "minibatch_size": 128, "lr": 3e-3, **fields})
    memory = RollBuffer(RollBufferConfig(), name="train")
    return PPOAgent(
        config, name="agent", spec=toy.spec, memory=memory, device="cpu", seed=1, monitor=lambda name, value: None
    )


def test_the_better_arm_of_a_bandit_is_found() -> None:
    toy = bandit()
    agent = made_agent(toy)

    train(agent, toy, cycles=15)

    output = agent.act({"observation": np.ones((500, 1), np.float32)})
    assert (output.actions[""] == 1).mean() > 0.95
    assert abs(value(agent, [1.0]) - 0.8) < 0.1


def test_the_shown_action_is_learnt_for_discrete_actions() -> None:
    toy = identity(discrete(4), lambda seen, actions: (seen.argmax(1) == actions).astype(np.float32), 4)
    agent = made_agent(toy, gamma=0.0)

    train(agent, toy, cycles=25)

    assert choices(agent, np.eye(4)).tolist() == [0, 1, 2, 3]


def test_the_shown_bits_are_learnt_for_multi_binary_and_multi_discrete_actions() -> None:
    observations = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    for action in (ArraySpec("multi_binary", (2,), "int8"), ArraySpec("multi_discrete", (2,), "int64", n=(2, 2))):
        toy = identity(action, lambda seen, actions: ((seen > 0) == (actions == 1)).mean(1), 2)
        agent = made_agent(toy, gamma=0.0)

        train(agent, toy, cycles=25)

        assert choices(agent, observations).tolist() == [[1, 0], [0, 1], [1, 1], [0, 0]]


def test_the_shown_number_is_learnt_for_box_actions() -> None:
    toy = identity(ArraySpec("box", (2,), "float32"), lambda seen, actions: -np.square(actions - 0.5 * seen).sum(1), 2)
    agent = made_agent(toy, gamma=0.0, entropy_coef=0.0, value_clip=None)

    train(agent, toy, cycles=60)

    observations = np.array([[1.0, -1.0], [-1.0, 1.0]])
    np.testing.assert_allclose(choices(agent, observations), 0.5 * observations, atol=0.15)


def test_the_far_end_of_a_chain_of_five_states_is_worth_walking_to() -> None:
    toy = chain()
    agent = made_agent(toy, gamma=0.9)

    train(agent, toy, cycles=40)

    assert choices(agent, np.eye(5)[:4]).tolist() == [1, 1, 1, 1]
    assert abs(value(agent, [0.0, 0.0, 0.0, 1.0, 0.0]) - 1.0) < 0.15
    assert abs(value(agent, [0.0, 1.0, 0.0, 0.0, 0.0]) - 0.81) < 0.15


def test_a_time_limit_is_no_death_one_state_with_reward_one_is_worth_ten() -> None:
    toy = one_state()
    agent = made_agent(toy, gamma=0.9, value_clip=None, lr=0.01, max_grad_norm=None)

    train(agent, toy, cycles=60)

    assert abs(value(agent, [1.0]) - 10.0) < 0.5
