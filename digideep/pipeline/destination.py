"""Where a start puts what it leaves: the session itself, the directory of an evaluation, or a place that goes away."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from digideep.errors import (
    CheckpointError,
    SessionLockedError,
    StoppedError,
    TrustError,
    UsageError,
    one_line,
)
from digideep.pipeline.layout import SessionPaths, new_directory, timestamp
from digideep.pipeline.options import Mode, SessionOptions
from digideep.pipeline.places import missing_directories, new_place

__all__ = ["REFUSALS", "Destination", "Removal", "find_destination", "remove_tree"]

REFUSALS = (UsageError, CheckpointError, TrustError)
"""Errors after which nothing is left of what a start has made: what the user named is wrong, damaged, not trusted."""

_ROUNDS = 8  # 0.26 s in all


class Destination(NamedTuple):
    """A directory, the line that tells the user about it, and what this start has made of it, the innermost first."""

    directory: Path
    line: str
    made: tuple[Path, ...] = ()


class Removal:
    """Removes what this start has made, where what the user named turns out to be wrong, damaged or not trusted.

    What is not whole yet is removed after any error, but one that says that another process uses it.

    Args:
        directory: removed with all it holds, or a file; None: nothing is.
        around: directories that are removed after it where they are empty, the innermost first.
        unless: a path whose existence keeps everything.
        is_whole: whether all of it stands; what is not whole is of use to nobody, and would only take the name.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        around: Sequence[Path] = (),
        unless: Path | None = None,
        is_whole: bool = True,
    ) -> None:
        self.directory = directory
        self.unless = unless
        self.is_whole = is_whole
        self._around = around

    @contextlib.contextmanager
    def of_any_error(self) -> Iterator[None]:
        """Count what was made as not whole until the block is left without an error."""
        self.is_whole = False
        yield
        self.is_whole = True

    def __call__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Remove it, as the exit of a context that was left by `error`."""
        if not self.removes(error):
            return
        if self.directory is not None and self.directory.is_file():
            self.directory.unlink(missing_ok=True)
        elif self.directory is not None:
            remove_tree(self.directory)
        self.directory = None  # what is made there from here on is another start's
        for directory in self._around:
            try:
                directory.rmdir()
            except OSError:
                return  # another start uses it already, or it was never made

    def removes(self, error: BaseException | None) -> bool:
        """Whether nothing is left of it after a start that `error` has ended."""
        if self.unless is not None and self.unless.exists():
            return False
        if self.is_whole:
            return isinstance(error, REFUSALS)
        # StoppedError: a signal that ended the wait for another process, whose directory it is.
        return error is not None and not isinstance(error, SessionLockedError | StoppedError)


def remove_tree(directory: Path) -> None:
    """Remove a directory in which threads and children that end with this process may still be writing; never raises.

    What is made in it during the removal is removed by the next of a few rounds.
    """
    for round_ in range(_ROUNDS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.001 * 2**round_)


def find_destination(paths: SessionPaths, options: SessionOptions, *, scratch: Path | None) -> Destination:
    """Return where the results of a start go; the directory of an evaluation is made.

    Args:
        paths: of the session.
        options: of this start.
        scratch: the directory of a dry run, which goes away; None otherwise.

    Raises:
        UsageError: the directory cannot be made.
    """
    if options.mode is not Mode.PLAY:
        if scratch is None:
            return Destination(paths.root, f"session: {paths.root}")
        is_new = options.load_checkpoint is None
        return Destination(paths.root if is_new else scratch, "session: none (dry run)")
    if scratch is not None:
        return Destination(scratch, "evaluation: none (dry run)")
    directory, made = _make(paths, options)
    return Destination(directory, f"evaluation: {directory}", made)


def _make(paths: SessionPaths, options: SessionOptions) -> tuple[Path, tuple[Path, ...]]:
    place = paths.evaluations if options.output is None else new_place(options.output, option="--output")
    try:
        made = missing_directories(place)
        place.mkdir(parents=True, exist_ok=True)
        if options.output is not None:
            # In a directory of the user's only the log is this start's own; what is there already is not.
            report = place / SessionPaths.report_log.name
            return place, made or (() if os.path.lexists(report) else (report,))
        directory = new_directory(place, f"evaluation_{timestamp(datetime.now(UTC))}")
        return directory, (directory, *made)
    except OSError as error:
        raise UsageError(
            f"--output: expected a directory that can be made, found {error.strerror} at {one_line(place)}; "
            f"name another one"
        ) from error
