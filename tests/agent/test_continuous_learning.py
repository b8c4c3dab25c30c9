"""Methods with real actions in environments whose optimum is known, each in about a second."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from made_agents import METHODS, Loop

from digideep.utility.statistics import Normalizer

QUICK: dict[str, Any] = {"lr": 0.01, "n_updates": 20, "tau": 0.1, "batch_size": 32, "model": {"hidden_sizes": [16]}}
OWN: dict[str, dict[str, Any]] = {
    "ddpg": {"noise": "normal", "noise_scale": 0.3},
    "td3": {"noise_scale": 0.3},
    "sac": {"temperature": 1e-3, "learn_temperature": False},
    "sac_value": {"reward_scale": 5.0},
}


@pytest.mark.parametrize(("method", "n_step"), [*((method, 1) for method in METHODS), ("td3", 3), ("sac_value", 3)])
def test_a_time_limit_is_no_death_for_actors_of_real_numbers(method: str, n_step: int) -> None:
    # One state, reward 1, cut after 5 steps, discount 0.9: worth 10; with the limit learnt as death it is 2.6 to 4.1.
    options = {**QUICK, **OWN[method], "gamma": 0.9, "n_step": n_step}
    with Loop(method, "digideep.testing:OneState-v0", env_kwargs={"continuous": True}, **options) as loop:
        loop.train(100 if method == "sac_value" else 60)

        values = loop.values([[1.0]])

    scale = options.get("reward_scale", 1.0)
    # What randomness is worth is at most log 2 a step, 6.9 in all.
    entropy = 7.0 if method == "sac_value" else 0.0
    assert (values / scale > 10.0 - 0.3).all() and (values / scale < 10.0 + 0.3 + entropy / scale).all()


@pytest.mark.parametrize("method", METHODS)
def test_real_actions_repeat_what_they_are_shown(method: str) -> None:
    options = {**QUICK, **OWN[method], "gamma": 0.0, "lr": 3e-3, "warm_up": 64, "model": {"hidden_sizes": [32]}}
    with Loop(method, "digideep.testing:Identity-v0", env_kwargs={"kind": "box"}, **options) as loop:
        loop.train(40)

        shown = np.linspace(-0.8, 0.8, 9)[:, None]
        given = loop.best(shown)

    assert np.abs(given - shown).mean() < 0.15


def test_a_prioritised_memory_draws_more_often_where_the_error_is_large() -> None:
    options = {**QUICK, **OWN["td3"], "gamma": 0.0, "prioritized": True, "priority_alpha": 1.0}
    with Loop("td3", "digideep.testing:Identity-v0", env_kwargs={"kind": "box"}, **options) as loop:
        loop.train(20)

        drawn = []
        for _ in range(40):  # each overwrites the arrays of the one before
            batch = loop.agent.replay.draw(32, Normalizer(), beta=1.0)
            assert batch.is_prioritized and batch.importance.max() == 1.0
            drawn += list(zip(batch.indices.tolist(), batch.importance.tolist(), strict=True))

    counts = Counter(index for index, _ in drawn)
    (often, many), *_, (seldom, few) = counts.most_common()
    weights = dict(drawn)
    assert many > 4 * few and weights[often] < 0.5 * weights[seldom]
