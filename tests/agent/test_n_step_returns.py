"""What windows of transitions are worth before the estimate of what follows."""

from __future__ import annotations

import numpy as np
import pytest

from digideep.agent.replay.targets import n_step_returns


def slow(
    rewards: list[float], terminations: list[float], weights: list[float], *, n_step: int, discount: float
) -> tuple[float, int, float]:
    """What one window is worth, step by step."""
    total, factor, row = 0.0, 1.0, 0
    while row < n_step and weights[row] == 1.0:
        total += factor * rewards[row]
        factor *= discount
        if terminations[row] == 1.0:
            return total, row + 1, 0.0
        row += 1
    return total, row, factor


def test_a_window_ends_with_its_episode_and_counts_on_unless_the_task_ended() -> None:
    rewards = np.array([[1.0, 2.0, 4.0, 0.0]] * 4)
    weights = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 0, 0]], np.float32)
    terminations = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]], np.float32)

    found = n_step_returns(rewards, terminations, weights, n_step=3, discount=0.5)

    assert found.rewards.tolist() == [3.0, 1.0, 2.0, 2.0]
    assert found.last.tolist() == [3, 1, 2, 2]
    assert found.discounts.tolist() == [0.125, 0.0, 0.25, 0.0]


@pytest.mark.parametrize("n_step", [1, 2, 5])
def test_returns_are_those_of_a_loop_over_the_steps(n_step: int) -> None:
    rng = np.random.default_rng(n_step)
    rewards = rng.standard_normal((400, n_step + 1)).astype(np.float32)
    weights = (rng.random((400, n_step + 1)) < 0.7).astype(np.float32)
    weights[:, 0] = 1.0
    terminations = (rng.random(weights.shape) < 0.3).astype(np.float32)
    terminations[:, :-1] *= 1.0 - weights[:, 1:]  # the row after the end of a task is never real

    found = n_step_returns(rewards, terminations, weights, n_step=n_step, discount=0.9)

    for row in range(400):
        expected = slow(
            rewards[row].tolist(), terminations[row].tolist(), weights[row].tolist(), n_step=n_step, discount=0.9
        )
        np.testing.assert_allclose(
            (found.rewards[row], found.last[row], found.discounts[row]), expected, rtol=1e-5, atol=1e-6
        )
