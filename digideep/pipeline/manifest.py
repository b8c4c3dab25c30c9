"""MANIFEST.json: what a checkpoint consists of, and every rule by which one is refused.

The manifest is written last and read first. Its own last key, `manifest_sha256`, is the hash of all that precedes it,
so that a changed counter is noticed as surely as a changed tensor.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeGuard

from digideep.errors import CheckpointError, UsageError, one_line
from digideep.pipeline.fsio import Written
from digideep.pipeline.layout import MANIFEST_NAME
from digideep.utility.codec import CodecError, StateTree
from digideep.utility.strictjson import loads_json

__all__ = [
    "CLOCKS",
    "COMPONENT_VERSION",
    "FORMAT_VERSION",
    "MANIFEST_NAME",
    "STATE_NAME",
    "CheckpointMeta",
    "Component",
    "NewerFormatError",
    "check_components",
    "check_logs",
    "dump_manifest",
    "is_identifier",
    "parse_manifest",
]

FORMAT = "digideep-checkpoint"
FORMAT_VERSION = 1
COMPONENT_VERSION = 1  # of the state of every component: raised with the first one whose state gets another form
STATE_NAME = "state.json"
CLOCKS = "clocks"
MANIFEST_LIMIT_BYTES = 4 << 20

# Far more than any run has; reading takes time for each.
_MAX_COMPONENTS = 1_000
_MAX_FILES = 30_000
_LOG = re.compile(r"(varlog|prolog|monlog)\.jsonl|tensorboard/[^/]+|monitor/[^/]+/[^/]+")
_LONGEST = 2**62  # bytes; no file is longer
_SEAL = re.compile(rb',\n  "manifest_sha256": "([0-9a-f]{64})"\n}\n\Z')
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_COMPONENT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class NewerFormatError(CheckpointError):
    """An intact checkpoint that a later version of digideep wrote and this one cannot read."""


class CheckpointMeta(NamedTuple):
    """Where training stood, and what the resumed run has to have in common with this one to give the same bits."""

    epoch: int
    cycle: int
    frame: int
    episode: int
    exactness: str
    parent: str | None
    versions: dict[str, Any]
    threads: dict[str, Any]
    device: str
    params_sha256: str


class Component(NamedTuple):
    """One part of the training state: its name in params, what it is, the version of its state, the state."""

    name: str
    kind: str
    version: int
    state: StateTree


def is_identifier(text: str) -> bool:
    """Return whether `text` can be the id of a session or a run: 1 to 100 letters, digits, `_`, `.` and `-`."""
    return _IDENTIFIER.fullmatch(text) is not None


def check_components(components: Sequence[Component]) -> None:
    """Refuse names that cannot be file names or occur twice.

    Raises:
        CodecError: names the component.
    """
    seen = {MANIFEST_NAME.partition(".")[0].lower(), STATE_NAME.partition(".")[0]}
    for component in components:
        name = component.name
        # Compared without case, since some file systems do not tell `a` from `A`.
        if len(name) > 100 or not _COMPONENT.fullmatch(name) or name.lower() in seen:
            raise CodecError(one_line(f"component {name!r}: expected a unique dotted name, found this; rename it"))
        seen.add(name.lower())


def check_logs(logs: Any) -> None:
    """Refuse log names that lead out of the session, and lengths that are none.

    Raises:
        CheckpointError: names the entry.
    """
    if not isinstance(logs, Mapping):
        raise CheckpointError("logs: expected an object, found something else")
    for name, length in logs.items():
        path = PurePosixPath(name)
        inside = name and "\\" not in name and "\0" not in name and not path.is_absolute() and ".." not in path.parts
        if not inside or str(path) != name or not _LOG.fullmatch(name) or not _is_count(length) or length > _LONGEST:
            found = one_line(f"{name!r}: {length!r}", limit=200)
            raise CheckpointError(f"logs: expected a relative file that is a log, and its length, found {found}")


def dump_manifest(
    *,
    number: int,
    session_id: str,
    meta: CheckpointMeta,
    files: Mapping[str, Written],
    components: Mapping[str, dict[str, Any]],
    logs: Mapping[str, int],
) -> bytes:
    """Return the content of MANIFEST.json. It holds no time and no absolute path."""
    fields = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "min_reader_version": FORMAT_VERSION,
        "session_id": session_id,
        "number": number,
        **meta._asdict(),
        "logs": dict(sorted(logs.items())),
        "components": dict(components),
        "files": {name: written._asdict() for name, written in sorted(files.items())},
    }
    body = json.dumps(fields, indent=2, allow_nan=False).removesuffix("\n}").encode()
    seal = hashlib.sha256(body).hexdigest()
    return body + f',\n  "manifest_sha256": "{seal}"\n}}\n'.encode()


def parse_manifest(content: bytes, *, number: int, session_id: str) -> dict[str, Any]:
    """Return the fields of a manifest, all of them checked.

    Args:
        content: the file.
        number: that of the directory; a renamed checkpoint is refused.
        session_id: whose checkpoint it has to be; empty: anybody's.

    Raises:
        NewerFormatError: intact, but of a later format.
        CheckpointError: everything else, one line without the name of the checkpoint.
    """
    if len(content) > MANIFEST_LIMIT_BYTES:
        raise CheckpointError(
            f"{MANIFEST_NAME}: expected at most {MANIFEST_LIMIT_BYTES} bytes, found {len(content)}; use fewer segments"
        )
    fields = _parse_json(content)
    sealed = _is_sealed(content)
    version, reader = fields.get("format_version"), fields.get("min_reader_version")
    if fields.get("format") == FORMAT and _is_count(version) and _is_count(reader):
        if max(version, reader) > FORMAT_VERSION:
            kind = NewerFormatError if sealed else CheckpointError
            raise kind(f"format_version {version} is newer than {FORMAT_VERSION}, which this digideep reads; update it")
    if not sealed:
        raise CheckpointError(f"{MANIFEST_NAME}: its content does not match its own sha256")
    if fields.get("format") != FORMAT or version != FORMAT_VERSION or reader != FORMAT_VERSION:
        raise CheckpointError(f"{MANIFEST_NAME}: expected format {FORMAT} {FORMAT_VERSION}, found another one")
    _check_fields(fields, number=number, session_id=session_id)
    _check_files(fields["files"])
    _check_component_table(fields["components"], files=fields["files"])
    check_logs(fields["logs"])
    return fields


def _parse_json(content: bytes) -> dict[str, Any]:
    try:
        fields = loads_json(content.decode("utf-8"), where=MANIFEST_NAME)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{MANIFEST_NAME}: expected UTF-8 text, found other bytes") from error
    except UsageError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(fields, dict):
        raise CheckpointError(f"{MANIFEST_NAME}: expected an object, found something else")
    return fields


def _is_sealed(content: bytes) -> bool:
    seal = _SEAL.search(content)
    return seal is not None and hashlib.sha256(content[: seal.start()]).hexdigest().encode() == seal.group(1)


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _require(condition: bool, name: str, found: object) -> None:
    if not condition:
        raise CheckpointError(one_line(f"{MANIFEST_NAME}: unusable value of {name}: {found!r}", limit=300))


def _check_fields(fields: Mapping[str, Any], *, number: int, session_id: str) -> None:
    for name in ("number", "epoch", "cycle", "frame", "episode"):
        _require(_is_count(fields.get(name)), name, fields.get(name))
    for name in ("exactness", "device", "params_sha256", "session_id"):
        _require(isinstance(fields.get(name), str), name, fields.get(name))
    for name in ("versions", "threads", "files", "components"):
        _require(isinstance(fields.get(name), dict), name, fields.get(name))
    _require(isinstance(fields.get("parent"), str | None), "parent", fields.get("parent"))
    _require(is_identifier(fields["session_id"]), "session_id", fields["session_id"])
    if fields["number"] != number:
        raise CheckpointError(f"{MANIFEST_NAME}: it was written as checkpoint-{fields['number']} and renamed since")
    if session_id and fields["session_id"] != session_id:
        raise CheckpointError(f"{MANIFEST_NAME}: it belongs to the session {fields['session_id']}, not to {session_id}")


def _check_files(files: Mapping[str, Any]) -> None:
    for name, record in files.items():
        usable = (
            _FILE.fullmatch(name) is not None
            and name != MANIFEST_NAME
            and isinstance(record, dict)
            and _is_count(record.get("bytes"))
            and isinstance(record.get("sha256"), str)
            and _SHA256.fullmatch(record["sha256"]) is not None
        )
        _require(usable, "files", name)
    _require(STATE_NAME in files, "files", f"no {STATE_NAME}")


def _check_component_table(components: Mapping[str, Any], *, files: Mapping[str, Any]) -> None:
    _require(len(components) <= _MAX_COMPONENTS, "components", f"{len(components)} of them")
    _require(len(files) <= _MAX_FILES, "files", f"{len(files)} of them")
    owned: list[str] = [STATE_NAME]
    for name, entry in components.items():
        usable = (
            _COMPONENT.fullmatch(name) is not None
            and isinstance(entry, dict)
            and isinstance(entry.get("kind"), str)
            and type(entry.get("version")) is int
            and isinstance(entry.get("files"), list)
            and all(isinstance(file, str) for file in entry["files"])
        )
        _require(usable, "components", name)
        if entry["version"] > COMPONENT_VERSION:
            raise NewerFormatError(
                f"component {name} has version {entry['version']}, newer than {COMPONENT_VERSION}, which this digideep "
                f"reads; update it"
            )
        owned += entry["files"]
    _require(sorted(owned) == sorted(files), "components", "files that belong to no component, or to two")
