"""Prioritised replay: transitions of which there is more to learn are drawn more often.

Source: Schaul et al. 2016, arXiv:1511.05952, the proportional variant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.errors import CheckpointError, NonFiniteError, NumbersError, ShapeError
from digideep.memory.base import IMPORTANCE, put
from digideep.memory.blocks import Blocks, Geometry
from digideep.memory.config import PrioritizedBufferConfig
from digideep.memory.ring import Ring
from digideep.memory.ringbuffer import RingBuffer
from digideep.memory.room import PRIORITY_BYTES, check_memory
from digideep.memory.storage import Field
from digideep.memory.sumtree import SumTree
from digideep.types import Batch, Chunk, SampleSpec, StateDict
from digideep.utility.differences import check_parts

__all__ = ["PrioritizedBuffer"]

Array: TypeAlias = np.ndarray[Any, Any]

_GREATEST = 1e200  # priority: the sum of as many as fit into memory is finite then


class _Span(NamedTuple):
    """The oldest row that could be drawn, and the newest row, before a chunk was stored."""

    low: int
    head: int


class PrioritizedBuffer(RingBuffer):
    """A ring that is drawn from in proportion to priorities, which lie in memory wherever the rows do.

    A transition that was never drawn has the greatest priority that was given so far, 1.0 at first, so that each is
    likely to be drawn once. Priorities are final: exponents are the agent's.

    Args:
        config: how much is kept, and where.
        name: what error messages call this memory.
    """

    def __init__(self, config: PrioritizedBufferConfig, *, name: str) -> None:
        super().__init__(config, name=name)
        self._tree = SumTree(0)
        self._greatest = 1.0
        self._since = 0  # generation of the load, before which indices named other rows; a sample belongs to one run

    def store(self, chunk: Chunk) -> None:
        """Copy the rows of a chunk over the oldest ones, and their priorities away.

        Raises:
            ShapeError, ConfigError, UsageError, StorageError: as that of a ring.
        """
        ring = None if self._blocks is None else self._blocks.ring
        before = _Span(0, -1) if ring is None else _Span(ring.low, ring.head)
        super().store(chunk)
        assert self._blocks is not None
        self._follow(self._blocks.ring, before)

    def sample(self, spec: SampleSpec, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """Return windows that begin with real transitions, drawn in proportion to their priorities.

        The sum of all priorities is cut into `batch_size` equal parts, and one transition is drawn from each, so that
        a batch is in the order in which the rows lie. With `spec.beta` there are `/importance` weights `[B]`,
        (1 / (n P))^beta divided by the greatest of the batch, where `P` is how likely a transition is and `n` how many
        there are.

        Where no transition has a priority above 0 there is nothing to tell them apart: then each is equally likely, in
        no order, and all weights are 1.

        Raises:
            DigideepError: there is no real transition.
        """
        ring = self._ring()
        places = self._tree.draw(spec.batch_size, rng)
        priorities = self._tree.leaves.take(places)
        least = priorities.min()
        if least == 0.0:
            return self._equally_likely(spec, rng, out)
        batch = self._windows(ring, ring.indices_at(places), spec, out)
        if spec.beta is None:
            batch.pop(IMPORTANCE, None)  # of a draw before
        else:
            # What n and the sum of all priorities do to a weight, they do to the greatest one too.
            weights = (least / priorities) ** spec.beta
            put(batch, IMPORTANCE, weights, dtype=np.float32)
        return batch

    def update_priorities(self, indices: Array, values: Array, generation: Array) -> None:
        """Set the priorities of sampled windows; those that were overwritten since, or are no longer real, are left.

        Args:
            indices: `[B]`, as a batch has them; of one that comes more than once, the last value counts.
            values: `[B]`, of at least 0: 0 is not drawn as long as another one has more.
            generation: `[B]`, as the batch has them.

        Raises:
            ShapeError: there are not as many values as indices.
            NonFiniteError, NumbersError: a value is not finite, or negative; nothing was changed.
        """
        found = np.asarray(values, np.float64)
        indices, generation = np.asarray(indices), np.broadcast_to(generation, np.shape(indices))
        if found.shape != indices.shape or found.ndim != 1:
            raise ShapeError(
                f"memory {self._name!r}: expected as many priorities as indices {indices.shape}, found {found.shape}"
            )
        self._check_values(found)
        if self._blocks is None or len(found) == 0:
            return
        ring = self._blocks.ring
        kept = (indices >= ring.low * ring.num_envs) & (indices < ring.head * ring.num_envs)
        kept &= (generation >= self._since) & (generation <= self._generation)
        kept[kept] = ring.is_real(indices[kept])
        if not kept.all():
            indices, found = indices[kept], found[kept]
        if len(found) > 0:
            self._tree.put(indices % ring.flat_size, found)
            self._greatest = max(self._greatest, float(found.max()))

    def state_dict(self) -> StateDict:
        """Return the cursor and the rows in blocks as a ring does, with all priorities and the greatest one so far."""
        priorities = np.zeros((0, 0))
        if self._blocks is not None:
            ring = self._blocks.ring
            places = min(ring.rows, ring.total)
            priorities = self._tree.leaves[: places * ring.num_envs].reshape(places, ring.num_envs).copy()
        return {**super().state_dict(), "priorities": priorities, "greatest": self._greatest}

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned; with another capacity the newest rows keep their priorities.

        Raises:
            UsageError, CheckpointError: as that of a ring, or the priorities are none.
        """
        advice = f"was /memory/{self._name}/type changed?"
        expected = ("cursor", "segments", "priorities", "greatest")
        check_parts(state, expected, where=f"memory.{self._name}", advice=advice)
        cursor = state["cursor"]
        priorities, greatest = state["priorities"], float(state["greatest"])
        self._check_saved(priorities, greatest, shape=(min(cursor["rows"], cursor["total"]), cursor["num_envs"]))
        super().load_state_dict({"cursor": cursor, "segments": state["segments"]})
        self._greatest, self._since = greatest, self._generation
        if self._blocks is not None:
            stored = Geometry(cursor["rows"], cursor["block"], cursor["total"])
            self._restore(self._blocks, stored, priorities)

    def _equally_likely(self, spec: SampleSpec, rng: np.random.Generator, out: Batch | None) -> Batch:
        batch = super().sample(spec, rng, out)
        if spec.beta is None:
            batch.pop(IMPORTANCE, None)
        else:
            put(batch, IMPORTANCE, np.ones(spec.batch_size), dtype=np.float32)
        return batch

    def _allocate(self, fields: dict[str, Field], directory: Path | None) -> Blocks:
        num_envs = fields[self.mask_key].shape[0]
        check_memory((self._config.capacity + num_envs) * PRIORITY_BYTES, where=self._where, way_out="lower it")
        blocks = super()._allocate(fields, directory)
        self._tree = SumTree(blocks.ring.flat_size)
        return blocks

    def _follow(self, ring: Ring, before: _Span) -> None:
        """Give the transitions of a chunk their priority, and take it from those that are none any more."""
        past = max(before.low, ring.oldest)
        self._set(ring, past, np.zeros((max(0, ring.low - past), ring.num_envs)))
        first = max(before.head - 1, ring.low)
        fresh = np.zeros((ring.total - first, ring.num_envs))
        fresh[:-1] = ring.real_rows(first, len(fresh) - 1) * self._greatest
        if first == before.head - 1:  # an old one, of which the chunk has completed the successor
            place = first % ring.rows * ring.num_envs
            fresh[0] = self._tree.leaves[place : place + ring.num_envs] * (fresh[0] > 0.0)
        self._set(ring, first, fresh)

    def _set(self, ring: Ring, first: int, priorities: Array) -> None:
        """Set the priorities `[R, N]` of rows `first` to `first + R`."""
        for run in ring.runs(first, len(priorities)):
            piece = priorities[run.first - first : run.first - first + run.length]
            self._tree.fill(run.place * ring.num_envs, piece.reshape(-1))

    def _restore(self, blocks: Blocks, stored: Geometry, priorities: Array) -> None:
        ring = blocks.ring
        self._tree.fill(0, np.zeros(ring.flat_size))
        if ring.head <= ring.low:
            return
        _, shift = blocks.kept(stored)
        rows = np.arange(ring.low, ring.head)
        found = priorities[(rows + shift) % stored.rows] * ring.real_rows(ring.low, len(rows))
        self._set(ring, ring.low, found)

    def _check_values(self, values: Array) -> None:
        bad = np.flatnonzero(~((values >= 0.0) & (values <= _GREATEST)))
        if len(bad) > 0:
            value = values[bad[0]]
            kind = NumbersError if np.isfinite(value) else NonFiniteError
            raise kind(
                f"memory {self._name!r}: expected priorities from 0 to {_GREATEST:g}, found {value} at {bad[0]}, "
                f"{len(bad)} such of {len(values)}; none was changed"
            )

    def _check_saved(self, priorities: Any, greatest: float, *, shape: tuple[int, int]) -> None:
        is_sound = isinstance(priorities, np.ndarray) and priorities.dtype == np.float64 and priorities.shape == shape
        numbers = np.append(priorities, greatest) if is_sound else np.array([np.nan])
        if not ((numbers >= 0.0) & (numbers <= _GREATEST)).all():
            raise CheckpointError(
                f"memory.{self._name}: expected priorities {shape} of float64 from 0 to {_GREATEST:g}, found others; "
                f"take another checkpoint"
            )
