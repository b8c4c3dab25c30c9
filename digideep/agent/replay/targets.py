"""What windows of transitions are worth before the estimate of what follows, and networks that follow others slowly."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

__all__ = ["Returns", "n_step_returns", "polyak"]

Array: TypeAlias = np.ndarray[Any, Any]


class Returns(NamedTuple):
    """Discounted sum of rewards `[B]`, the row `[B]` whose value follows it, and the factor `[B]` of that value."""

    rewards: Array
    last: Array
    discounts: Array


def n_step_returns(rewards: Array, terminations: Array, weights: Array, *, n_step: int, discount: float) -> Returns:
    """Return what windows are worth before the estimate of their last observation.

    A window ends after `n_step` steps or at its first row `u` that holds no real transition, and the value of the
    observation there counts with `discount^u`, unless the step before ended the task. A time limit does not end it.

    Args:
        rewards: `[B, n_step + 1]`.
        terminations: `[B, n_step + 1]`, 1.0 where the step ended the task.
        weights: `[B, n_step + 1]`, 0.0 where a row holds no real transition; 1.0 in the first column.
        n_step: rewards that are summed at most.
        discount: gamma.

    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 12.1, cut at the end of an episode.
    """
    if n_step == 1:  # the first row is real, so nothing has to be looked for
        factors = (discount * (1.0 - terminations[:, 0])).astype(np.float32)
        return Returns(rewards[:, 0].astype(np.float32), np.ones(len(rewards), np.int64), factors)
    real = np.cumprod(weights[:, :n_step] == 1.0, axis=1)
    last = real.sum(axis=1)
    powers = discount ** np.arange(n_step, dtype=np.float64)
    ended = terminations[np.arange(len(last)), last - 1]
    return Returns(
        rewards=np.where(real, rewards[:, :n_step] * powers, 0.0).sum(axis=1).astype(np.float32),
        last=last,
        discounts=(discount**last * (1.0 - ended)).astype(np.float32),
    )


def polyak(target: torch.Tensor, source: torch.Tensor, *, share: float) -> None:
    """Move `target` by a share of its distance from `source`, in place; both are flat buffers.

    Source: Polyak and Juditsky 1992; Lillicrap et al. 2016, arXiv:1509.02971, algorithm 1 (tau).
    """
    target.lerp_(source, share)
