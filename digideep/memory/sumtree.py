"""Priorities, and draws in proportion to them: a tree of sums over pairs, pairs of pairs, and so on.

Every sum is made anew from the two below it, never by adding a difference, so that it depends on the priorities alone
and not on the order in which they came: a tree made from them again has the same bits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

__all__ = ["SumTree"]

Array: TypeAlias = np.ndarray[Any, Any]

_TOP = 2048  # sums that are searched at once, instead of level by level


class SumTree:
    """Priorities of `size` places, all 0 at first.

    Attributes:
        leaves: `[size]` float64; to be read, and written by `put` and `fill`.
    """

    def __init__(self, size: int) -> None:
        lengths = [size + size % 2]
        while lengths[-1] > _TOP:
            half = lengths[-1] // 2
            lengths.append(half + half % 2)
        self._levels = [np.zeros(length) for length in lengths]
        self.leaves = self._levels[0][:size]

    @property
    def total(self) -> float:
        """Return the sum of all priorities."""
        return float(np.cumsum(self._levels[-1])[-1])

    def put(self, places: Array, priorities: Array) -> None:
        """Set priorities at places `[B]`; of those that come more than once, the last counts."""
        self.leaves[places] = priorities
        nodes = places
        for below, above in pairwise(self._levels):
            nodes = nodes >> 1
            pairs = below.reshape(-1, 2).take(nodes, axis=0)
            above[nodes] = pairs[:, 0] + pairs[:, 1]

    def fill(self, start: int, priorities: Array) -> None:
        """Set the priorities of neighbouring places, from `start` on."""
        stop = start + len(priorities)
        self.leaves[start:stop] = priorities
        for below, above in pairwise(self._levels):
            start, stop = start // 2, (stop + 1) // 2
            pairs = below.reshape(-1, 2)[start:stop]
            np.add(pairs[:, 0], pairs[:, 1], out=above[start:stop])

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Return places `[size]` with priorities above 0, in ascending order; there must be one.

        The sum of all priorities is cut into `size` equal parts, and a point drawn uniformly from each: what is drawn
        is in proportion to the priorities, with less noise than independent draws would have.

        Source: Schaul et al. 2016, arXiv:1511.05952, appendix B.2.1.
        """
        top = self._levels[-1]
        running = np.cumsum(top)
        total = running[-1]
        # Points lie in (0, total]: each is above what lies before its place, which so has a priority.
        points = np.minimum((np.arange(1.0, size + 1.0) - rng.random(size)) * (total / size), total)
        places: Array = running.searchsorted(points)
        rest = np.minimum(points - np.where(places > 0, running[places - 1], 0.0), top[places])
        for level in reversed(self._levels[:-1]):
            pairs = level.reshape(-1, 2).take(places, axis=0)
            left = pairs[:, 0]
            goes_right = rest > left
            # Rounding may leave a little more than the right one has, and must not lead beyond it.
            rest = np.where(goes_right, np.minimum(rest - left, pairs[:, 1]), rest)
            places = 2 * places + goes_right
        return places
