"""What is known of sessions without opening them: read-only, nothing of them run, every text cleaned for a terminal."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from digideep.errors import DigideepError, UsageError, one_line
from digideep.pipeline.fsio import read_json, read_regular
from digideep.pipeline.layout import SessionPaths, is_session, read_meta
from digideep.pipeline.locks import holder, is_done
from digideep.pipeline.summary import KILLED, Summary
from digideep.utility.tree import replace
from digideep.utility.yaml12 import loads_yaml

__all__ = [
    "SessionRow",
    "clean",
    "effective_params",
    "find_sessions",
    "newest",
    "row_of",
    "state_of",
    "summary_of",
    "tree_bytes",
]

_ENTRIES_LIMIT = 200_000
_PARAMS_LIMIT_BYTES = 4 << 20


class SessionRow(NamedTuple):
    """One line of the list. `age_s` is the time since the session last wrote how it stands; returns may be None."""

    name: str
    state: str  # one of STATES, or "damaged"
    reason: str
    preset: str
    frames: int
    last_return: float | None
    best_return: float | None
    size_bytes: int
    age_s: float
    path: str


def clean(value: Any) -> Any:
    """Return plain data with every text on one line and without control characters."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Mapping):
        return {one_line(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [clean(entry) for entry in value]
    return value


def find_sessions(root: Path) -> list[Path]:
    """Return the sessions directly in `root`, by name; links are passed over.

    Raises:
        UsageError: `root` is no directory that can be listed.
    """
    try:
        entries = [Path(entry.path) for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise UsageError(
            f"{one_line(root)}: expected a directory of sessions, found {error.strerror}; check the path"
        ) from error
    return sorted(path for path in entries if is_session(path))


def summary_of(paths: SessionPaths) -> tuple[Summary, str]:
    """Return (how a session stands, what is wrong with its summary.json; an empty string where nothing is).

    Where that file is damaged the checkpoints on disk and the metrics say what they can.
    """
    try:
        return Summary.read(paths), ""
    except UsageError as error:
        damage = str(error)
    # Imported late: a list of whole sessions needs neither numpy nor the store.
    from digideep.pipeline.resuming import rebuild_summary

    return rebuild_summary(paths), damage


def state_of(paths: SessionPaths, summary: Summary, *, damage: str = "") -> tuple[str, str]:
    """Return (state, reason) of a session now: `running` only while a process really holds it."""
    owner = holder(paths.root)
    if owner is not None:
        return "running", f"in process {owner.get('pid', 'unknown')} on {owner.get('host', 'unknown')}"
    if damage:
        return "damaged", damage
    if is_done(paths.root):
        return "done", summary.reason
    if summary.state == "done":  # only the lock says so to a resume
        return "stopped", "done.lock was removed: a resume goes on"
    if summary.state == "running":
        # Nobody holds it: its process ended without writing anything. A session that never ran has no run either.
        return "stopped", KILLED if read_meta(paths).get("runs") else "never started"
    return summary.state, summary.reason


def row_of(path: Path, *, now: float | None = None) -> SessionRow:
    """Return the line of one session; what cannot be read makes its state `damaged`, with the reason.

    Args:
        path: of a session.
        now: seconds since 1970; None: those of this moment.
    """
    paths = SessionPaths(path)
    size, age = tree_bytes(path), max(0.0, (time.time() if now is None else now) - last_sign_of_life(paths))
    try:
        meta, (summary, damage) = read_meta(paths), summary_of(paths)
        state, reason = state_of(paths, summary, damage=damage)
    except Exception as error:  # whatever is wrong with one session, the others are shown
        reason = str(error) if isinstance(error, DigideepError) else f"{type(error).__name__}: {one_line(error)}"
        row = SessionRow(path.name, "damaged", reason, "", 0, None, None, size, age, str(path))
    else:
        row = SessionRow(
            name=path.name,
            state=state,
            reason=reason,
            preset=str(meta.get("preset", "")),
            frames=summary.frame,
            last_return=_last_return(summary),
            best_return=None if summary.best_test is None else summary.best_test["mean_return"],
            size_bytes=size,
            age_s=age,
            path=str(path),
        )
    return SessionRow(*clean(list(row)))


def _last_return(summary: Summary) -> float | None:
    if summary.last_test is not None:
        return summary.last_test["mean_return"]  # type: ignore[no-any-return]
    return summary.checkpoints[-1]["mean_return"] if summary.checkpoints else None


def last_sign_of_life(paths: SessionPaths) -> float:
    """Return when a session last wrote meta.json or summary.json, in seconds since 1970."""
    times = [0.0]
    for file in (paths.meta, paths.summary):
        try:
            times.append(file.lstat().st_mtime)
        except OSError:
            continue
    return max(times)


def newest(root: Path) -> Path | None:
    """Return the session in `root` that wrote last, None where there is none.

    Raises:
        UsageError: `root` is no directory that can be listed.
    """
    sessions = find_sessions(root)
    return max(sessions, key=lambda path: (last_sign_of_life(SessionPaths(path)), path.name), default=None)


def tree_bytes(directory: Path) -> int:
    """Return the bytes of all files below `directory`, each once however many names it has; links count nothing."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for status in _statuses(directory):
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            total += status.st_size
    return total


def _statuses(directory: Path) -> Iterator[os.stat_result]:
    pending, count = [str(directory)], 0
    while pending and count < _ENTRIES_LIMIT:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    count += 1
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(entry.path)
                    elif stat.S_ISREG(status.st_mode):
                        yield status
        except OSError:
            continue  # removed meanwhile, or another user's


def effective_params(paths: SessionPaths) -> dict[str, Any]:
    """Return the params tree of a session with every entry of repeal.json applied in order. Data only.

    Raises:
        UsageError: params.yaml or repeal.json is missing or malformed.
    """
    where = one_line(paths.params)
    try:
        text = read_regular(paths.params, limit_bytes=_PARAMS_LIMIT_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "bytes that are no UTF-8"
        raise UsageError(f"{where}: expected a YAML file, found {found}; restore it from a copy") from error
    loaded, changes = loads_yaml(text, where=where), read_json(paths.repeal)
    if not isinstance(loaded, dict):
        raise UsageError(f"{where}: expected a params tree, found {type(loaded).__name__}; restore it from a copy")
    tree: dict[str, Any] = loaded
    if not isinstance(changes, list):
        raise UsageError(f"{one_line(paths.repeal)}: expected a list, found something else; restore it from a copy")
    for change in changes:
        if not isinstance(change, dict) or not isinstance(change.get("path"), str) or "new" not in change:
            raise UsageError(f"{one_line(paths.repeal)}: expected entries with path and new, found another; restore it")
        tree = replace(tree, change["path"], change["new"], where=one_line(paths.repeal))
    return tree
