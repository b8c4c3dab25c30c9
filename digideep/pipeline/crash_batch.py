"""A minibatch whose loss or gradient was not finite, in a session's `crash` directory.

    crash/batch.safetensors   the arrays: `/policy/<parameter>` and `/batch/<...>`
    crash/batch.json          format, version, error, and what else `digideep.agent.crash:CrashBatch` has in `meta`;
                              numbers that JSON lacks are the strings "nan", "inf" and "-inf"

The second is written last. Newer ones replace older ones. `digideep.post.load_crash` makes the agent of then from both.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from digideep.agent.crash import CrashBatch
from digideep.errors import CheckpointError, UsageError, one_line
from digideep.pipeline.fsio import (
    HashingReader,
    open_regular,
    publish_json,
    read_json,
    sweep_temporaries,
    write_new,
)
from digideep.pipeline.tensorfile import read_safetensors, write_safetensors

__all__ = ["ARRAYS_FILE", "BATCH_FILE", "read_crash_batch", "write_crash_batch"]

ARRAYS_FILE = "batch.safetensors"
BATCH_FILE = "batch.json"
_FORMAT = "digideep-crash-batch"
_VERSION = 1
_TYPES: dict[str, type] = {"agent": str, "part": str, "update": int, "node": dict, "spec": dict, "figures": dict}


def write_crash_batch(directory: Path, crash_batch: CrashBatch, *, error: str) -> Path:
    """Write both files into `directory`, which is made, and return the path of the arrays; needs the session's lock.

    Raises:
        OSError, StorageError: the disk refuses one.
    """
    directory.mkdir(exist_ok=True)
    sweep_temporaries(directory)
    path, described = directory / ARRAYS_FILE, directory / BATCH_FILE
    described.unlink(missing_ok=True)  # never beside arrays that it does not describe
    temporary = directory / f".tmp-{ARRAYS_FILE}-{os.getpid()}"
    arrays = {name: np.ascontiguousarray(array) for name, array in crash_batch.arrays.items()}
    try:
        write_new(temporary, write_safetensors(arrays))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    publish_json(described, {"format": _FORMAT, "version": _VERSION, "error": one_line(error), **_plain(crash_batch)})
    return path


def read_crash_batch(directory: Path) -> tuple[CrashBatch, str]:
    """Return the minibatch that lies in `directory`, or in the `crash` directory of the session there, and its error.

    Raises:
        UsageError: there is none, or a file is not what `write_crash_batch` writes.
    """
    place = next((path for path in (directory, directory / "crash") if (path / BATCH_FILE).is_file()), None)
    if place is None:
        raise UsageError(
            f"{one_line(directory)}: expected a session with crash/{BATCH_FILE}, found none; a run leaves one where a "
            f"loss or a gradient was not finite"
        )
    record = read_json(place / BATCH_FILE)
    if not isinstance(record, dict) or record.get("format") != _FORMAT or record.get("version") != _VERSION:
        raise UsageError(f"{one_line(place / BATCH_FILE)}: expected a {_FORMAT} of version {_VERSION}, found another")
    for name, kind in {**_TYPES, "error": str}.items():
        if not isinstance(record.get(name), kind):
            raise UsageError(f"{one_line(place / BATCH_FILE)}: expected {name!r} as it was written, found another")
    meta = {name: record[name] for name in _TYPES}
    meta["figures"] = {str(name): _number(x, where=place / BATCH_FILE) for name, x in meta["figures"].items()}
    return CrashBatch(_arrays(place / ARRAYS_FILE), meta), record["error"]


def _plain(crash_batch: CrashBatch) -> dict[str, Any]:
    figures: Mapping[str, float] = crash_batch.meta["figures"]
    written = {name: value if math.isfinite(value) else repr(value) for name, value in figures.items()}
    return {**crash_batch.meta, "figures": written}


def _number(value: Any, *, where: Path) -> float:
    with contextlib.suppress(TypeError, ValueError):
        return float(value)
    raise UsageError(f"{one_line(where)}: expected numbers in 'figures', found {one_line(repr(value), limit=60)}")


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        descriptor, size = open_regular(path)
    except OSError as error:
        raise UsageError(f"{one_line(path)}: expected a file of arrays, found {error.strerror}") from error
    try:
        return read_safetensors(HashingReader(descriptor), size=size)
    except CheckpointError as error:
        raise UsageError(f"{one_line(path)}: {error}") from error
    finally:
        os.close(descriptor)
