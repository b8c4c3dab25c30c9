"""The memory of off-policy methods: the newest transitions of all environments, in memory or on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.errors import CheckpointError, ConfigError, DigideepError, ShapeError, UsageError, one_line
from digideep.memory.base import Memory, check_chunk, check_keys, put
from digideep.memory.blocks import Blocks, Geometry, block_rows
from digideep.memory.config import RingBufferConfig
from digideep.memory.frames import frame_fields
from digideep.memory.ring import Ring
from digideep.memory.storage import Field, fields_of, in_memory, on_disk, row_bytes
from digideep.types import Batch, Chunk, LiveSegments, SampleSpec, Segment, StateDict
from digideep.utility.differences import check_parts

__all__ = ["Cursor", "RingBuffer"]

Array: TypeAlias = np.ndarray[Any, Any]


class Cursor(NamedTuple):
    """Where a ring stands: how its rows lie, how many were written since the beginning, and in how many chunks.

    `frame_stack` is the number of frames in each observation, of which rows hold one; 0 where they hold all of it.
    """

    num_envs: int
    rows: int
    block: int
    total: int
    generation: int
    frame_stack: int = 0


class RingBuffer(Memory):
    """Keeps the newest `capacity` transitions, raw and in their own types, and draws from them uniformly.

    Each environment has `capacity // N + 1` rows, written one after the other and round again. Chunks overlap by one
    row, which lies there once, so that the successor of every transition is the row that followed it. A row at which an
    episode begins takes up the room of a transition without being one.

    With `frame_stack` a row holds the newest frame of each observation alone, and there are `frame_stack - 1` rows
    more, which no window begins with: the oldest stacks begin there.

    Args:
        config: how much is kept, and where.
        name: what error messages call this memory.
    """

    def __init__(self, config: RingBufferConfig, *, name: str) -> None:
        self._config = config
        self._name = name
        self._where = f"/memory/{name}"
        self._fields: dict[str, Field] = {}
        self._blocks: Blocks | None = None
        self._chunk: Chunk | None = None  # not part of the state: its rows are
        self._generation = 0

    def __len__(self) -> int:
        """Return how many real transitions can be drawn."""
        return 0 if self._blocks is None else self._blocks.ring.real

    def check_windows(self, n_step: int, *, num_envs: int) -> None:
        """Refuse a capacity at which no environment ever has `n_step` transitions in a row: each window would be cut.

        Raises:
            ConfigError: it is such a one.
        """
        if self._config.capacity // num_envs < n_step:
            raise ConfigError(
                f"{self._where}/capacity: expected at least n_step transitions of each environment, "
                f"{n_step * num_envs}, found {self._config.capacity}; raise it, or lower n_step or num_envs"
            )

    def reserve(self, arrays: Mapping[str, Array], *, directory: Path | None = None) -> None:
        """Make room for all rows; `directory` is where a file lies that the configuration gives no place.

        Raises:
            UsageError: the machine has less memory, the directory does not exist, or one chunk is more than is kept.
            StorageError: the disk has less space.
        """
        check_chunk(arrays, mask_key=self.mask_key, name=self._name)
        num_envs, steps = arrays[self.mask_key].shape
        if self._blocks is None or steps > self._blocks.ring.rows - self._blocks.ring.history:
            self._config.check_room(num_envs=num_envs, n_steps=steps - 1, where=self._where)
        fields = frame_fields(fields_of(arrays), self._config.frame_stack, where=self._where)
        if self._blocks is None:
            self._blocks = self._allocate(fields, directory)
        elif fields != self._fields:
            self._refuse_fields(fields)

    def store(self, chunk: Chunk) -> None:
        """Copy the rows of a chunk over the oldest ones.

        Raises:
            ShapeError: its arrays do not agree on `[N, T+1, ...]`, or are others than those of the chunks before.
            ConfigError: an observation is not made of the frames that it has to be made of with `frame_stack`.
            UsageError, StorageError: as `reserve`, at the first chunk.
        """
        self.reserve(chunk.arrays)
        assert self._blocks is not None
        self._check_stacks(self._blocks.ring, chunk)
        self._blocks.written(self._blocks.ring.append(chunk.arrays))
        self._chunk = chunk
        self._generation += 1

    def last_chunk(self) -> Chunk:
        """Return the newest chunk.

        Raises:
            DigideepError: nothing was stored since this memory was made or loaded.
        """
        if self._chunk is None:
            raise DigideepError(f"memory {self._name!r}: expected a chunk, found none; store one first")
        return self._chunk

    def sample(self, spec: SampleSpec, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """Return windows that begin with real transitions, each equally likely, drawn with replacement.

        `/indices` are `row * N + environment`, rows counted since the beginning; `/generations` is the number of chunks
        stored so far. Rows beyond the newest one repeat it, with mask 0 and weight 0.

        Raises:
            DigideepError: there is no real transition.
        """
        ring = self._ring()
        return self._windows(ring, ring.draw(spec.batch_size, rng), spec, out)

    def state_dict(self) -> StateDict:
        """Return the cursor, and the rows in blocks, each under a name that tells its content apart.

        The blocks are views of this memory, valid until it stores again. All but the newest one are what they were at
        the save before, unless they were overwritten since.
        """
        if self._blocks is None:
            cursor = Cursor(0, 0, 1, 0, self._generation, self._config.frame_stack)
            return {"cursor": dict(cursor._asdict()), "segments": LiveSegments(())}
        rows, block, total = self._blocks.geometry
        num_envs = self._blocks.ring.num_envs
        cursor = Cursor(num_envs, rows, block, total, self._generation, self._config.frame_stack)
        return {"cursor": dict(cursor._asdict()), "segments": self._blocks.segments()}

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned, block by block; the next thing to come is a chunk.

        With another capacity than the one that was saved the newest rows are kept, as many as fit.

        Raises:
            UsageError: it was saved with another number of environments, or another `frame_stack`.
            CheckpointError: its arrays are others, or its blocks do not hold the rows that the cursor says.
        """
        advice = f"was /memory/{self._name}/type changed?"
        check_parts(state, ("cursor", "segments"), where=f"memory.{self._name}", advice=advice)
        cursor, segments = Cursor(**state["cursor"]), state["segments"]
        if cursor.frame_stack != self._config.frame_stack:
            raise UsageError(
                f"{self._where}/frame_stack: expected {cursor.frame_stack} as in the checkpoint, "
                f"found {self._config.frame_stack}; start a new session with init_from for another number"
            )
        self._chunk = None
        self._generation = cursor.generation
        stored = Geometry(cursor.rows, cursor.block, cursor.total)
        if len(segments) != stored.stored:
            raise CheckpointError(f"memory.{self._name}: expected {stored.stored} blocks, found {len(segments)}")
        if stored.total == 0:
            if self._blocks is not None:
                self._blocks.settle(stored, ())
            return
        for block, segment in enumerate(segments):
            blocks = self._blocks_for(segment)
            self._check_segment(segment, num_envs=cursor.num_envs, rows=len(stored.places(block)))
            blocks.restore(segment, stored, block)
        self._blocks_for(segment).settle(stored, segments.names)

    def _allocate(self, fields: dict[str, Field], directory: Path | None) -> Blocks:
        num_envs, stack = fields[self.mask_key].shape[0], self._config.frame_stack
        rows = self._config.capacity // num_envs + 1 + max(0, stack - 1)
        place = self._config.on_disk
        if place is False:
            arrays = in_memory(fields, rows, where=self._where)
        else:
            below = directory if place is True else Path(str(place))
            if below is None:
                raise ConfigError(
                    f"{self._where}/on_disk: expected a directory, since there is no session, found true; name one"
                )
            arrays = on_disk(fields, rows, directory=below, where=self._where)
        self._fields = fields
        block = block_rows(rows, row_bytes=row_bytes(fields))
        return Blocks(Ring(arrays, mask_key=self.mask_key, stack=stack), block=block)

    def _ring(self) -> Ring:
        """Return the ring that there is something to draw from."""
        if self._blocks is None or self._blocks.ring.real == 0:
            raise DigideepError(f"memory {self._name!r}: expected real transitions in it, found none")
        return self._blocks.ring

    def _windows(self, ring: Ring, indices: Array, spec: SampleSpec, out: Batch | None) -> Batch:
        """Return the windows that begin at `indices`."""
        if spec.keys is not None:
            check_keys(spec.keys, ring.flat, name=self._name)
        batch: Batch = {} if out is None else out
        window = max(spec.n_step, spec.sequence) + 1
        ring.take(indices, window=window, out=batch, keys=spec.keys, ends=spec.ends)
        put(batch, "/indices", indices)
        put(batch, "/generations", np.full(len(indices), self._generation))
        return batch

    def _check_stacks(self, ring: Ring, chunk: Chunk) -> None:
        bad = ring.bad_stack(chunk.arrays) if self._config.frame_stack else None
        if bad is not None:
            key, env, row = bad
            raise ConfigError(
                f"{self._where}/frame_stack: expected stacks of {self._config.frame_stack} frames under "
                f"{one_line(key)!r}, the newest last and the first of an episode in all places, found another in row "
                f"{row} of environment {env}; set it to 0"
            )

    def _refuse_fields(self, fields: Mapping[str, Field]) -> None:
        key = _first_difference(self._fields, fields)
        if key is not None:
            raise ShapeError(
                f"memory {self._name!r}: expected {_shown(self._fields.get(key))} of each chunk under {key!r}, "
                f"found {_shown(fields.get(key))}"
            )

    def _blocks_for(self, segment: Segment) -> Blocks:
        """Return the blocks of this memory; without chunks so far, made for rows like those of a stored block."""
        if self._blocks is None:
            fields = _stored_fields(segment)
            if self.mask_key not in fields or len(fields[self.mask_key].shape) != 1:
                raise CheckpointError(
                    f"memory.{self._name}/{segment.name}: expected the key {self.mask_key!r}, found {sorted(fields)}"
                )
            self._blocks = self._allocate(fields, None)
        return self._blocks

    def _check_segment(self, segment: Segment, *, num_envs: int, rows: int) -> None:
        where, fields = f"memory.{self._name}/{segment.name}", _stored_fields(segment)
        own = self._fields[self.mask_key].shape[0]
        if num_envs != own:
            raise UsageError(
                f"{self._where}: expected {num_envs} environments as in the checkpoint, found {own}; "
                f"start a new session with init_from for another number"
            )
        key = _first_difference(self._fields, fields)
        if key is not None:
            raise CheckpointError(
                f"{where}: expected {_shown(self._fields.get(key))} under {key!r}, found {_shown(fields.get(key))}; "
                f"is it the same environment?"
            )
        lengths = {len(array) for array in segment.arrays.values()}
        if lengths != {rows}:
            raise CheckpointError(f"{where}: expected {rows} rows, found {sorted(lengths)}")


def _stored_fields(segment: Segment) -> dict[str, Field]:
    return {key: Field(array.shape[1:], array.dtype) for key, array in segment.arrays.items()}


def _first_difference(expected: Mapping[str, Field], found: Mapping[str, Field]) -> str | None:
    return min((k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k)), default=None)


def _shown(field: Field | None) -> str:
    return "nothing" if field is None else f"{field.shape} {field.dtype}"
