"""meta.json: the identity of a session, and one entry for each process that worked on it."""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from digideep.errors import StorageError, UsageError, one_line
from digideep.pipeline.fsio import publish_json
from digideep.pipeline.layout import FORMAT, FORMAT_VERSION, SessionPaths, read_meta

__all__ = ["begin_run", "end_run", "new_meta", "now_text", "update_run", "write_meta"]


def now_text() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_meta(*, message: str = "", lineage: Mapping[str, Any] | None = None, preset: str = "") -> dict[str, Any]:
    """Return the meta data of a new session, with an id that no other one has.

    Args:
        message: what the user says about it.
        lineage: the checkpoint whose policies it starts from.
        preset: the params module it was made with.
    """
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "id": str(uuid.uuid4()),
        "created": now_text(),
        "preset": preset,
        "message": message,
        "lineage": None if lineage is None else dict(lineage),
        "runs": [],
    }


def write_meta(paths: SessionPaths, meta: Mapping[str, Any]) -> None:
    """Publish meta.json.

    Raises:
        StorageError: it could not be replaced; the former one stands.
    """
    publish_json(paths.meta, meta)


def begin_run(paths: SessionPaths, *, command_line: Sequence[str], **facts: Any) -> int:
    """Append the entry of this process and return its index.

    Args:
        paths: of the session.
        command_line: the arguments; stored as one line that a shell reads back.
        facts: what else is known, by key: host, cpu, device, threads, versions, code_hash, commits and so on.

    Raises:
        UsageError: meta.json is malformed.
        StorageError: it could not be replaced.
    """
    meta = read_meta(paths)
    entry = {
        "command_line": shlex.join(command_line),
        "pid": os.getpid(),
        **facts,
        "start": now_text(),
        "end": None,
        "exit_code": None,
        "reason": "",
    }
    runs = [*meta.get("runs", []), entry]
    write_meta(paths, {**meta, "runs": runs})
    return len(runs) - 1


def update_run(paths: SessionPaths, index: int, **facts: Any) -> None:
    """Add `facts` to the entry that `begin_run` returned the index of.

    Raises:
        StorageError: meta.json is gone or malformed since then, or could not be replaced.
    """
    try:
        meta = read_meta(paths)
    except UsageError as error:  # nobody's options are to blame: it was well when this run began
        raise StorageError(f"{error}; it was there when this run began") from error
    runs = list(meta["runs"])
    if index >= len(runs):
        raise StorageError(f"{one_line(paths.meta)}: expected the run {index}, found {len(runs)}; restore the file")
    runs[index] = {**runs[index], **facts}
    write_meta(paths, {**meta, "runs": runs})


def end_run(paths: SessionPaths, index: int, *, exit_code: int, reason: str, **facts: Any) -> None:
    """Close the entry that `begin_run` returned the index of; `facts` are added to it. Errors as `update_run`."""
    update_run(paths, index, **facts, end=now_text(), exit_code=exit_code, reason=one_line(reason))
