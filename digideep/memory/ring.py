"""A ring of rows: the newest rows of all environments, and uniform draws from the transitions that they hold.

Rows are numbered from the first one ever written; row `g` lies in place `g % rows`. Transition `g` of an environment is
real if row `g + 1` has mask 1; the newest row, which the next chunk completes, holds none yet. The index of row `g` of
environment `e` is `g * N + e`, and its place in the flat arrays is that modulo `rows * N`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.memory.base import put
from digideep.memory.frames import OBSERVATIONS, bytes_of, first_bad_row, frame_places
from digideep.types import Batch

__all__ = ["WEIGHTS", "Ring", "Run"]

Array: TypeAlias = np.ndarray[Any, Any]

WEIGHTS = "/weights"

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
        stack: frames in the stack that each observation of a chunk is, of which one a row lies in `arrays`; 0: what
            lies there are the observations.

    Attributes:
        total: rows written since the beginning.
        real: real transitions that can be drawn.
        flat_size: places of all rows and environments.
        history: rows before those that can be drawn, kept for the frames that later stacks begin with.
    """

    def __init__(self, arrays: Mapping[str, Array], *, mask_key: str, stack: int = 0) -> None:
        self.arrays = arrays
        self.masks = arrays[mask_key]
        self.rows, self.num_envs = (int(size) for size in self.masks.shape)
        self.flat_size = self.rows * self.num_envs
        self.history = max(0, stack - 1)
        self.flat = {key: a.reshape((self.flat_size, *a.shape[2:])) for key, a in arrays.items()}
        self._flat_masks = self.flat[mask_key]
        self._mask_key = mask_key
        self._stack = stack
        self._stacked = frozenset(key for key in arrays if stack and key.startswith(OBSERVATIONS))
        self._offsets: dict[int, Array] = {}
        self.total = 0
        self.real = 0

    @property
    def oldest(self) -> int:
        """Return the number of the oldest row that is still there."""
        return max(0, self.total - self.rows)

    @property
    def low(self) -> int:
        """Return the number of the oldest row that can be drawn."""
        return self.oldest + self.history

    @property
    def head(self) -> int:
        """Return the number of the newest row; -1 where there is none."""
        return self.total - 1

    @property
    def base(self) -> int:
        """Return what an index is lowered by to become a place, which may lie beyond the end of the flat ring."""
        return self.oldest // self.rows * self.rows * self.num_envs

    def runs(self, first: int, count: int) -> Iterator[Run]:
        """Yield rows `first` to `first + count`, in the one or two pieces in which they lie."""
        while count > 0:
            place = first % self.rows
            piece = min(count, self.rows - place)
            yield Run(first, place, piece)
            first, count = first + piece, count - piece

    def bad_stack(self, chunk: Mapping[str, Array]) -> tuple[str, int, int] | None:
        """Return key, environment and row of the first observation of a chunk that is no stack; None where all are."""
        masks = chunk[self._mask_key].swapaxes(0, 1)
        for key in self._stacked:
            words = bytes_of(chunk[key].swapaxes(0, 1))
            head = bytes_of(self._stacks_at_head(key)[None])[0] if self.total else None
            bad = first_bad_row(words, masks, head=head)
            if bad is not None:
                return key, bad[1], bad[0]
        return None

    def append(self, chunk: Mapping[str, Array]) -> list[Run]:
        """Write a chunk, `[N, T+1, ...]` arrays, and return the rows that were written.

        Row 0 of the chunk completes the newest row, which knew only what stood before acting; where the stream of an
        environment broke in between, its mask 0 takes the transition that led there out of the real ones.
        """
        head, low, is_first = self.head, self.low, self.total == 0
        first = self.history if is_first else head
        steps = chunk[self._mask_key].shape[1]
        total = first + steps
        new_low = max(0, total - self.rows) + self.history
        self.real -= self._count(low + 1, min(new_low, head)) + self._count(max(head, new_low + 1), head)
        if is_first:
            self._open(chunk)
        runs = list(self.runs(first, steps))
        for key, array in chunk.items():
            source, target = array.swapaxes(0, 1), self.arrays[key]
            if key in self._stacked:
                source = source[:, :, -1]
            for run in runs:
                offset = run.first - first
                target[run.place : run.place + run.length] = source[offset : offset + run.length]
        self.total = total
        self.real += self._count(max(head, new_low + 1), self.head)
        return list(self.runs(0, total)) if is_first else runs

    def restored(self, total: int) -> None:
        """Take over that the rows up to `total` lie in place, however they came there."""
        self.total = total
        self.real = self._count(self.low + 1, self.head)

    def real_rows(self, first: int, count: int) -> Array:
        """Return which transitions `[count, N]` are real, of rows `first` to `first + count`, all before the newest."""
        found = [self.masks[run.place : run.place + run.length] == 1.0 for run in self.runs(first + 1, count)]
        return np.concatenate(found) if found else np.zeros((0, self.num_envs), bool)

    def is_real(self, indices: Array) -> Array:
        """Return which transitions `[B]` are real, of rows before the newest."""
        following = indices + (self.num_envs - self.base)
        found: Array = self._flat_masks.take(following, mode="wrap") == 1.0
        return found

    def indices_at(self, places: Array) -> Array:
        """Return the indices of what lies in places of the flat ring."""
        split = self.oldest % self.rows * self.num_envs  # places before it hold rows of the next lap
        return places + np.where(places < split, self.base + self.flat_size, self.base)

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Return indices `[size]` of real transitions, each equally likely, with replacement.

        Nothing is looked at but what is drawn, however large the ring; there must be a real transition.
        """
        span = (self.head - self.low) * self.num_envs
        share = self.real / span
        if share < _RARE:
            return self._draw_rare(size, rng)
        following = (self.low + 1) % self.rows * self.num_envs
        found: list[Array] = []
        missing = size
        while missing > 0:
            # Draws that meet no real transition are drawn again, so that all real ones stay equally likely. As many are
            # drawn as hold enough real ones nearly always.
            count = math.ceil((missing + 4.0 * math.sqrt(missing * (1.0 - share))) / share)
            picked = rng.integers(span, size=count)
            is_real = self._flat_masks.take(picked + following, mode="wrap") == 1.0
            found.append((picked if is_real.all() else picked[is_real])[:missing])
            missing -= len(found[-1])
        drawn = found[0] if len(found) == 1 else np.concatenate(found)
        drawn += self.low * self.num_envs
        return drawn

    def take(
        self, indices: Array, *, window: int, out: Batch, keys: Iterable[str] | None = None, ends: bool = False
    ) -> None:
        """Fill `out` with windows `[B, window, ...]` that begin at `indices`, and with their `/weights`.

        Rows beyond the newest one repeat it, with mask 0 and weight 0.

        Args:
            indices: of real transitions.
            window: rows of each.
            out: arrays that are there are written into.
            keys: which ones; None for all.
            ends: observations are given at two rows of each window only, `[B, 2, ...]`: the first, and the one that
                the real transitions from there on lead to.
        """
        first = indices - self.base
        chain = first[:, None] + self._offsets_of(window + 1)
        newest = self.head * self.num_envs - self.base
        beyond = None
        if int(first.max(initial=0)) + (window - 1) * self.num_envs >= newest:
            last = (first % self.num_envs + newest)[:, None]
            beyond = chain > last
            chain = np.minimum(chain, last)
        places = np.ascontiguousarray(chain[:, :-1])
        masks = self._flat_masks.take(chain, mode="wrap")
        real = masks[:, 1:] == 1.0
        if beyond is not None:
            real &= places < last
            masks[beyond] = 0.0
        ending = places if window == 2 or not ends else _ends(places, real, step=self.num_envs)
        for key in self.flat if keys is None else keys:
            if key == self._mask_key:
                put(out, key, masks[:, :-1])
            else:
                self._gather(key, ending if ends and key.startswith(OBSERVATIONS) else places, out)
        put(out, WEIGHTS, real, dtype=np.float32)

    def _gather(self, key: str, places: Array, out: Batch) -> None:
        flat = self.flat[key]
        if key in self._stacked:
            places = frame_places(places, self._flat_masks, step=self.num_envs, stack=self._stack)
        target = out.get(key)
        if target is None:
            out[key] = target = np.empty((*places.shape, *flat.shape[1:]), flat.dtype)
        # With a mode other than "raise" numpy writes into `out` without a copy in between.
        flat.take(places, axis=0, out=target, mode="wrap")

    def _offsets_of(self, count: int) -> Array:
        found = self._offsets.get(count)
        if found is None:
            found = self._offsets[count] = np.arange(count) * self.num_envs
        return found

    def _open(self, chunk: Mapping[str, Array]) -> None:
        """Write what the stacks of the very first row hold of frames before it, as rows that lead up to it."""
        if self.history:
            self.masks[: self.history] = 1.0
            for key in self._stacked:
                self.arrays[key][: self.history] = chunk[key][:, 0, :-1].swapaxes(0, 1)

    def _stacks_at_head(self, key: str) -> Array:
        places = np.arange(self.num_envs) + (self.head * self.num_envs - self.base)
        wanted = frame_places(places, self._flat_masks, step=self.num_envs, stack=self._stack)
        return self.flat[key].take(wanted, axis=0, mode="wrap")

    def _draw_rare(self, size: int, rng: np.random.Generator) -> Array:
        starts = np.flatnonzero(self.real_rows(self.low, self.head - self.low)) + self.low * self.num_envs
        return starts[rng.integers(len(starts), size=size)]

    def _count(self, first: int, last: int) -> int:
        """Return how many masks of rows `first` to `last` are 1."""
        pieces = self.runs(first, last - first + 1)
        return sum(int((self.masks[run.place : run.place + run.length] == 1.0).sum()) for run in pieces)


def _ends(places: Array, real: Array, *, step: int) -> Array:
    """Return the first place of each window and the one that the real transitions from there on lead to, `[B, 2]`."""
    steps = places.shape[1] - 1
    inner = real[:, :steps]
    count = np.where(inner.all(axis=1), steps, inner.argmin(axis=1))
    found = np.empty((len(places), 2), np.int64)
    found[:, 0] = places[:, 0]
    found[:, 1] = places[:, 0] + count * step
    return found
