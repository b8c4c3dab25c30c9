"""The arithmetic of DQN as it is written, targets in numpy and the loss for autograd; `agent.py` has its derivative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.nn import functional

__all__ = ["QBatch", "huber_loss", "q_targets"]

Array: TypeAlias = np.ndarray[Any, Any]


class QBatch(NamedTuple):
    """`B` transitions: normalised observations by slot, actions `[B]`, what they turned out to be worth `[B]`.

    `importance` `[B]` is what each weighs in the loss; `noise` `[noise_size]` that of the weights, the same for all
    rows, without elements where weights have none.
    """

    observations: Mapping[str, Any]
    actions: Any
    targets: Any
    importance: Any
    noise: Any


def q_targets(rewards: Array, discounts: Array, *, target_values: Array, values: Array | None = None) -> Array:
    """Return rewards + discounts q'(a) `[B]`, a the best action by q' or, where they are given, by `values`.

    Args:
        rewards: `[B]`, the discounted sum of a window.
        discounts: `[B]`, 0 where the task ended.
        target_values: `[B, A]`, q', of the target network for the observation that follows.
        values: `[B, A]`, of the network that learns: double Q-learning.

    Sources: Mnih et al. 2015, Nature 518, algorithm 1; van Hasselt et al. 2016, arXiv:1509.06461, eq. 4.
    """
    if values is None:
        best = target_values.max(axis=1)
    else:
        best = target_values[np.arange(len(values)), values.argmax(axis=1)]
    return np.asarray(rewards + discounts * best)


def huber_loss(values: torch.Tensor, batch: QBatch) -> torch.Tensor:
    """Return the mean, by importance, of the Huber loss of the values `[B, A]` of the actions taken, a scalar.

    With e = q(a) - y the loss is e^2 / 2 where |e| < 1 and |e| - 1/2 elsewhere.

    Source: Mnih et al. 2015, Nature 518, methods: errors are clipped to [-1, 1].
    """
    taken = values.gather(1, batch.actions[:, None]).squeeze(1)
    losses = functional.smooth_l1_loss(taken, batch.targets, reduction="none")
    loss: torch.Tensor = (losses * batch.importance).mean()
    return loss
