"""Advantages and returns of rollouts, in numpy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from digideep.errors import ShapeError

__all__ = ["explained_variance", "gae"]

Array: TypeAlias = np.ndarray[Any, Any]


def gae(
    rewards: Array, values: Array, *, terminations: Array, masks: Array, discount: float, gae_lambda: float
) -> Array:
    """Return generalised advantage estimates.

    Transition t is real where `masks[:, t+1] == 1`; rows of other transitions get advantage 0. A termination stops the
    bootstrap, a time limit does not: the value of the observation after it is that of the task going on.

    Args:
        rewards: [N, T] reward of the action taken at t.
        values: [N, T+1] value estimates; the last column is the bootstrap.
        terminations: [N, T] 1.0 where the action at t ended the task.
        masks: [N, T+1] 0.0 where the observation at t opens an episode.
        discount: gamma in [0, 1].
        gae_lambda: lambda in [0, 1]; 0 is one-step TD, 1 is Monte Carlo.

    Returns:
        [N, T] advantages, not normalised, in the dtype of `values`; computed in float64.

    Raises:
        ShapeError: an argument does not have the shape above.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16.
    """
    _check_shapes(rewards, values=values, terminations=terminations, masks=masks)
    # Time first, so that each step of the loop works on neighbours in memory.
    real = masks.T[1:].astype(np.float64)
    value = np.ascontiguousarray(values.T, dtype=np.float64)
    deltas = rewards.T + discount * (1.0 - terminations.T) * value[1:] - value[:-1]
    advantages = real * deltas
    decay = real * (discount * gae_lambda)
    # adv[t] = delta[t] + decay[t] adv[t+1] by doubling: after each pass a row holds the sum over twice as many steps.
    reach = 1
    while reach < len(advantages):
        advantages[:-reach] += decay[:-reach] * advantages[reach:]
        decay[:-reach] *= decay[reach:]
        reach *= 2
    return advantages.T.astype(values.dtype)


def explained_variance(values: Array, returns: Array, weights: Array) -> float:
    """Return 1 - Var(returns - values) / Var(returns) over rows of weight 1.

    1 is a perfect prediction, 0 is as good as a constant, and below it is worse. 0 where the returns do not vary.
    """
    picked = weights > 0.0
    target = returns[picked].astype(np.float64)
    variance = float(target.var()) if target.size else 0.0
    if variance == 0.0:
        return 0.0
    return 1.0 - float((target - values[picked]).var()) / variance


def _check_shapes(rewards: Array, *, values: Array, terminations: Array, masks: Array) -> None:
    if rewards.ndim != 2:
        raise ShapeError(f"gae: rewards have shape {rewards.shape}, expected (N, T)")
    num_envs, steps = rewards.shape
    for name, array, expected in (
        ("values", values, (num_envs, steps + 1)),
        ("terminations", terminations, (num_envs, steps)),
        ("masks", masks, (num_envs, steps + 1)),
    ):
        if array.shape != expected:
            raise ShapeError(
                f"gae: {name} have shape {array.shape}, expected {expected} as rewards are {rewards.shape}"
            )
