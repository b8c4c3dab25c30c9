"""The losses of SAC as they are written, for autograd; `agent.py` has their derivatives in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

__all__ = ["SACBatch", "critic_loss", "policy_loss", "soft_targets", "temperature_loss"]

Array: TypeAlias = np.ndarray[Any, Any]


class SACBatch(NamedTuple):
    """`B` transitions: normalised observations by slot, actions `[B, D]`, what they turned out to be worth `[B]`.

    `importance` `[B]` is what each weighs in the critics' loss; `noise` `[B, D]` picks the actions that the policy is
    judged by.
    """

    observations: Mapping[str, Any]
    actions: Any
    targets: Any
    importance: Any
    noise: Any


def soft_targets(rewards: Array, discounts: Array, *, values: Array, log_probs: Array, temperature: float) -> Array:
    """Return rewards + discounts (min over critics of the value - temperature log_prob), `[B]`.

    Args:
        rewards: `[B]`, the discounted sum of a window.
        discounts: `[B]`, 0 where the task ended.
        values: `[critics, B]`, of the target critics for the next observation and an action of the policy.
        log_probs: `[B]`, of that action.
        temperature: weight of the entropy.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eqs. 3 and 5, with the lesser of two critics as in section 6.
    """
    return np.asarray(rewards + discounts * (values.min(axis=0) - temperature * log_probs))


def critic_loss(values: torch.Tensor, batch: SACBatch) -> torch.Tensor:
    """Return half the mean squared error of each critic `[critics, B]`, summed over the critics.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 5.
    """
    losses: torch.Tensor = ((values - batch.targets).square() * batch.importance).mean(dim=1)
    return 0.5 * losses.sum()


def policy_loss(log_probs: torch.Tensor, values: torch.Tensor, *, temperature: torch.Tensor) -> torch.Tensor:
    """Return the mean of temperature log_prob - min over critics of the value `[critics, B]`.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 7.
    """
    return (temperature * log_probs - values.min(dim=0).values).mean()


def temperature_loss(log_temperature: torch.Tensor, log_probs: torch.Tensor, *, target_entropy: float) -> torch.Tensor:
    """Return minus the mean of log_temperature (log_prob + target_entropy), a scalar.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 18; with the logarithm in place of the temperature, as in the
    code of its authors: the sign of the gradient is the same and the temperature stays above 0.
    """
    return -(log_temperature * (log_probs + target_entropy)).mean()
