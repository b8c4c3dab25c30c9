"""The losses of PPO as pure functions, and their derivatives by what the policy says in closed form.

All means are weighted by `batch.shares`, which are 0 for rows that hold no real transition and sum to 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from digideep.agent.rollout.batches import RolloutBatch
from digideep.agent.rollout.learner import Derivatives
from digideep.model.heads import Evaluation

__all__ = [
    "FIGURES",
    "LossOptions",
    "Losses",
    "PPOBatch",
    "approximate_kl",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "derivatives",
    "entropy_bonus",
    "probability_ratio",
]

FIGURES = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
"""Names of the figures that every gradient comes with, in order."""

PPOBatch: TypeAlias = RolloutBatch
"""The name that methods made from PPO have for the rows of a gradient step."""

_LARGEST_LOG_RATIO = 80.0  # float32 ends at e^88: a greater ratio says no more, and infinity times 0 would be NaN


class LossOptions(NamedTuple):
    """Bounds and weights of the loss; `value_clip` None leaves values unclipped."""

    clip_param: float
    value_clip: float | None
    value_coef: float
    entropy_coef: float


class Losses(NamedTuple):
    """Scalars: the total that is differentiated, and the figures in the order of `FIGURES`."""

    total: torch.Tensor
    policy_loss: torch.Tensor
    value_loss: torch.Tensor
    entropy: torch.Tensor
    approx_kl: torch.Tensor
    clip_fraction: torch.Tensor


def probability_ratio(log_prob: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
    """Return by how much more probable actions have become, `[B]`, at most e^80; its derivative is the ratio itself."""
    log_ratio = log_prob - batch.log_probs
    return torch.exp(log_ratio - (log_ratio - _LARGEST_LOG_RATIO).clamp(min=0.0).detach())


def clipped_surrogate(log_prob: torch.Tensor, batch: RolloutBatch, *, clip_param: float) -> torch.Tensor:
    """Return the negative mean of the lesser of the two surrogates.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7.
    """
    ratio = probability_ratio(log_prob, batch)
    bounded = ratio.clamp(1.0 - clip_param, 1.0 + clip_param)
    return -_mean(torch.minimum(ratio * batch.advantages, bounded * batch.advantages), batch)


def clipped_value_loss(values: torch.Tensor, batch: RolloutBatch, *, value_clip: float | None) -> torch.Tensor:
    """Return half the mean squared error, the greater of that of the value and of the value kept near the old one.

    Source: Engstrom et al. 2020, arXiv:2005.12729, section 3, "value function clipping".
    """
    squared = (values - batch.returns).square()
    if value_clip is not None:
        kept = batch.values + (values - batch.values).clamp(-value_clip, value_clip)
        squared = torch.maximum(squared, (kept - batch.returns).square())
    return 0.5 * _mean(squared, batch)


def entropy_bonus(entropy: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
    """Return the mean entropy of the policy.

    Source: Mnih et al. 2016, arXiv:1602.01783, section 4.
    """
    return _mean(entropy, batch)


def approximate_kl(log_prob: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
    """Return the mean of (r - 1) - log r, an estimate of KL(old, new) that is never negative.

    Source: Schulman 2020, http://joschu.net/blog/kl-approx.html, estimator k3.
    """
    log_ratio = log_prob - batch.log_probs
    return _mean(probability_ratio(log_prob, batch) - 1.0 - log_ratio, batch)


def clip_fraction(log_prob: torch.Tensor, batch: RolloutBatch, *, clip_param: float) -> torch.Tensor:
    """Return the share of rows whose probability ratio is further than `clip_param` from 1."""
    distance = (probability_ratio(log_prob, batch) - 1.0).abs()
    return _mean(distance > clip_param, batch)


def derivatives(evaluated: Evaluation, batch: RolloutBatch, options: LossOptions) -> Derivatives:
    """Return the derivatives of the total loss by what the policy says, without autograd, in numpy or torch.

    With w a share, A an advantage, r = exp(log_prob - old log_prob) and c the bound:

    - policy: L = -w min(r A, clip(r) A). Where the second term is the lesser one, r is outside the bounds and clip(r)
      does not move; everywhere else dL/dlog_prob = -w A r.
    - value: L = value_coef w/2 max((v - R)^2, (kept - R)^2). Where the second term is the greater one and v is outside
      its bounds, kept does not move; everywhere else dL/dv = value_coef w (v - R), since inside them kept is v.
    - entropy: L = -entropy_coef w H, so dL/dH = -entropy_coef w.
    """
    xp: Any = torch if isinstance(batch.shares, torch.Tensor) else np
    shares, advantages = batch.shares, batch.advantages
    log_ratio = evaluated.log_prob - batch.log_probs
    ratio = xp.exp(log_ratio.clip(max=_LARGEST_LOG_RATIO))
    free = ratio * advantages
    bounded = ratio.clip(1.0 - options.clip_param, 1.0 + options.clip_param) * advantages
    lesser = xp.minimum(free, bounded)
    by_log_prob = xp.where(free > bounded, 0.0, -free * shares)
    error = evaluated.values - batch.returns
    squared = error * error
    by_value = error * shares * options.value_coef
    if options.value_clip is not None:
        moved = evaluated.values - batch.values
        kept = moved.clip(-options.value_clip, options.value_clip)
        bounded_error = kept + batch.values - batch.returns
        bounded_squared = bounded_error * bounded_error
        by_value = xp.where((bounded_squared > squared) & (kept != moved), 0.0, by_value)
        squared = xp.maximum(squared, bounded_squared)
    excess = ratio - 1.0
    rows = (-lesser, 0.5 * squared, evaluated.entropy, excess - log_ratio, abs(excess) > options.clip_param)
    # A small array is made of arrays in a quarter of the time that `numpy.stack` takes.
    table = np.array(rows) if xp is np else xp.stack(rows)
    return Derivatives(by_log_prob, shares * -options.entropy_coef, by_value, table @ shares)


def _mean(values: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
    mean: torch.Tensor = (values * batch.shares).sum()
    return mean
