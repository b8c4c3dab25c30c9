"""DQN in worlds whose optimum is known, each in about a second."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dqn_agents import make_dqn
from toy_worlds import Toy, bandit, chain, choices, discrete, identity, one_state, train

from digideep.utility.statistics import Normalizer

FIELDS = {"warm_up": 256, "n_updates": 16, "batch_size": 64, "target_interval": 20, "epsilon_horizon": 4000}
VARIANTS: dict[str, dict[str, Any]] = {
    "double": {},
    "not double": {"double": False},
    "of three steps": {"n_step": 3},
    "dueling": {"dueling": True},
    "noisy": {"noisy": True, "noisy_deviation": 1.0},
    "prioritised": {"prioritized": True},
    "all of it": {"n_step": 3, "dueling": True, "noisy": True, "noisy_deviation": 1.0, "prioritized": True},
}


def learner(toy: Toy, **options: Any) -> Any:
    prioritized = options.pop("prioritized", False)
    fields = {**FIELDS, "hidden_sizes": [32], "lr": 0.003, "epsilon_final": 0.2, **options}
    return make_dqn(fields, spec=toy.spec, prioritized=prioritized)


def value(agent: Any, seen: list[float]) -> float:
    rows = {"observation": np.array([seen], np.float32)}
    return float(agent.actor(Normalizer()).values(rows).max())


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_dqn_knows_that_a_time_limit_is_no_death(options: dict[str, Any]) -> None:
    # One state, reward 1, cut after 5 steps, discount 0.9: worth 10; with the limit learnt as death it is 2.6 to 4.1.
    toy = one_state()
    agent = learner(toy, gamma=0.9, lr=0.01, **options)

    train(agent, toy, cycles=60)

    assert abs(value(agent, [1.0]) - 10.0) < 0.5


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_dqn_walks_to_the_far_end_of_a_chain(options: dict[str, Any]) -> None:
    toy = chain()
    agent = learner(toy, gamma=0.9, **options)

    train(agent, toy, cycles=60)

    assert choices(agent, np.eye(5)[:4]).tolist() == [1, 1, 1, 1]
    assert abs(value(agent, [0.0, 0.0, 0.0, 1.0, 0.0]) - 1.0) < 0.1


def test_dqn_finds_the_better_arm_of_a_bandit_and_what_it_pays() -> None:
    toy = bandit()
    agent = learner(toy, lr=0.001)

    train(agent, toy, cycles=30)

    assert choices(agent, np.ones((1, 1))).tolist() == [1]
    assert abs(value(agent, [1.0]) - 0.8) < 0.12


def test_dqn_repeats_what_it_is_shown() -> None:
    toy = identity(discrete(4), lambda seen, actions: (seen.argmax(1) == actions).astype(np.float32), 4)
    agent = learner(toy, gamma=0.0)

    train(agent, toy, cycles=20)

    assert choices(agent, np.eye(4)).tolist() == [0, 1, 2, 3]
