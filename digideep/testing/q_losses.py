"""The arithmetic of Q-learning: values of actions, and the loss of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.nn import functional

__all__ = ["FIGURES", "QBatch", "action_values", "huber_loss"]

FIGURES = ("value_loss", "value")


class QBatch(NamedTuple):
    """Normalised observations by slot `[B, ...]`, actions taken `[B]`, and what they turned out to be worth `[B]`."""

    observations: Mapping[str, torch.Tensor]
    actions: torch.Tensor
    targets: torch.Tensor


def action_values(outputs: Any, values: Any) -> Any:
    """Return action values `[B, A]`: a state's value plus how much better than their mean each action is.

    Source: Wang et al. 2016, arXiv:1511.06581, eq. 9.
    """
    return values[:, None] + outputs - outputs.mean(1)[:, None]


def huber_loss(values: torch.Tensor, batch: QBatch) -> torch.Tensor:
    """Return the mean Huber loss of the values `[B, A]` of the actions that were taken, a scalar."""
    taken = values.gather(1, batch.actions[:, None]).squeeze(1)
    return functional.smooth_l1_loss(taken, batch.targets)
