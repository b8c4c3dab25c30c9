"""Where the rows of a memory lie: arrays in memory, or in a file that leaves nothing behind.

The file is reserved whole before anything is written, since a mapped file on a full disk ends the process without an
exception; it has no name, so that every kind of end removes it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.errors import StorageError, UsageError, one_line
from digideep.memory.room import check_directory, check_memory, shown_bytes

__all__ = ["Field", "fields_of", "on_disk", "in_memory", "row_bytes"]

Array: TypeAlias = np.ndarray[Any, Any]

_ZEROS = bytes(1 << 20)


class Field(NamedTuple):
    """What one row of all environments holds under one key: `[N, ...]`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Return the bytes of one row."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def fields_of(arrays: Mapping[str, Array]) -> dict[str, Field]:
    """Return the fields of a chunk's arrays `[N, T+1, ...]`."""
    return {key: Field((len(array), *array.shape[2:]), array.dtype) for key, array in arrays.items()}


def row_bytes(fields: Mapping[str, Field]) -> int:
    """Return the bytes of one row of all environments."""
    return sum(field.nbytes for field in fields.values())


def in_memory(fields: Mapping[str, Field], rows: int, *, where: str) -> dict[str, Array]:
    """Return arrays `[rows, N, ...]` of zeros in memory; pages are taken when they are first written.

    Raises:
        UsageError: the machine, or the control group of this process, has not that much.
    """
    needed = rows * row_bytes(fields)
    check_memory(needed, where=where)
    try:
        return {key: np.zeros((rows, *field.shape), field.dtype) for key, field in fields.items()}
    except MemoryError:
        raise UsageError(
            f"{where}/capacity: expected what the system grants, found {needed / 1e9:.1f} GB, which it refuses; "
            f"lower it, or set {where}/on_disk"
        ) from None


def on_disk(fields: Mapping[str, Field], rows: int, *, directory: Path, where: str) -> dict[str, Array]:
    """Return arrays `[rows, N, ...]` of zeros in a nameless file below `directory`, whose space is reserved.

    Raises:
        UsageError: there is no such directory.
        StorageError: the file system refuses the file or has no room for it.
    """
    check_directory(directory, where=where)
    starts: dict[str, int] = {}
    size = 0
    for key, field in fields.items():
        starts[key] = size
        size += -(-rows * field.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    free = _free_bytes(directory)
    try:
        if free is not None and free < size:  # asking for it all would fill the disk for a moment
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        descriptor = _nameless(directory)
        try:
            _reserve(descriptor, size)
            content = mmap.mmap(descriptor, max(size, 1))
        finally:
            os.close(descriptor)
    except OSError as error:
        told = "" if free is None else f" ({shown_bytes(free)} free)"
        raise StorageError(
            f"{where}/on_disk: expected room for {shown_bytes(size)} below {one_line(directory)}, found "
            f"{error.strerror}{told}; lower {where}/capacity or name another directory"
        ) from error
    return {
        key: np.frombuffer(content, field.dtype, rows * field.nbytes // field.dtype.itemsize, starts[key]).reshape(
            rows, *field.shape
        )
        for key, field in fields.items()
    }


def _nameless(directory: Path) -> int:
    """Return a file without a name: nothing has to be removed, whatever ends this process."""
    flags = os.O_RDWR | os.O_CLOEXEC
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):  # not every file system has it
            return os.open(directory, flags | os.O_TMPFILE, 0o600)
    descriptor, name = tempfile.mkstemp(prefix=".memory-", dir=directory)
    os.unlink(name)
    return descriptor


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, max(size, 1))
        return
    left = size
    while left > 0:
        left -= os.write(descriptor, _ZEROS[:left])


def _free_bytes(directory: Path) -> int | None:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None
