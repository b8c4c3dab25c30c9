"""The losses of SAC with a value network as they are written; `agent.py` has their derivatives in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

__all__ = ["SACValueBatch", "critic_loss", "policy_loss", "scaled_targets", "soft_values", "value_loss"]

Array: TypeAlias = np.ndarray[Any, Any]


class SACValueBatch(NamedTuple):
    """`B` transitions: normalised observations by slot, actions `[B, D]`, what they turned out to be worth `[B]`.

    `importance` `[B]` is what each weighs in the losses of critics and value; `noise` `[B, D]` picks the actions that
    the policy is judged by.
    """

    observations: Mapping[str, Any]
    actions: Any
    targets: Any
    importance: Any
    noise: Any


def scaled_targets(rewards: Array, discounts: Array, *, values: Array, reward_scale: float) -> Array:
    """Return reward_scale rewards + discounts values, `[B]`: what critics are regressed on.

    Args:
        rewards: `[B]`, the discounted sum of a window.
        discounts: `[B]`, 0 where the task ended.
        values: `[B]`, of the target value network for the next observation.
        reward_scale: 1 / temperature.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, eq. 8, and section 5.2 on the scale.
    """
    return np.asarray(reward_scale * rewards + discounts * values)


def soft_values(values: torch.Tensor, log_probs: torch.Tensor) -> torch.Tensor:
    """Return min over critics of the value `[critics, B]` - log_prob, `[B]`: what the value network is regressed on.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, eq. 3 and section 4.2, "the minimum of the Q-functions".
    """
    return values.min(dim=0).values - log_probs


def value_loss(values: torch.Tensor, targets: torch.Tensor, batch: SACValueBatch) -> torch.Tensor:
    """Return half the mean squared error of values `[B]`.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, eq. 5.
    """
    errors: torch.Tensor = (values - targets).square() * batch.importance
    return 0.5 * errors.mean()


def critic_loss(values: torch.Tensor, batch: SACValueBatch) -> torch.Tensor:
    """Return half the mean squared error of each critic `[critics, B]`, summed over the critics.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, eq. 7.
    """
    losses: torch.Tensor = ((values - batch.targets).square() * batch.importance).mean(dim=1)
    return 0.5 * losses.sum()


def policy_loss(log_probs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the mean of log_prob - min over critics of the value `[critics, B]`.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, eq. 12.
    """
    return (log_probs - values.min(dim=0).values).mean()
