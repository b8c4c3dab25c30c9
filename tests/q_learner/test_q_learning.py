"""The Q-learner on environments whose optimum is known, each in about a second."""

from __future__ import annotations

import numpy as np
import pytest
from triangle import Triangle


@pytest.mark.parametrize("n_step", [1, 3])
def test_q_learning_knows_that_a_time_limit_is_no_death(n_step: int) -> None:
    # One state, reward 1, cut after 5 steps, discount 0.9: worth 10; with the limit learnt as death it is 2.6 to 4.1.
    fields = {"gamma": 0.9, "n_step": n_step, "lr": 0.02, "target_interval": 10, "n_updates": 20}
    with Triangle("OneState-v0", **fields) as triangle:
        triangle.train(60)

        value = triangle.value(np.ones(1, np.float32))

    assert abs(value - 10.0) < 0.3


def test_q_learning_finds_the_better_arm_of_a_bandit_and_what_it_pays() -> None:
    with Triangle("Bandit-v0", lr=0.003, epsilon_final=0.3) as triangle:
        triangle.train(40)

        one = np.ones(1, np.float32)
        assert triangle.choices([one]) == [1]
        assert abs(triangle.value(one) - 0.8) < 0.15


def test_q_learning_repeats_what_it_is_shown() -> None:
    with Triangle("Identity-v0", gamma=0.0, lr=0.01) as triangle:
        triangle.train(30)

        assert triangle.choices([0, 1, 2, 3]) == [0, 1, 2, 3]


@pytest.mark.parametrize("n_step", [1, 3])
def test_q_learning_walks_to_the_far_end_of_a_chain(n_step: int) -> None:
    fields = {"gamma": 0.9, "n_step": n_step, "lr": 0.005, "epsilon_final": 0.3, "target_interval": 20}
    with Triangle("Chain-v0", **fields) as triangle:
        triangle.train(80)

        states = np.eye(5, dtype=np.float32)
        assert triangle.choices(states[:4]) == [1, 1, 1, 1]
        assert abs(triangle.value(states[3]) - 10.0) < 1.0
