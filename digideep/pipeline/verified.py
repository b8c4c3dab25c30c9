"""Reading one checkpoint: nothing of it is returned before every byte of it was compared with its manifest."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from digideep.errors import CheckpointError, UsageError, one_line
from digideep.pipeline.fsio import REAL, FileSystem, HashingReader, Written, open_regular, read_regular
from digideep.pipeline.manifest import MANIFEST_LIMIT_BYTES, MANIFEST_NAME, STATE_NAME, parse_manifest
from digideep.pipeline.tensorfile import read_safetensors
from digideep.utility.codec import MAX_JSON_DEPTH, StateTree, decode
from digideep.utility.strictjson import loads_json

__all__ = ["STATE_LIMIT_BYTES", "Checkpoint", "find_damage", "read_checkpoint", "read_manifest"]

STATE_LIMIT_BYTES = 256 << 20

T = TypeVar("T")


class Checkpoint(NamedTuple):
    """A verified checkpoint."""

    number: int
    path: Path
    manifest: Mapping[str, Any]
    components: dict[str, StateTree]


def read_manifest(path: Path, *, number: int, session_id: str, fs: FileSystem = REAL) -> dict[str, Any]:
    """Return the manifest of a checkpoint whose directory holds exactly the files it names.

    Raises:
        CheckpointError: the reason, without the name of the checkpoint.
    """
    try:
        if not stat.S_ISDIR(fs.status(path).st_mode):
            raise CheckpointError("expected a directory, found something else")
        names = set(fs.listdir(path))
        if MANIFEST_NAME not in names:
            raise CheckpointError(f"{MANIFEST_NAME}: missing")
        content = read_regular(path / MANIFEST_NAME, limit_bytes=MANIFEST_LIMIT_BYTES, fs=fs)
    except OSError as error:
        raise CheckpointError(one_line(f"{MANIFEST_NAME}: cannot be read: {error.strerror}")) from error
    manifest = parse_manifest(content, number=number, session_id=session_id)
    expected = {MANIFEST_NAME, *manifest["files"]}
    if names != expected:
        missing, surplus = sorted(expected - names), sorted(names - expected)
        raise CheckpointError(
            one_line(f"missing files: {', '.join(missing) or 'none'}; surplus files: {', '.join(surplus) or 'none'}")
        )
    return manifest


def find_damage(path: Path, *, number: int, session_id: str, fs: FileSystem = REAL) -> list[str]:
    """Return every reason why the checkpoint at `path` is damaged, none if it is whole. Reads only."""
    try:
        manifest = read_manifest(path, number=number, session_id=session_id, fs=fs)
    except CheckpointError as error:
        return [str(error)]
    reasons = []
    for name, record in manifest["files"].items():
        try:
            _read_file(path / name, _written(record), parse=lambda reader, size: None, fs=fs)
        except CheckpointError as error:
            reasons.append(str(error))
    return reasons


def read_checkpoint(path: Path, *, number: int, session_id: str, fs: FileSystem = REAL) -> Checkpoint:
    """Return the checkpoint at `path`.

    Raises:
        CheckpointError: the first reason that was found, without the name of the checkpoint.
    """
    manifest = read_manifest(path, number=number, session_id=session_id, fs=fs)
    arrays: dict[str, dict[str, np.ndarray]] = {}
    states: Any = None
    for name, record in manifest["files"].items():
        if name == STATE_NAME:
            states = _read_file(path / name, _written(record), parse=_parse_states, fs=fs)
        else:
            arrays[name] = _read_file(path / name, _written(record), parse=_parse_arrays, fs=fs)
    if not isinstance(states, dict) or states.keys() != manifest["components"].keys():
        raise CheckpointError(f"{STATE_NAME}: its components are not those of the manifest")
    components = {
        name: _decode(name, states[name], [arrays[file] for file in entry["files"]])
        for name, entry in manifest["components"].items()
    }
    return Checkpoint(number=number, path=path, manifest=manifest, components=components)


def _written(record: Mapping[str, Any]) -> Written:
    return Written(bytes=record["bytes"], sha256=record["sha256"])


def _read_file(path: Path, record: Written, *, parse: Callable[[HashingReader, int], T], fs: FileSystem) -> T:
    """Return what `parse` makes of a file whose size and hash are those recorded."""
    try:
        descriptor, size = open_regular(path, fs=fs)
        try:
            if size != record.bytes:
                raise CheckpointError(f"{path.name}: expected {record.bytes} bytes, found {size}")
            reader = HashingReader(descriptor, fs=fs)
            value, refusal = _attempt(parse, reader, size)
            reader.drain()
        finally:
            fs.close(descriptor)
    except OSError as error:
        raise CheckpointError(one_line(f"{path.name}: cannot be read: {error.strerror}")) from error
    # The hash first: a header that makes no sense is only the consequence of a changed byte.
    if reader.count != record.bytes or reader.sha256() != record.sha256:
        raise CheckpointError(f"{path.name}: its sha256 is {reader.sha256()[:12]}..., not {record.sha256[:12]}...")
    if refusal is not None:
        raise CheckpointError(f"{path.name}: {refusal}") from refusal
    return value  # type: ignore[return-value]


def _attempt(
    parse: Callable[[HashingReader, int], T], reader: HashingReader, size: int
) -> tuple[T | None, CheckpointError | None]:
    try:
        return parse(reader, size), None
    except CheckpointError as error:
        return None, error


def _parse_states(reader: HashingReader, size: int) -> Any:
    if size > STATE_LIMIT_BYTES:
        raise CheckpointError(f"expected at most {STATE_LIMIT_BYTES} bytes, found {size}")
    try:
        # One level more than a single state has: the object that holds them all.
        return loads_json(reader.read(size).decode("utf-8"), where="content", max_depth=MAX_JSON_DEPTH + 1)
    except (UsageError, UnicodeDecodeError) as error:
        raise CheckpointError(one_line(error, limit=300)) from error


def _parse_arrays(reader: HashingReader, size: int) -> dict[str, np.ndarray]:
    return read_safetensors(reader, size=size)


def _decode(name: str, json: Any, parts: list[dict[str, np.ndarray]]) -> StateTree:
    arrays: dict[str, np.ndarray] = {}
    for part in parts:
        if twice := arrays.keys() & part.keys():
            raise CheckpointError(one_line(f"{name}: the array {min(twice)} lies in two of its files"))
        arrays |= part
    try:
        return decode(json, arrays)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error
