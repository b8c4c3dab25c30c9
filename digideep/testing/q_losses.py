"""The arithmetic of Q-learning: what a window is worth, and the loss of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.nn import functional

__all__ = ["FIGURES", "QBatch", "Returns", "action_values", "huber_loss", "n_step_returns"]

Array: TypeAlias = np.ndarray[Any, Any]

FIGURES = ("value_loss", "value")


class QBatch(NamedTuple):
    """Normalised observations by slot `[B, ...]`, actions taken `[B]`, and what they turned out to be worth `[B]`."""

    observations: Mapping[str, torch.Tensor]
    actions: torch.Tensor
    targets: torch.Tensor


class Returns(NamedTuple):
    """Discounted sum of rewards `[B]`, the row `[B]` whose value follows it, and the factor `[B]` of that value."""

    rewards: Array
    last: Array
    discounts: Array


def action_values(outputs: Any, values: Any) -> Any:
    """Return action values `[B, A]`: a state's value plus how much better than their mean each action is.

    Source: Wang et al. 2016, arXiv:1511.06581, eq. 9.
    """
    return values[:, None] + outputs - outputs.mean(1)[:, None]


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
    real = np.cumprod(weights[:, :n_step] == 1.0, axis=1)
    last = real.sum(axis=1)
    powers = discount ** np.arange(n_step, dtype=np.float64)
    ended = terminations[np.arange(len(last)), last - 1]
    return Returns(
        rewards=np.where(real, rewards[:, :n_step] * powers, 0.0).sum(axis=1).astype(np.float32),
        last=last,
        discounts=(discount**last * (1.0 - ended)).astype(np.float32),
    )


def huber_loss(values: torch.Tensor, batch: QBatch) -> torch.Tensor:
    """Return the mean Huber loss of the values `[B, A]` of the actions that were taken, a scalar."""
    taken = values.gather(1, batch.actions[:, None]).squeeze(1)
    return functional.smooth_l1_loss(taken, batch.targets)
