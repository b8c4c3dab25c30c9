"""Ratios and differences of repeated runs, with bootstrap intervals."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["Estimate", "difference_of_means", "median_ratio"]

_RESAMPLES = 10_000


class Estimate(NamedTuple):
    """A value and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return the median of the ratios of runs that were made one after the other."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return _bootstrap(lambda rng: statistics.median(rng.choices(ratios, k=len(ratios))), statistics.median(ratios))


def difference_of_means(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return mean(ours) - mean(theirs) over independent runs."""

    def resampled(rng: random.Random) -> float:
        return statistics.fmean(rng.choices(ours, k=len(ours))) - statistics.fmean(rng.choices(theirs, k=len(theirs)))

    return _bootstrap(resampled, statistics.fmean(ours) - statistics.fmean(theirs))


def _bootstrap(draw: Callable[[random.Random], float], value: float) -> Estimate:
    rng = random.Random(0)
    values = sorted(draw(rng) for _ in range(_RESAMPLES))
    return Estimate(value, values[int(0.025 * _RESAMPLES)], values[int(0.975 * _RESAMPLES) - 1])
