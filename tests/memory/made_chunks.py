"""Streams of chunks as explorers give them, and a memory that simply keeps every row: what a ring has to agree with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from digideep.types import Chunk, ChunkMeta

Array = np.ndarray[Any, Any]


class Stream:
    """Chunks of `num_envs` environments; the observation of row g of environment e is 100,000 * e + g.

    Episodes end at random; with `breaks` an environment may also begin anew between two chunks, as after a resume
    without its state: the row that the next chunk begins with is then another one than the last, with mask 0.
    """

    def __init__(self, *, num_envs: int = 3, steps: int = 4, seed: int = 0, breaks: float = 0.0) -> None:
        self.num_envs, self.steps, self._breaks = num_envs, steps, breaks
        self._rng = np.random.default_rng(seed)
        self._row = 0
        self._last: dict[str, Array] | None = None

    def chunk(self) -> Chunk:
        """Return the next chunk, in arrays of its own."""
        rows = (self.steps + 1, self.num_envs)
        numbers = self._row + np.arange(self.steps + 1)
        slab = {
            "/observations/observation": (1000 * np.arange(self.num_envs) + numbers[:, None]).astype(np.float32)[
                ..., None
            ],
            "/observations/image": (numbers[:, None, None, None] % 251 + np.zeros((*rows, 2, 3))).astype(np.uint8),
            "/masks": (self._rng.random(rows) < 0.8).astype(np.float32),
            "/rewards": self._rng.standard_normal(rows).astype(np.float32),
            "/agents/agent/actions": self._rng.integers(5, size=rows),
        }
        if self._last is None:
            slab["/masks"][0] = 0.0
        else:
            broken = self._rng.random(self.num_envs) < self._breaks
            for key in ("/observations/observation", "/observations/image", "/masks"):
                slab[key][0] = self._last[key]
            slab["/observations/observation"][0][broken] += 0.5
            slab["/masks"][0][broken] = 0.0
        self._last = {key: array[-1].copy() for key, array in slab.items()}
        self._row += self.steps
        return Chunk({key: array.swapaxes(0, 1) for key, array in slab.items()}, ChunkMeta(0, 0, 0, 0))


class Window(NamedTuple):
    """One window of one environment, as a list of rows."""

    env: int
    first: int
    observations: list[float]
    masks: list[float]
    weights: list[float]


class EveryRow:
    """Keeps all rows in lists; what a memory of `rows` rows an environment gives is worked out row by row."""

    def __init__(self, *, num_envs: int, rows: int) -> None:
        self._rows = rows
        self._observations: list[list[float]] = [[] for _ in range(num_envs)]
        self._masks: list[list[float]] = [[] for _ in range(num_envs)]

    def store(self, chunk: Chunk) -> None:
        for env, (observations, masks) in enumerate(zip(self._observations, self._masks, strict=True)):
            del observations[-1:], masks[-1:]  # the chunk begins with what is known of this row
            observations += chunk.arrays["/observations/observation"][env, :, 0].tolist()
            masks += chunk.arrays["/masks"][env].tolist()

    def windows(self, length: int) -> dict[tuple[int, int], Window]:
        """Return every window that may be drawn, by environment and first row."""
        found = {}
        for env, (observations, masks) in enumerate(zip(self._observations, self._masks, strict=True)):
            newest = len(masks) - 1
            for first in range(max(0, len(masks) - self._rows), newest):
                if masks[first + 1] != 1.0:
                    continue
                rows = range(first, first + length)
                found[env, first] = Window(
                    env,
                    first,
                    [observations[min(row, newest)] for row in rows],
                    [masks[row] if row <= newest else 0.0 for row in rows],
                    [float(row < newest and masks[row + 1] == 1.0) for row in rows],
                )
        return found


class Pictures:
    """Chunks whose observations are stacks of the last `stack` pictures, the first of an episode in all places.

    Args:
        breaks: how likely an environment begins anew between two chunks.
        opens: whether the very first row opens episodes; else it stands in the middle of some.
    """

    def __init__(
        self,
        *,
        num_envs: int = 3,
        steps: int = 4,
        stack: int = 4,
        seed: int = 0,
        breaks: float = 0.0,
        opens: bool = True,
        shape: tuple[int, ...] = (2, 3),
    ) -> None:
        self.num_envs, self.steps, self.stack, self._breaks = num_envs, steps, stack, breaks
        self._rng = np.random.default_rng(seed)
        self._shape = shape
        self._stacks = self._rng.integers(256, size=(num_envs, stack, *shape), dtype=np.uint8)
        self._masks = np.ones(num_envs, np.float32)
        if opens:
            self._push(np.zeros(num_envs, bool))

    def chunk(self) -> Chunk:
        """Return the next chunk, in arrays of its own."""
        rows = (self.steps + 1, self.num_envs)
        slab = {
            "/observations/observation": np.empty((*rows, *self._stacks.shape[1:]), np.uint8),
            "/masks": np.empty(rows, np.float32),
            "/rewards": self._rng.standard_normal(rows).astype(np.float32),
            "/agents/agent/actions": self._rng.integers(5, size=rows),
        }
        for row in range(self.steps + 1):
            if row > 0:
                self._push(self._rng.random(self.num_envs) < 0.8)
            elif self._breaks:
                self._push(np.ones(self.num_envs, bool), where=self._rng.random(self.num_envs) < self._breaks)
            slab["/observations/observation"][row], slab["/masks"][row] = self._stacks, self._masks
        return Chunk({key: array.swapaxes(0, 1) for key, array in slab.items()}, ChunkMeta(0, 0, 0, 0))

    def _push(self, goes_on: Array, *, where: Array | None = None) -> None:
        """Show the next picture, as the next of an episode or as the first; with `where` the first, only there."""
        fresh = self._rng.integers(256, size=(self.num_envs, *self._shape), dtype=np.uint8)
        opens = ~goes_on if where is None else where
        if where is None:
            self._stacks = np.concatenate((self._stacks[:, 1:], fresh[:, None]), axis=1)
            self._masks = goes_on.astype(np.float32)
        self._stacks[opens] = fresh[opens][:, None]
        self._masks[opens] = 0.0
