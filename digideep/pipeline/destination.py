"""Where a start puts what it leaves: the session itself, the directory of an evaluation, or a place that goes away."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from digideep.errors import UsageError, one_line
from digideep.pipeline.layout import SessionPaths, new_directory, timestamp
from digideep.pipeline.options import Mode, SessionOptions

__all__ = ["Destination", "find_destination"]


class Destination(NamedTuple):
    """A directory, the line that tells the user about it, and whether this start has made it."""

    directory: Path
    line: str
    is_made: bool


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
            return Destination(paths.root, f"session: {paths.root}", is_made=False)
        is_new = options.load_checkpoint is None
        return Destination(paths.root if is_new else scratch, "session: none (dry run)", is_made=False)
    if scratch is not None:
        return Destination(scratch, "evaluation: none (dry run)", is_made=False)
    directory, is_made = _make(paths, options)
    return Destination(directory, f"evaluation: {directory}", is_made=is_made)


def _make(paths: SessionPaths, options: SessionOptions) -> tuple[Path, bool]:
    place = paths.evaluations if options.output is None else Path(options.output).expanduser().absolute()
    try:
        if options.output is None:
            paths.evaluations.mkdir(exist_ok=True)
            return new_directory(paths.evaluations, f"evaluation_{timestamp(datetime.now(UTC))}"), True
        is_made = not place.exists()
        place.mkdir(parents=True, exist_ok=True)
        return place, is_made
    except OSError as error:
        raise UsageError(
            f"--output: expected a directory that can be made, found {error.strerror} at {one_line(place)}; "
            f"name another one"
        ) from error
