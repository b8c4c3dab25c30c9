"""A ring cut into blocks of neighbouring rows: what has not changed since the last save is saved by its name alone."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.memory.ring import Ring, Run
from digideep.types import LiveSegments, Segment

__all__ = ["Blocks", "Geometry", "block_rows", "stored_runs"]

Array: TypeAlias = np.ndarray[Any, Any]

_BLOCK_BYTES = 400 << 10  # so that two of them, the one just completed and the next, are less than a megabyte
_LEAST_BYTES = 4 << 10
_FEW, _MANY = 8, 1000  # blocks of a small memory, so that it too is saved in parts; and the most that there may be


class Geometry(NamedTuple):
    """How rows lie: `rows` places, in blocks of `block` of them, of which `total` were written since the beginning."""

    rows: int
    block: int
    total: int

    @property
    def stored(self) -> int:
        """Return how many blocks hold rows."""
        return -(-min(self.rows, self.total) // self.block)

    @property
    def open(self) -> int:
        """Return the block of the newest row, which the next chunk completes; -1 where there is none."""
        return (self.total - 1) % self.rows // self.block if self.total else -1

    def places(self, block: int) -> range:
        """Return the places of a block that hold rows."""
        return range(block * self.block, min((block + 1) * self.block, self.rows, self.total))

    def number(self, block: int) -> int:
        """Return the number, counted since the beginning, of the block that lies there."""
        laps = max(self.total - 1, 0) // self.rows - (block > self.open)
        return laps * -(-self.rows // self.block) + block


class Blocks:
    """The blocks of one ring, and the names of those that are complete.

    A name is a block's number and a checksum of its content: a ring that began anew, or was laid out in another way,
    never gives a name of before to other rows.
    """

    def __init__(self, ring: Ring, *, block: int) -> None:
        self.ring = ring
        self._block = block
        self._names: dict[int, str] = {}

    @property
    def geometry(self) -> Geometry:
        """Return how the rows lie now."""
        return Geometry(self.ring.rows, self._block, self.ring.total)

    def written(self, runs: Iterable[Run]) -> None:
        """Take note of rows that were written: blocks that are complete by now get their names."""
        geometry = self.geometry
        for run in runs:
            for block in range(run.place // self._block, (run.place + run.length - 1) // self._block + 1):
                self._names.pop(block, None)
                # Here and not at a save, which training waits for.
                if block != geometry.open:
                    self._names[block] = self._name(geometry, block)

    def segments(self) -> LiveSegments:
        """Return every block as a segment, in the order in which they lie."""
        geometry = self.geometry
        found = []
        for block in range(geometry.stored):
            name = self._names.get(block) or self._name(geometry, block)
            found.append(Segment(name, self._views(geometry, block)))
        return LiveSegments(found)

    def restore(self, segment: Segment, stored: Geometry, block: int) -> None:
        """Copy the rows of a stored block that fit into the ring to where they belong."""
        first, shift = self._first(stored), self._shift(stored)
        for run in stored_runs(stored, block):
            skipped = max(0, first - run.first)
            for piece in self.ring.runs(run.first + skipped - shift, run.length - skipped):
                offset = run.place + piece.first + shift - run.first
                source, target = slice(offset, offset + piece.length), slice(piece.place, piece.place + piece.length)
                for key, array in segment.arrays.items():
                    self.ring.arrays[key][target] = array[source]

    def settle(self, stored: Geometry, names: Iterable[str]) -> None:
        """Take over where the stored ring stood, after all its blocks were restored; they had these names."""
        self.ring.restored(stored.total - self._shift(stored))
        geometry = self.geometry
        kept = names if self._is_as(stored) else (self._name(geometry, block) for block in range(geometry.stored))
        self._names = dict(enumerate(kept))  # that of the open block until the next chunk completes its newest row

    def kept(self, stored: Geometry) -> tuple[int, int]:
        """Return which stored row is the oldest one that fits, and what the rows are renumbered by."""
        return self._first(stored), self._shift(stored)

    def _is_as(self, stored: Geometry) -> bool:
        return (self.ring.rows, self._block) == (stored.rows, stored.block)

    def _first(self, stored: Geometry) -> int:
        """Return the number of the oldest stored row that fits."""
        return max(0, stored.total - min(stored.rows, self.ring.rows))

    def _shift(self, stored: Geometry) -> int:
        """Return what rows are renumbered by: nothing in the same layout; in another the oldest one becomes row 0."""
        return 0 if self._is_as(stored) else self._first(stored)

    def _views(self, geometry: Geometry, block: int) -> dict[str, Array]:
        places = geometry.places(block)
        return {key: array[places.start : places.stop] for key, array in self.ring.arrays.items()}

    def _name(self, geometry: Geometry, block: int) -> str:
        checksum = 0
        for _, view in sorted(self._views(geometry, block).items()):
            checksum = zlib.crc32(view.reshape(-1).view(np.uint8).data, checksum)
        return f"{geometry.number(block):08d}-{checksum:08x}"


def block_rows(rows: int, *, row_bytes: int) -> int:
    """Return how many rows make a block: about 400 kB, fewer in a small memory, more in a huge one."""
    size = min(_BLOCK_BYTES, max(_LEAST_BYTES, rows * row_bytes // _FEW))
    return max(1, size // max(row_bytes, 1), -(-rows // _MANY))


def stored_runs(geometry: Geometry, block: int) -> Iterator[Run]:
    """Yield which rows a stored block holds: rows of this lap and, in the open block, rows of the lap before.

    `place` counts from the beginning of the block.
    """
    places = geometry.places(block)
    newest = geometry.total - 1
    lap, head = divmod(newest, geometry.rows)
    split = min(max(head + 1, places.start), places.stop)
    for start, stop, laps in ((places.start, split, lap), (split, places.stop, lap - 1)):
        if stop > start:
            yield Run(laps * geometry.rows + start, start - places.start, stop - start)
