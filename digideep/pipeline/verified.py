"""Reading one checkpoint: nothing of it is returned before every byte of it was compared with its manifest.

Segments are compared like all other files and then read a second time, one by one, when somebody asks for them: a
memory may be larger than what a process can hold twice.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from digideep.errors import CheckpointError, UsageError, one_line
from digideep.pipeline.fsio import REAL, FileSystem, HashingReader, Stamp, Written, open_regular, read_regular
from digideep.pipeline.manifest import MANIFEST_LIMIT_BYTES, MANIFEST_NAME, STATE_NAME, parse_manifest
from digideep.pipeline.segments import names_in, segment_file
from digideep.pipeline.tensorfile import read_safetensors
from digideep.types import Segment
from digideep.utility.codec import MAX_JSON_DEPTH, StateTree, decode
from digideep.utility.strictjson import loads_json

__all__ = [
    "STATE_LIMIT_BYTES",
    "Checkpoint",
    "Layout",
    "StoredSegments",
    "Vouched",
    "damage_by_file",
    "find_damage",
    "read_checkpoint",
    "read_manifest",
]

STATE_LIMIT_BYTES = 16 << 20  # what nobody means to load is refused within a second

Vouched = MutableMapping[Stamp, str]
"""Hashes of files that this process has itself written or read."""

Layout = Mapping[str, tuple[tuple[int, ...], "np.dtype[Any]"]]
"""Shape and dtype of arrays by name."""

T = TypeVar("T")


class Checkpoint(NamedTuple):
    """A verified checkpoint.

    `dropped` are components that are damaged and were left out, as the caller allowed. `layout` has the shape and
    dtype of each array by the name that `codec.encode` gives it, by component.
    """

    number: int
    path: Path
    manifest: Mapping[str, Any]
    components: dict[str, StateTree]
    dropped: tuple[str, ...] = ()
    layout: Mapping[str, Layout] = {}


class StoredSegments:
    """The segments of one component, in files; read when asked for, one at a time, and verified once more.

    Args:
        files: path, and what the manifest says of it, by the name of the segment, in order.
        fs: the file system.
    """

    def __init__(self, files: Mapping[str, tuple[Path, Written]], *, fs: FileSystem = REAL) -> None:
        self._files = dict(files)
        self._fs = fs

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names, in order."""
        return tuple(self._files)

    def __iter__(self) -> Iterator[Segment]:
        """Yield the segments in order, each with arrays of its own.

        Raises:
            CheckpointError: a file is not any more what it was when the checkpoint was verified.
        """
        for name, (path, record) in self._files.items():
            try:
                arrays = _read_file(path, record, parse=_parse_arrays, fs=self._fs)
            except CheckpointError as error:
                raise CheckpointError(one_line(f"{path.parent}: {error}, though it was whole a moment ago")) from error
            yield Segment(name, arrays)

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._files)


def read_manifest(path: Path, *, number: int, session_id: str, fs: FileSystem = REAL) -> dict[str, Any]:
    """Return the manifest of a checkpoint whose directory holds exactly the files it names.

    Raises:
        CheckpointError: the reason, without the name of the checkpoint.
    """
    manifest, missing, surplus = _open(path, number=number, session_id=session_id, fs=fs)
    if missing or surplus:
        raise CheckpointError(_misfit(missing, surplus))
    return manifest


def _open(
    path: Path, *, number: int, session_id: str, fs: FileSystem
) -> tuple[dict[str, Any], Collection[str], Collection[str]]:
    """Return the manifest, the files it names that are missing, and those that it does not name."""
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
    return manifest, sorted(expected - names), sorted(names - expected)


def _misfit(missing: Collection[str], surplus: Collection[str]) -> str:
    text = f"missing files: {', '.join(missing) or 'none'}; surplus files: {', '.join(surplus) or 'none'}"
    return one_line(text)


def find_damage(
    path: Path, *, number: int, session_id: str, vouched: Vouched | None = None, fs: FileSystem = REAL
) -> list[str]:
    """Return every reason why the checkpoint at `path` is damaged, none if it is whole. Reads only.

    Args:
        path: the checkpoint.
        number: its own.
        session_id: whose it has to be; empty: anybody's.
        vouched: files that need not be read again; what is found whole is added.
        fs: the file system.
    """
    try:
        manifest = read_manifest(path, number=number, session_id=session_id, fs=fs)
    except CheckpointError as error:
        return [str(error)]
    return list(_damaged(path, manifest["files"], vouched=vouched, fs=fs).values())


