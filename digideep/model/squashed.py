"""Actions within [-1, 1]: a normal distribution through tanh, and tanh alone; in closed form, with derivatives.

The network gives `[B, 2 D]`: means, then logarithms of deviations, which are cut at `LOG_STD_BOUNDS`. With noise e from
a standard normal, u = mean + std e and a = tanh(u):

    log_prob = sum over the elements of  -e^2 / 2 - log_std - log(2 pi) / 2 - log(1 - a^2)

where log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which is exact where 1 - a^2 rounds to 0. For a loss L with
dL/da = g and dL/dlog_prob = c, with e held: dL/du = g (1 - a^2) + 2 c a, since d(-log(1 - a^2))/du = 2 a; then
dL/dmean = dL/du and dL/dlog_std = dL/du std e - c, which is 0 outside the bounds.

Source: Haarnoja et al. 2018, arXiv:1812.05905, appendix C.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.nn import functional

__all__ = ["LOG_STD_BOUNDS", "Squashed", "squash", "squash_torch", "squashed_mode"]

Array: TypeAlias = np.ndarray[Any, Any]

LOG_STD_BOUNDS = (-20.0, 2.0)
"""Between which the logarithm of a deviation is kept, as in the code of the source."""

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_TWO = math.log(2.0)


class Squashed(NamedTuple):
    """Actions `[B, D]`, their log-densities `[B]`, and what their derivatives need."""

    actions: Array
    log_probs: Array
    spread: Array  # [B, D]: deviation times noise
    is_inside: Array  # [B, D]: whether the logarithm of the deviation was within its bounds

    def gradient(self, by_actions: Array, by_log_probs: Array) -> Array:
        """Return the derivatives `[B, 2 D]` by the network's outputs, from those by actions and log-densities."""
        by_log_prob = by_log_probs[:, None]
        by_u = by_actions * (1.0 - self.actions * self.actions) + (2.0 * by_log_prob) * self.actions
        by_log_std = (by_u * self.spread - by_log_prob) * self.is_inside
        return np.concatenate((by_u, by_log_std), axis=1)


def squash(outputs: Array, noise: Array) -> Squashed:
    """Return actions for a network's outputs `[B, 2 D]` and standard normal noise `[B, D]`."""
    size = noise.shape[1]
    mean, raw = outputs[:, :size], outputs[:, size:]
    log_std = raw.clip(*LOG_STD_BOUNDS)
    spread = np.exp(log_std) * noise
    u = mean + spread
    terms = -0.5 * noise * noise - log_std - _log_slope(u)
    return Squashed(
        actions=np.tanh(u),
        log_probs=np.add.reduce(terms, axis=1) - size * np.asarray(_HALF_LOG_TWO_PI, outputs.dtype),
        spread=spread,
        is_inside=log_std == raw,
    )


def squashed_mode(outputs: Array) -> Array:
    """Return tanh of the means `[B, D]` of outputs `[B, 2 D]`."""
    return np.asarray(np.tanh(outputs[:, : outputs.shape[1] // 2]))


def squash_torch(outputs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return actions `[B, D]` and log-densities `[B]`, for autograd."""
    mean, raw = outputs.chunk(2, dim=-1)
    log_std = raw.clamp(*LOG_STD_BOUNDS)
    u = mean + log_std.exp() * noise
    log_slope = 2.0 * (_LOG_TWO - u - functional.softplus(-2.0 * u))
    log_probs = (-0.5 * noise.square() - log_std - _HALF_LOG_TWO_PI - log_slope).sum(-1)
    return torch.tanh(u), log_probs


def _log_slope(u: Array) -> Array:
    """Return log(1 - tanh(u)^2)."""
    double = -2.0 * u
    softplus = np.maximum(double, 0.0) + np.log1p(np.exp(-np.abs(double)))
    return np.asarray(2.0 * (_LOG_TWO - u - softplus))
