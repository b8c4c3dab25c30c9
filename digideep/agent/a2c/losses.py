"""The losses of A2C as pure functions, and their derivatives by what the policy says in closed form.

All means are weighted by `batch.shares`, which are 0 for rows that hold no real transition and sum to 1. Of a batch
they use `advantages`, `returns` and `shares`: the chunk was sampled by the policy that learns from it, so that there is
no older one to compare with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from digideep.agent.rollout.batches import RolloutBatch
from digideep.agent.rollout.learner import Derivatives
from digideep.model.heads import Evaluation

__all__ = ["FIGURES", "LossOptions", "Losses", "derivatives", "entropy_bonus", "policy_gradient_loss", "value_loss"]

FIGURES = ("policy_loss", "value_loss", "entropy")
"""Names of the figures that every gradient comes with, in order."""


class LossOptions(NamedTuple):
    """Weights of the loss."""

    value_coef: float
    entropy_coef: float


class Losses(NamedTuple):
    """Scalars: the total that is differentiated, and the figures in the order of `FIGURES`."""

    total: torch.Tensor
    policy_loss: torch.Tensor
    value_loss: torch.Tensor
    entropy: torch.Tensor


def policy_gradient_loss(log_prob: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
    """Return the negative mean of log-probability times advantage.

    Source: Mnih et al. 2016, arXiv:1602.01783, section 4, "Asynchronous advantage actor-critic".
    """
    return -_mean(log_prob * batch.advantages, batch)


def value_loss(values: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
    """Return half the mean squared error of the values.

    Source: Mnih et al. 2016, arXiv:1602.01783, algorithm S3, which has no half: `value_coef` 2 is the same.
    """
    return 0.5 * _mean((values - batch.returns).square(), batch)


def entropy_bonus(entropy: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
    """Return the mean entropy of the policy.

    Source: Mnih et al. 2016, arXiv:1602.01783, section 4.
    """
    return _mean(entropy, batch)


def derivatives(evaluated: Evaluation, batch: RolloutBatch, options: LossOptions) -> Derivatives:
    """Return the derivatives of the total loss by what the policy says, without autograd, in numpy or torch.

    With w a share, A an advantage, R a return, v a value and H an entropy:

    - policy: L = -w A log_prob, so dL/dlog_prob = -w A.
    - value: L = value_coef w/2 (v - R)^2, so dL/dv = value_coef w (v - R).
    - entropy: L = -entropy_coef w H, so dL/dH = -entropy_coef w.
    """
    shares = batch.shares
    error = evaluated.values - batch.returns
    rows = (-batch.advantages * evaluated.log_prob, 0.5 * error * error, evaluated.entropy)
    # A small array is made of arrays in a quarter of the time that `numpy.stack` takes.
    table: Any = torch.stack(rows) if isinstance(shares, torch.Tensor) else np.array(rows)
    return Derivatives(
        by_log_prob=-batch.advantages * shares,
        by_entropy=shares * -options.entropy_coef,
        by_value=error * shares * options.value_coef,
        figures=table @ shares,
    )


def _mean(values: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
    mean: torch.Tensor = (values * batch.shares).sum()
    return mean
