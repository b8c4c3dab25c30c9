"""Going on from a checkpoint: which one is meant, and a directory that looks as it did when it was saved."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from digideep.errors import CheckpointError, DigideepError, SessionDoneError, UsageError, one_line
from digideep.pipeline.checkpoint import Checkpoint, CheckpointStore
from digideep.pipeline.fsio import read_json
from digideep.pipeline.layout import SessionPaths, require_one_name
from digideep.pipeline.locks import is_done
from digideep.pipeline.logs import SessionLogs
from digideep.pipeline.manifest import CLOCKS, MANIFEST_NAME
from digideep.pipeline.summary import Summary
from digideep.types import StateDict
from digideep.utility.jsonl import read_rows

__all__ = [
    "check_logs",
    "check_never_saved",
    "done_error",
    "droppable",
    "load_logs",
    "number_of",
    "read_summary",
    "rebuild_summary",
    "refuse_if_done",
    "require_components",
    "rewind",
    "well_formed",
]

logger = logging.getLogger(__name__)


def number_of(name: str | int, summary: Summary, *, session: SessionPaths) -> int | None:
    """Return the number that `--checkpoint` names; None stands for the newest that is whole.

    Raises:
        CheckpointError: `best`, and no checkpoint has a score.
    """
    if name == "last":
        return None
    if name != "best":
        return int(name)
    best = summary.best()
    if not best:
        raise CheckpointError(
            f"{one_line(session.root)}: expected a checkpoint with a score, found none; name one by its number"
        )
    return best[0]


def load_logs(checkpoint: Checkpoint, logs: SessionLogs) -> None:
    """Give monitor, clock and timers the state they had.

    Raises:
        CheckpointError: the checkpoint has no such components.
    """
    missing = [name for name in ("monitor", CLOCKS) if name not in checkpoint.components]
    if missing:
        raise CheckpointError(f"{checkpoint.path.name}: expected the component {missing[0]}, found none; take another")
    with well_formed(checkpoint.path.name):
        logs.load_state_dict(checkpoint.components["monitor"], checkpoint.components[CLOCKS])


@contextlib.contextmanager
def well_formed(where: str) -> Iterator[None]:
    """Say of what the parts of a run cannot take over that the checkpoint `where` holds something else than expected.

    Raises:
        CheckpointError: a part failed over what it was given; its own errors pass.
    """
    try:
        yield
    except (DigideepError, MemoryError):
        raise
    except Exception as error:  # what a part does with the wrong thing depends on the thing
        logger.error("%s cannot be taken over", where, exc_info=True, extra={"report_only": True})
        found = f"{type(error).__name__}: {one_line(error, limit=200)}"
        raise CheckpointError(
            f"{where}: expected the state that digideep saves, found one that cannot be taken over ({found}); "
            f"take another checkpoint (--checkpoint N)"
        ) from error


def require_components(expected: Collection[str], components: Mapping[str, StateDict]) -> None:
    """Check that a checkpoint has what the parts of a run need.

    Raises:
        CheckpointError: it lacks a component.
    """
    missing = sorted(set(expected) - components.keys())
    if missing:
        raise CheckpointError(
            f"checkpoint: expected the components {', '.join(sorted(expected))}, found no {', '.join(missing)}; "
            f"was an agent or a memory renamed?"
        )


def read_summary(paths: SessionPaths) -> Summary:
    """Return the summary of a session; a damaged one is a warning, and made again from checkpoints and metrics."""
    try:
        return Summary.read(paths)
    except UsageError as error:
        logger.warning("the summary is made again: %s", error)
        return rebuild_summary(paths)


def check_logs(paths: SessionPaths) -> None:
    """Check that every log, which is written in place, is a file that the session shares with nobody.

    Raises:
        UsageError: one is a link, a FIFO or a directory, or has another name too.
    """
    logs = [paths.varlog, paths.prolog, paths.monlog, paths.report_log]
    for path in (*logs, *paths.tensorboard.glob("*"), *paths.monitor.glob("*/*")):
        if not os.path.lexists(path):
            continue
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{one_line(path)}: expected a regular file, found something else; remove or restore it")
        require_one_name(path, status)


def done_error(root: Path) -> SessionDoneError:
    """Return the error for a session that has reached its goal, with the ways to go on."""
    return SessionDoneError(
        f"{one_line(root)}: expected a session with something left to do, found it done; "
        f"raise its goal (--set /runner/n_epochs=N or /runner/total_frames=N, and /runner/stop_return=null where a "
        f"return was the goal) or play it (--play)"
    )


def refuse_if_done(paths: SessionPaths, *, named: str | int, is_changed: bool) -> None:
    """Refuse a session that is done, but where this start changes it or names an earlier checkpoint.

    Raises:
        SessionDoneError: there is nothing to do.
    """
    # Nothing is verified: which one is the newest is all that counts.
    newest = max(CheckpointStore(paths.checkpoints, session_id="", run_id="look").numbers(), default=-1)
    if is_done(paths.root) and not is_changed and named in ("last", newest):
        raise done_error(paths.root)


def droppable(params: Mapping[str, Any], *, is_play: bool) -> set[str]:
    """Return the components that may be missing: memories that are allowed to be lost, in a play every one."""
    memories = params["memory"].items()
    return {f"memory.{name}" for name, node in memories if is_play or node.get("on_damage") == "drop"}


def check_never_saved(paths: SessionPaths, summary: Summary) -> None:
    """Check that a session without a checkpoint never had one, so that starting anew loses nothing.

    Raises:
        CheckpointError: its summary or its logs say that it had.
    """
    # Every save that succeeds says in the next row how long it took.
    was_saved = any("time/save_s" in row.get("data", {}) for row in read_rows(paths.varlog))
    if summary.checkpoints or was_saved:
        raise CheckpointError(
            f"{one_line(paths.checkpoints)}: expected the checkpoints that this session has saved, found none; "
            f"restore the directory"
        )


def rewind(
    checkpoint: Checkpoint | None,
    *,
    paths: SessionPaths,
    store: CheckpointStore,
    logs: SessionLogs,
    summary: Summary,
) -> None:
    """Take back what happened after the checkpoint: later ones are moved aside, logs cut, the summary made again.

    Raises:
        StorageError: a log cannot be cut, a checkpoint not be moved, or the summary not be written.
    """
    store.sweep()
    if checkpoint is not None:
        moved = store.supersede(checkpoint.number)
        if moved:
            logger.warning("later checkpoints were moved aside: %s", ", ".join(moved))
            summary.last_test = summary.best_test = None
    logs.cut({} if checkpoint is None else checkpoint.manifest["logs"])
    summary.rebuild_checkpoints(_found(paths, store), read_rows(paths.varlog))
    # At once: where this process is killed, how the one before ended is no news any more.
    summary.update({"state": "running", "exit_code": None, "reason": ""})
    summary.write(paths)


def rebuild_summary(paths: SessionPaths) -> Summary:
    """Return what checkpoints and metrics tell of a session whose summary.json is damaged. Reads only."""
    found = _found(paths, CheckpointStore(paths.checkpoints, session_id="", run_id="look"))
    _, epoch, frame = max(found, default=(0, 0, 0))
    summary = Summary(state="stopped", epoch=epoch, frame=frame)
    try:
        rows = read_rows(paths.varlog)
    except OSError as error:
        logger.debug("%s: no scores without it: %s", paths.varlog, error)
        rows = []
    summary.rebuild_checkpoints(found, rows)
    return summary


def _found(paths: SessionPaths, store: CheckpointStore) -> list[tuple[int, int, int]]:
    """Return (number, epoch, frame) of every checkpoint whose manifest can be read."""
    found = []
    for number in store.numbers():
        try:
            manifest = read_json(paths.checkpoint(number) / MANIFEST_NAME)
            found.append((number, int(manifest["epoch"]), int(manifest["frame"])))
        except (UsageError, KeyError, TypeError, ValueError):
            continue  # damaged: whoever loads it is told
    return found
