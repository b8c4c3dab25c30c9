"""What is kept of a run that failed: the environment's own traceback, and the way to see its error again."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from digideep.environment.config import EnvConfig
from digideep.environment.crash import write_crash
from digideep.errors import DigideepError, EnvironmentFailure, StorageError, one_line
from digideep.pipeline.layout import SessionPaths
from digideep.utility.node import configure

__all__ = ["keep_crash", "recorded_failure"]

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def recorded_failure(
    *, finish: Callable[[int, str], None], keep: Callable[[DigideepError], None], report: Path
) -> Iterator[None]:
    """Record how a run fails, and let the error go on.

    Args:
        finish: writes exit code and reason into the session.
        keep: writes what an error of an environment carries.
        report: the log that has the traceback.

    Raises:
        DigideepError: the error itself, or for a fault of ours one that says where the traceback is.
        EnvironmentFailure: code of the user wanted to end the program.
    """
    try:
        yield
    except DigideepError as error:
        logger.error("ends: %s", error, exc_info=True, extra={"report_only": True})
        keep(error)
        _finish_quietly(finish, error.exit_code, str(error))
        raise
    except (SystemExit, KeyboardInterrupt) as error:
        # Signals never end a run this way: an environment or a module of the user wanted to end the program.
        found = f"{type(error).__name__}; an environment or another module of the user wanted to end the program"
        _finish_quietly(finish, EnvironmentFailure.exit_code, found)
        raise EnvironmentFailure(f"run: expected code that returns or raises an error, found {found}") from error
    except Exception as error:
        found = f"{type(error).__name__}: {one_line(error, limit=300)}"
        logger.error("ends: %s", found, exc_info=True, extra={"report_only": True})
        _finish_quietly(finish, DigideepError.exit_code, found)
        raise DigideepError(
            f"run: expected no fault of digideep itself, found {found}; the traceback is in {report}"
        ) from error


def _finish_quietly(finish: Callable[[int, str], None], exit_code: int, reason: str) -> None:
    """Write how the run ended; a disk that refuses even that must not hide the error that ended it."""
    try:
        finish(exit_code, reason)
    except StorageError as error:
        logger.error("how the run ended could not be written: %s", error)


def keep_crash(error: DigideepError, *, paths: SessionPaths, params: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Write what `error` carries of an environment's failure into report.log and `crash/`; nothing for other errors."""
    text = getattr(error, "traceback_text", "")
    if text:
        logger.error("the environment's own traceback", extra={"details": text, "report_only": True})
    place = getattr(error, "crash", None)
    if place is None:
        return
    config = configure(params["env"], where="/env", allowed=allowed, expected=EnvConfig)
    try:
        write_crash(paths.crash, config, error=error, **place)
    except OSError as problem:  # the error that ended the run is the one to tell
        logger.error("%s could not be written: %s", paths.crash, problem)
