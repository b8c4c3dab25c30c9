from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digideep.agent.returns import explained_variance, gae
from digideep.errors import ShapeError

Array = np.ndarray[Any, Any]


def slow_gae(
    rewards: Array, values: Array, *, terminations: Array, masks: Array, discount: float, gae_lambda: float
) -> Array:
    """The sum of discounted TD errors over the rest of the episode, one row and one term at a time."""
    num_envs, steps = rewards.shape
    advantages = np.zeros((num_envs, steps))
    for env in range(num_envs):
        for t in range(steps):
            factor = 1.0
            for later in range(t, steps):
                if masks[env, later + 1] == 0.0:
                    break
                bootstrap = 0.0 if terminations[env, later] == 1.0 else discount * values[env, later + 1]
                advantages[env, t] += factor * (rewards[env, later] + bootstrap - values[env, later])
                factor *= discount * gae_lambda
    return advantages


def random_episodes(rng: np.random.Generator, steps: int) -> tuple[Array, Array]:
    """Terminations and masks as environments write them: the row after an episode's last one is unreal."""
    terminations, masks = np.zeros((1, steps)), np.ones((1, steps + 1))
    masks[0, 0] = rng.integers(2)
    over = False
    for t in range(steps):
        if over:
            masks[0, t + 1], over = 0.0, False
            continue
        ended = rng.random()
        terminations[0, t] = float(ended < 0.12)
        over = bool(ended < 0.22)
    return terminations, masks


def test_gae_equals_the_sum_of_td_errors_on_two_hundred_random_sequences() -> None:
    rng = np.random.default_rng(5)
    largest, ends = 0.0, 0
    for _ in range(200):
        terminations, masks = random_episodes(rng, 64)
        rewards, values = rng.standard_normal((1, 64)), rng.standard_normal((1, 65))
        settings: dict[str, Any] = {
            "terminations": terminations,
            "masks": masks,
            "discount": float(rng.uniform(0.8, 1.0)),
            "gae_lambda": float(rng.uniform(0.0, 1.0)),
        }

        fast = gae(rewards, values, **settings)

        largest = max(largest, float(np.abs(fast - slow_gae(rewards, values, **settings)).max()))
        ends += int((masks[:, 1:] == 0.0).sum())
    assert largest < 1e-13
    assert ends > 1000


def test_last_step_of_an_episode_bootstraps_only_when_truncated() -> None:
    rewards, values = np.array([[1.0, 0.0]]), np.array([[0.0, 10.0, 0.0]])
    masks = np.array([[0.0, 1.0, 0.0]])
    settings: dict[str, Any] = {"masks": masks, "discount": 0.5, "gae_lambda": 1.0}

    terminated = gae(rewards, values, terminations=np.array([[1.0, 0.0]]), **settings)
    truncated = gae(rewards, values, terminations=np.array([[0.0, 0.0]]), **settings)

    np.testing.assert_array_equal(terminated, [[1.0, 0.0]])
    np.testing.assert_array_equal(truncated, [[6.0, 0.0]])


def test_gae_bootstraps_at_the_newest_row_and_keeps_the_dtype() -> None:
    rewards, values = np.ones((2, 1), np.float32), np.array([[0.0, 2.0], [1.0, 4.0]], np.float32)
    masks, terminations = np.ones((2, 2), np.float32), np.zeros((2, 1), np.float32)

    advantages = gae(rewards, values, terminations=terminations, masks=masks, discount=0.5, gae_lambda=0.9)

    np.testing.assert_array_equal(advantages, [[2.0], [2.0]])
    assert advantages.dtype == np.float32


def test_gae_of_a_time_major_view_has_the_bits_of_a_copy() -> None:
    rng = np.random.default_rng(0)
    rewards, values = rng.standard_normal((20, 8)).T, rng.standard_normal((21, 8)).T
    masks, terminations = np.ones((8, 21)), np.zeros((8, 20))
    settings: dict[str, Any] = {"discount": 0.99, "gae_lambda": 0.95, "masks": masks, "terminations": terminations}

    view = gae(rewards, values, **settings)
    copied = gae(np.ascontiguousarray(rewards), np.ascontiguousarray(values), **settings)

    np.testing.assert_array_equal(view, copied)


def test_gae_names_the_argument_of_another_shape() -> None:
    with pytest.raises(ShapeError, match=r"gae: values have shape \(2, 3\), expected \(2, 4\)"):
        gae(
            np.zeros((2, 3)),
            np.zeros((2, 3)),
            terminations=np.zeros((2, 3)),
            masks=np.ones((2, 4)),
            discount=0.9,
            gae_lambda=0.9,
        )


def test_explained_variance_is_one_for_a_perfect_prediction_and_looks_at_real_rows_only() -> None:
    returns, weights = np.array([1.0, 2.0, 3.0, 100.0]), np.array([1.0, 1.0, 1.0, 0.0])

    perfect = explained_variance(np.array([1.0, 2.0, 3.0, -7.0]), returns, weights)
    constant = explained_variance(np.full(4, 5.0), returns, weights)
    worse = explained_variance(np.array([3.0, 2.0, 1.0, 0.0]), returns, weights)

    assert (perfect, constant, worse) == (1.0, 0.0, -3.0)


def test_explained_variance_of_equal_returns_or_no_rows_is_zero() -> None:
    assert explained_variance(np.array([1.0, 2.0]), np.array([4.0, 4.0]), np.ones(2)) == 0.0
    assert explained_variance(np.array([1.0, 2.0]), np.array([4.0, 5.0]), np.zeros(2)) == 0.0
