"""Going on from a checkpoint: which one is meant, and a directory that looks as it did when it was saved."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Collection, Mapping

from digideep.errors import CheckpointError, UsageError, one_line
from digideep.pipeline.checkpoint import Checkpoint, CheckpointStore
from digideep.pipeline.fsio import read_json
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.logs import SessionLogs
from digideep.pipeline.manifest import CLOCKS, MANIFEST_NAME
from digideep.pipeline.summary import Summary
from digideep.types import StateDict
from digideep.utility.jsonl import read_rows
from digideep.utility.tensorboard import EVENT_FILE

__all__ = ["check_logs", "check_never_saved", "load_logs", "number_of", "read_summary", "require_components", "rewind"]

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
    logs.load_state_dict(checkpoint.components["monitor"], checkpoint.components[CLOCKS])


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
    """Return the summary of a session; a damaged one, which can be made again, is a warning and an empty one."""
    try:
        return Summary.read(paths)
    except UsageError as error:
        logger.warning("the summary is made again: %s", error)
        return Summary()


def check_logs(paths: SessionPaths) -> None:
    """Check that no log is something else than a file.

    Raises:
        UsageError: one is a link, a FIFO or a directory.
    """
    events = paths.tensorboard / EVENT_FILE
    for path in (paths.varlog, paths.prolog, paths.monlog, paths.report_log, events):
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise UsageError(f"{one_line(path)}: expected a regular file, found something else; remove or restore it")


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
        StorageError: a log cannot be cut, or a checkpoint not be moved.
    """
    store.sweep()
    if checkpoint is not None:
        moved = store.supersede(checkpoint.number)
        if moved:
            logger.warning("later checkpoints were moved aside: %s", ", ".join(moved))
            summary.last_test = summary.best_test = None
    logs.cut({} if checkpoint is None else checkpoint.manifest["logs"])
    summary.rebuild_checkpoints(_found(paths, store), read_rows(paths.varlog))


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