def damage_by_file(
    path: Path, *, number: int, session_id: str, vouched: Vouched | None = None, fs: FileSystem = REAL
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the manifest and the reason for each damaged or missing file.

    Raises:
        CheckpointError: the manifest itself, or a surplus file.
    """
    manifest, missing, surplus = _open(path, number=number, session_id=session_id, fs=fs)
    if surplus:
        raise CheckpointError(_misfit(missing, surplus))
    there = {name: record for name, record in manifest["files"].items() if name not in missing}
    reasons = {name: f"{name}: missing" for name in missing}
    return manifest, {**reasons, **_damaged(path, there, vouched=vouched, fs=fs)}


def _damaged(path: Path, files: Mapping[str, Any], *, vouched: Vouched | None, fs: FileSystem) -> dict[str, str]:
    reasons = {}
    for name, record in files.items():
        try:
            _compare(path / name, _written(record), vouched=vouched, fs=fs)
        except CheckpointError as error:
            reasons[name] = str(error)
    return reasons


def _compare(path: Path, record: Written, *, vouched: Vouched | None, fs: FileSystem) -> None:
    """Read a file unless somebody vouches for it. Raises CheckpointError."""
    try:
        status = fs.status(path)
    except OSError as error:
        raise CheckpointError(one_line(f"{path.name}: cannot be read: {error.strerror}")) from error
    stamp = Stamp.of(status)
    if vouched is not None and stat.S_ISREG(status.st_mode) and vouched.get(stamp) == record.sha256:
        return
    _read_file(path, record, parse=_pass_over, fs=fs)
    if vouched is not None:  # the stamp of before: a file that was changed meanwhile has another one now
        vouched[stamp] = record.sha256


def read_checkpoint(
    path: Path,
    *,
    number: int,
    session_id: str,
    without: Collection[str] = (),
    vouched: Vouched | None = None,
    fs: FileSystem = REAL,
) -> Checkpoint:
    """Return the checkpoint at `path`.

    Args:
        path: the checkpoint.
        number: its own.
        session_id: whose it has to be; empty: anybody's.
        without: components that are left out, whose files may be damaged or missing.
        vouched: segments that were read before in this process and need not be read again, only loaded.
        fs: the file system.

    Raises:
        CheckpointError: the first reason that was found, without the name of the checkpoint.
    """
    manifest, missing, surplus = _open(path, number=number, session_id=session_id, fs=fs)
    parts = {name: entry for name, entry in manifest["components"].items() if name not in without}
    needed = [STATE_NAME, *(file for entry in parts.values() for file in entry["files"])]
    if surplus or set(missing) & set(needed):
        raise CheckpointError(_misfit(missing, surplus))
    records = {name: _written(record) for name, record in manifest["files"].items()}
    states = _read_states(path / STATE_NAME, records[STATE_NAME], fs=fs)
    if not isinstance(states, dict) or states.keys() != manifest["components"].keys():
        raise CheckpointError(f"{STATE_NAME}: its components are not those of the manifest")
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for name, entry in parts.items():
        own = f"{name}.safetensors"
        for file in entry["files"]:
            if file == own:
                arrays[name] = _read_file(path / file, records[file], parse=_parse_arrays, fs=fs)
            else:
                _compare(path / file, records[file], vouched=vouched, fs=fs)
    components = {
        name: _decode(name, states[name], arrays.get(name, {}), path=path, entry=entry, records=records, fs=fs)
        for name, entry in parts.items()
    }
    dropped = tuple(name for name in manifest["components"] if name in without)
    layout = {name: {key: (a.shape, a.dtype) for key, a in part.items()} for name, part in arrays.items()}
    return Checkpoint(number, path, manifest, components, dropped=dropped, layout=layout)


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


def _read_states(path: Path, record: Written, *, fs: FileSystem) -> Any:
    """Return the content of state.json, which is parsed only after it was verified, and never where it is too large."""
    if record.bytes > STATE_LIMIT_BYTES:
        raise CheckpointError(f"{path.name}: expected at most {STATE_LIMIT_BYTES} bytes, found {record.bytes}")
    content = _read_file(path, record, parse=lambda reader, size: reader.read(size), fs=fs)
    try:
        # One level more than a single state has: the object that holds them all.
        return loads_json(content.decode("utf-8"), where="content", max_depth=MAX_JSON_DEPTH + 1)
    except (UsageError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path.name}: {one_line(error, limit=300)}") from error


def _parse_arrays(reader: HashingReader, size: int) -> dict[str, np.ndarray]:
    return read_safetensors(reader, size=size)


def _pass_over(reader: HashingReader, size: int) -> None:
    """Make nothing of the content."""


def _decode(
    name: str,
    json: Any,
    arrays: Mapping[str, np.ndarray],
    *,
    path: Path,
    entry: Mapping[str, Any],
    records: Mapping[str, Written],
    fs: FileSystem,
) -> StateTree:
    """Return the state of one component, with its segments where they were."""
    try:
        found = names_in(json)
        plain = {**json, **dict.fromkeys(found)} if found else json
        state = decode(plain, arrays)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error
    files = {key: {part: segment_file(name, part) for part in names} for key, names in found.items()}
    expected = [file for parts in files.values() for file in parts.values()]
    if [file for file in entry["files"] if file != f"{name}.safetensors"] != expected:
        raise CheckpointError(f"{name}: expected the segments that {STATE_NAME} names in their order, found other ones")
    for key, parts in files.items():
        state[key] = StoredSegments({part: (path / file, records[file]) for part, file in parts.items()}, fs=fs)
    return state
