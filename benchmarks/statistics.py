"""Ratios and differences of repeated runs, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Estimate", "difference_of_means", "mean_interval", "median_difference", "median_ratio"]

_RESAMPLES = 10_000

Array = np.ndarray[Any, Any]


class Estimate(NamedTuple):
    """A value and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return the median of the ratios of runs that were made one after the other.

    Raises:
        ValueError: there are more of one than of the other.
    """
    return _median([a / b for a, b in zip(ours, theirs, strict=True)])


def median_difference(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return the median of the differences of runs that were made one after the other.

    Raises:
        ValueError: there are more of one than of the other.
    """
    return _median([a - b for a, b in zip(ours, theirs, strict=True)])


def difference_of_means(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return mean(ours) - mean(theirs) over independent runs."""
    rng = np.random.default_rng(0)
    drawn = _resampled(ours, rng).mean(1) - _resampled(theirs, rng).mean(1)
    return _estimate(float(np.mean(ours) - np.mean(theirs)), drawn)


def mean_interval(values: Sequence[float]) -> Estimate:
    """Return the mean of independent runs."""
    return _estimate(float(np.mean(values)), _resampled(values, np.random.default_rng(0)).mean(1))


def _median(values: Sequence[float]) -> Estimate:
    return _estimate(float(np.median(values)), np.median(_resampled(values, np.random.default_rng(0)), 1))


def _resampled(values: Sequence[float], rng: np.random.Generator) -> Array:
    """Return as many values again, drawn with replacement, once in each row."""
    return np.asarray(values)[rng.integers(len(values), size=(_RESAMPLES, len(values)))]


def _estimate(value: float, drawn: Array) -> Estimate:
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(value, float(low), float(high))
