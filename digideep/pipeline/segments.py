"""Segments in a checkpoint: how their files are called, and where their copies wait to be written.

A large memory is cut into segments that stay as they are for long. Each has a file of its own,
`<component>.<segment>.safetensors`, which is written and hashed once; later checkpoints hold a second name of the same
file. `state.json` keeps, where the segments were in the state, `{"$segments": [names in order]}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from digideep.errors import CheckpointError, one_line
from digideep.pipeline.fsio import Stamp, Written
from digideep.types import Segment
from digideep.utility.codec import DTYPES, CodecError

__all__ = ["COPIED_BYTES", "KeptBuffers", "Known", "contiguous", "names_in", "put_names", "segment_file", "total_bytes"]

COPIED_BYTES = 1 << 30  # of new segments in one save; beyond this a second copy may be more than the machine has

_SEGMENT = re.compile(r"[a-z0-9-]{1,64}")
_TAG = "$segments"
_ALIGNMENT = 64
_LEAST_ARENA = 1 << 20
_SAVES = 3  # that are looked back on before memory is given back


class Known(NamedTuple):
    """A segment's file that stands in a checkpoint: where, what it holds, and whether that is surely on the device."""

    path: Path
    record: Written
    stamp: Stamp
    is_durable: bool


def segment_file(component: str, segment: str) -> str:
    """Return the name of the file of a segment.

    Raises:
        CodecError: the segment's name is none.
    """
    if not isinstance(segment, str) or not _SEGMENT.fullmatch(segment):
        found = one_line(repr(segment), limit=80)
        raise CodecError(f"{component}: expected segments named by a-z, 0-9 and '-', found {found}; rename them")
    return f"{component}.{segment}.safetensors"


def put_names(value: Any, names: Mapping[str, Sequence[str]], *, where: str) -> None:
    """Put the names of segments into the encoded state `value`, at the keys they were taken from.

    Raises:
        CodecError: a key has no place in JSON.
    """
    for key, found in names.items():
        if not isinstance(value, dict) or key not in value:
            raise CodecError(one_line(f"{where}: expected segments under a plain text key, found {key!r}; rename it"))
        value[key] = {_TAG: list(found)}


def names_in(value: Any) -> dict[str, list[str]]:
    """Return the names of segments by key of an encoded state.

    Raises:
        CheckpointError: something else stands in their place.
    """
    if not isinstance(value, dict):
        return {}
    found = {key: entry[_TAG] for key, entry in value.items() if isinstance(entry, dict) and set(entry) == {_TAG}}
    for key, names in found.items():
        if not isinstance(names, list) or not all(isinstance(name, str) and _SEGMENT.fullmatch(name) for name in names):
            raise CheckpointError(one_line(f"expected names of segments under {key!r}, found something else"))
    return found


def total_bytes(segment: Segment, *, where: str) -> int:
    """Return the size of the arrays of a segment.

    Raises:
        CodecError: one has a name or a dtype that cannot be stored.
    """
    for name, array in segment.arrays.items():
        if type(name) is not str or name == "__metadata__" or array.dtype.name not in DTYPES:
            raise CodecError(
                one_line(f"{where}: expected arrays of known dtypes in a segment, found {name!r} of {array.dtype}")
            )
    return sum(array.nbytes for array in segment.arrays.values())


def contiguous(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays in one piece each and in native byte order; those that are so already are not copied."""
    return {name: array.astype(array.dtype.newbyteorder("="), order="C", copy=False) for name, array in arrays.items()}


class KeptBuffers:
    """Memory that the state is copied into, kept from save to save: touching fresh memory takes longer than copying.

    Attributes:
        arrays: by component and name, for `codec.encode`.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, dict[str, np.ndarray]] = {}
        self._arenas: list[np.ndarray] = []
        self._arena = 0  # the one in use
        self._offset = 0
        self._taken = 0  # bytes of segments since `begin`
        self._lately: tuple[int, ...] = ()  # what the last saves took
        self._expected: Mapping[str, Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]] = {}

    @property
    def segment_bytes(self) -> int:
        """How much is kept for segments."""
        return sum(arena.nbytes for arena in self._arenas)

    def begin(self) -> None:
        """Let all copies of segments go: what they were made for is over."""
        self._arena = self._offset = self._taken = 0

    def reserve(self, count: int) -> None:
        """Make sure that `count` bytes of segments fit; what is new is one piece, which a large page can back."""
        lacking = count - self.segment_bytes
        if lacking > 0:
            self._arenas.append(np.empty(max(lacking, _LEAST_ARENA), np.uint8))

    def copy(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return copies of the arrays of a segment, contiguous and in native byte order."""
        return {name: self._copy(array) for name, array in arrays.items()}

    def _copy(self, array: np.ndarray) -> np.ndarray:
        dtype = array.dtype.newbyteorder("=")
        place = self._take(array.nbytes).view(dtype).reshape(array.shape)
        np.copyto(place, array)
        return place

    def _take(self, count: int) -> np.ndarray:
        while self._arena < len(self._arenas):
            arena, begin = self._arenas[self._arena], self._offset
            if begin + count <= arena.nbytes:
                self._offset = begin + count + -count % _ALIGNMENT
                self._taken += self._offset - begin
                return arena[begin : begin + count]
            self._arena, self._offset = self._arena + 1, 0
        self._arenas.append(np.empty(max(count, _LEAST_ARENA), np.uint8))
        return self._take(count)

    def expect(self, layout: Mapping[str, Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]]) -> None:
        """Note shapes and dtypes by component and name, so that `touch` can make room for such arrays."""
        self._expected = layout

    def touch(self) -> None:
        """Make room for what is expected and for a quarter more segments than the last time, in a thread with time.

        What is more than twice what the last three saves took is given back: one large save is no reason to keep it.
        """
        for component, layout in self._expected.items():
            kept = self.arrays.setdefault(component, {})
            kept.update({name: np.full(shape, 0, dtype) for name, (shape, dtype) in layout.items()})
        self._expected = {}
        self._lately = (*self._lately, self._taken)[-_SAVES:]
        if len(self._lately) == _SAVES and self.segment_bytes > 2 * max(self._lately) + _LEAST_ARENA:
            self._arenas.clear()
            self._arena = self._offset = 0
        lacking = self._taken + self._taken // 4 - self.segment_bytes
        if lacking > 0:
            self._arenas.append(np.full(max(lacking, _LEAST_ARENA), 0, np.uint8))
