"""The losses of DDPG as they are written, for autograd; `agent.py` has their derivatives in closed form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

__all__ = ["DDPGBatch", "bootstrapped_targets", "critic_loss", "policy_loss", "weight_penalty"]

Array: TypeAlias = np.ndarray[Any, Any]


class DDPGBatch(NamedTuple):
    """`B` transitions: normalised observations by slot, actions `[B, D]`, what they turned out to be worth `[B]`.

    `importance` `[B]` is what each weighs in the critics' loss.
    """

    observations: Mapping[str, Any]
    actions: Any
    targets: Any
    importance: Any


def bootstrapped_targets(rewards: Array, discounts: Array, *, values: Array) -> Array:
    """Return rewards + discounts times the least of the critics' values, `[B]`.

    Args:
        rewards: `[B]`, the discounted sum of a window.
        discounts: `[B]`, 0 where the task ended.
        values: `[critics, B]`, of the target critics for the next observation and what the target policy does there.

    Sources: Lillicrap et al. 2016, arXiv:1509.02971, algorithm 1, for one critic; Fujimoto et al. 2018,
    arXiv:1802.09477, algorithm 1, for two.
    """
    return np.asarray(rewards + discounts * values.min(axis=0))


def critic_loss(values: torch.Tensor, batch: DDPGBatch) -> torch.Tensor:
    """Return the mean squared error of each critic `[critics, B]`, summed over the critics.

    Source: Lillicrap et al. 2016, arXiv:1509.02971, algorithm 1.
    """
    losses: torch.Tensor = ((values - batch.targets).square() * batch.importance).mean(dim=1)
    return losses.sum()


def weight_penalty(parameters: Iterable[torch.Tensor], *, weight: float) -> torch.Tensor:
    """Return half the sum of the squares of all parameters, times `weight`.

    Source: Lillicrap et al. 2016, arXiv:1509.02971, section 7, "L2 weight decay".
    """
    return 0.5 * weight * torch.stack([parameter.square().sum() for parameter in parameters]).sum()


def policy_loss(values: torch.Tensor) -> torch.Tensor:
    """Return minus the mean of the first critic's values `[critics, B]` of what the policy does.

    Sources: Silver et al. 2014, eq. 9, and Lillicrap et al. 2016, arXiv:1509.02971, eq. 6; with the first of two
    critics Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1.
    """
    return -values[0].mean()
