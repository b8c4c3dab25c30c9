"""A ring of rows: the newest rows of all environments, and uniform draws from the transitions that they hold.

Rows are numbered from the first one ever written; row `g` lies in place `g % rows`. Transition `g` of an environment is
real if row `g + 1` has mask 1; the newest row, which the next chunk completes, holds none yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.types import Batch

__all__ = ["Ring", "Run"]

Array: TypeAlias = np.ndarray[Any, Any]

_RARE = 1 / 32  # of rows real: below this, looking at all of them once is cheaper than drawing until enough are


class Run(NamedTuple):
    """Neighbouring rows: the number of the first, the place where it lies, and how many there are."""

    first: int
    place: int
    length: int


class Ring:
    """The newest `rows` rows of every array.

    Args:
        arrays: `[rows, N, ...]` each; written in place.
        mask_key: the key whose array says which transitions are real.

    Attributes:
        total: rows written since the beginning.
        real: real transitions that the ring holds.
    """

    def __init__(self, arrays: Mapping[str, Array], *, mask_key: str) -> None:
        self.arrays = arrays
        self.masks = arrays[mask_key]
        self.rows, self.num_envs = (int(size) for size in self.masks.shape)
        self._flat = {key: a.reshape((self.rows * self.num_envs, *a.shape[2:])) for key, a in arrays.items()}
        self._mask_key = mask_key
        self.total = 0
        self.real = 0

    @property
    def low(self) -> int:
        """Return the number of the oldest row that is still there."""
        return max(0, self.total - self.rows)

    @property
    def head(self) -> int:
        """Return the number of the newest row; -1 where there is none."""
        return self.total - 1

    def runs(self, first: int, count: int) -> Iterator[Run]:
        """Yield rows `first` to `first + count`, in the one or two pieces in which they lie."""
        while count > 0:
            place = first % self.rows
            piece = min(count, self.rows - place)
            yield Run(first, place, piece)
            first, count = first + piece, count - piece

    def append(self, chunk: Mapping[str, Array]) -> list[Run]:
        """Write a chunk, `[N, T+1, ...]` arrays, and return the rows that were written.

        Row 0 of the chunk completes the newest row, which knew only what stood before acting; where the stream of an
        environment broke in between, its mask 0 takes the transition that led there out of the real ones.
        """
        head, low = self.head, self.low
        first = max(head, 0)
        steps = next(iter(chunk.values())).shape[1]
        total = first + steps
        new_low = max(0, total - self.rows)
        self.real -= self._count(low + 1, min(new_low, head)) + self._count(max(head, new_low + 1), head)
        runs = list(self.runs(first, steps))
        for key, array in chunk.items():
            source, target = array.swapaxes(0, 1), self.arrays[key]
            for run in runs:
                offset = run.first - first
                target[run.place : run.place + run.length] = source[offset : offset + run.length]
        self.total = total
        self.real += self._count(max(head, new_low + 1), self.head)
        return runs

    def restored(self, total: int) -> None:
        """Take over that the rows up to `total` lie in place, however they came there."""
        self.total = total
        self.real = self._count(self.low + 1, self.head)

    def draw(self, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return rows `[size]` and environments `[size]` of real transitions, each equally likely, with replacement.

        Nothing is looked at but what is drawn, however large the ring; there must be a real transition.
        """
        span = self.head - self.low
        share = self.real / (span * self.num_envs)
        if share < _RARE:
            return self._draw_rare(size, rng)
        rows, envs = np.empty(size, np.int64), np.empty(size, np.int64)
        done = 0
        while done < size:
            # Draws that meet no real transition are drawn again, so that all real ones stay equally likely.
            picked = rng.integers(span * self.num_envs, size=math.ceil((size - done) / share * 1.1) + 4)
            row, env = np.divmod(picked, self.num_envs)
            row += self.low
            hits = np.flatnonzero(self.masks[(row + 1) % self.rows, env] == 1.0)[: size - done]
            rows[done : done + len(hits)], envs[done : done + len(hits)] = row[hits], env[hits]
            done += len(hits)
        return rows, envs

    def take(self, rows: Array, envs: Array, *, window: int, out: Batch) -> None:
        """Fill `out` with windows `[B, window, ...]` that begin at `rows` of `envs`, and with their `/weights`.

        Rows beyond the newest one repeat it, with mask 0 and weight 0.
        """
        wanted = rows[:, None] + np.arange(window)
        beyond = wanted > self.head
        steps = np.minimum(wanted, self.head)
        places = steps % self.rows * self.num_envs + envs[:, None]
        following = np.minimum(steps + 1, self.head) % self.rows * self.num_envs + envs[:, None]
        for key, flat in self._flat.items():
            if key not in out:
                out[key] = np.empty((*places.shape, *flat.shape[1:]), flat.dtype)
            # With a mode other than "raise" numpy writes into `out` without a copy in between.
            np.take(flat, places, axis=0, out=out[key], mode="clip")
        real = (self._flat[self._mask_key][following] == 1.0) & (steps < self.head)
        out[self._mask_key][beyond] = 0.0
        if "/weights" not in out:
            out["/weights"] = np.empty(places.shape, np.float32)
        out["/weights"][...] = real

    def _draw_rare(self, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        found = [
            np.flatnonzero(self.masks[run.place : run.place + run.length] == 1.0) + (run.first - 1) * self.num_envs
            for run in self.runs(self.low + 1, self.head - self.low)
        ]
        starts = np.concatenate(found)
        rows, envs = np.divmod(starts[rng.integers(len(starts), size=size)], self.num_envs)
        return rows, envs

    def _count(self, first: int, last: int) -> int:
        """Return how many masks of rows `first` to `last` are 1."""
        pieces = self.runs(first, last - first + 1)
        return sum(int((self.masks[run.place : run.place + run.length] == 1.0).sum()) for run in pieces)
