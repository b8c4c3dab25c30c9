"""Logs of one JSON object a line: written whole or not at all, read around damage, turned into columns."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from digideep.errors import ShapeError
from digideep.utility.appendfile import AppendFile, open_plain

if TYPE_CHECKING:
    import numpy as np

__all__ = ["JsonlWriter", "columns", "read_rows"]

logger = logging.getLogger(__name__)

_BLOCK = 65536


class JsonlWriter:
    """Appends rows to a file, one compact JSON object a line.

    A full disk or another failure of the file never raises: see AppendFile, whose `failures` are shown here.
    """

    def __init__(self, path: Path | str) -> None:
        self._file = AppendFile(path, whole_length=_length_of_lines)

    @property
    def path(self) -> Path:
        """The file; it is made when the first row is written."""
        return self._file.path

    @property
    def failures(self) -> int:
        """How often the file could not be written."""
        return self._file.failures

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row. Raises ShapeError if it holds anything that JSON lacks, NaN and infinity included."""
        try:
            line = json.dumps(row, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ShapeError(f"{self.path.name}: expected a row of finite plain data, found {error}") from error
        self._file.append(line.encode() + b"\n")

    def flush(self) -> None:
        """Try again to write rows that could not be written."""
        self._file.flush()

    def length(self) -> int:
        """Write out all rows and return the length of the file in bytes."""
        return self._file.length()

    def sync(self) -> int:
        """Make all rows durable and return the length of the file in bytes."""
        return self._file.sync()

    def truncate(self, length: int) -> int:
        """Cut the file to `length` bytes, as a checkpoint knew it; return the length it has. Raises StorageError."""
        return self._file.truncate(length)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _length_of_lines(descriptor: int, size: int) -> int:
    """Return the length up to and with the last newline."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Return the rows of a file; none if there is no file.

    A last line without its end (its writer was killed, or is writing) is left out; other lines that hold no JSON
    object are left out too, with one warning.
    """
    try:
        descriptor = open_plain(path, os.O_RDONLY)
    except FileNotFoundError:
        return []
    rows: list[dict[str, Any]] = []
    damaged = []
    with open(descriptor, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            row = _parse(line)
            if row is None:
                damaged.append(number)
            else:
                rows.append(row)
    if damaged:
        logger.warning("%s: %d lines are no rows and were left out, first line %d", path, len(damaged), damaged[0])
    return rows


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return rows as arrays of one length, `[len(rows)]`, NaN where a row lacks the number.

    Names: `epoch` for `meta/epoch`, and so on (integers stay integers where every row has one). For an entry
    {"num", "mean", "std", "min", "max"} of `data` its name is the mean, and `<name>/std`, `<name>/num`, ... the rest.
    For {"count", "total"} of the profile its name is the total, `<name>/count` the count. Other nested data (machine
    usage) has the path of its keys, list elements by index: `cpu/total`, `cpu/per_cpu/0`, `gpu/0/load`. Where a name
    is used twice, the one that stands in the row itself wins. What is no number is left out.
    """
    import numpy as np

    values: dict[str, list[Any]] = {}
    whole: set[str] = set()  # names of the meta data, which are integers where they can be
    for index, row in enumerate(rows):
        data, meta = _mapping(row.get("data")), _mapping(row.get("meta"))
        found: dict[str, Any] = {**dict(_leaves("", data)), **dict(_headlines(data)), **dict(_leaves("", meta))}
        whole |= meta.keys()
        for name, value in found.items():
            column = values.get(name)
            if column is None:
                column = values[name] = [None] * len(rows)
            column[index] = value
    return {name: _array(np, column, whole=name in whole) for name, column in values.items()}


def _array(np: Any, column: list[Any], *, whole: bool) -> np.ndarray:
    if whole and all(isinstance(value, int) for value in column):
        return np.array(column, dtype=np.int64)  # type: ignore[no-any-return]
    return np.array([np.nan if value is None else value for value in column], dtype=np.float64)  # type: ignore[no-any-return]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _headlines(data: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, entry in data.items():
        if isinstance(entry, Mapping):
            value = entry.get("mean", entry.get("total") if "count" in entry else None)
            if _is_number(value):
                yield name, value


def _leaves(prefix: str, node: Any) -> Iterator[tuple[str, float]]:
    """Give the numbers of nested data by path; of an entry with a headline all but the headline."""
    if isinstance(node, Mapping):
        items: Any = node.items()
        skip = "mean" if "mean" in node else "total" if {"count", "total"} == set(node) else None
    elif isinstance(node, list):
        items, skip = enumerate(node), None
    else:
        return
    for key, value in items:
        path = f"{prefix}/{key}" if prefix else str(key)
        if _is_number(value):
            if key != skip:
                yield path, value
        else:
            yield from _leaves(path, value)


def _is_number(value: Any) -> bool:
    # An integer that numpy has no room for can only come from a file that was tampered with.
    return isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)
