"""What is kept of a run that failed: the environment's own traceback, and the way to see its error again.

`crash/` gets the episode of an environment that failed, or the minibatch of a loss that was not finite.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from digideep.environment.config import EnvConfig
from digideep.environment.crash import CRASH_FILE, write_crash
from digideep.errors import (
    DigideepError,
    EnvironmentFailure,
    NonFiniteError,
    UserCodeError,
    one_line,
    without_controls,
)
from digideep.pipeline.layout import SessionPaths
from digideep.utility.imports import fault_of_user, raised_by_user
from digideep.utility.node import configure

__all__ = ["env_of_crash", "finish_in_passing", "keep_crash", "play_env", "recorded_failure"]

logger = logging.getLogger(__name__)

_WRITING_S = 0.5


@contextlib.contextmanager
def recorded_failure(
    *,
    finish: Callable[[int, str], None],
    keep: Callable[[DigideepError], None],
    report: Path,
    stays: Callable[[DigideepError], bool] = lambda error: True,
    is_dry: bool = False,
) -> Iterator[None]:
    """Record how a run fails, and let the error go on.

    Args:
        finish: writes exit code and reason into the session.
        keep: writes what an error of an environment carries.
        report: the log that has the traceback.
        stays: whether the log will be there after a run that ended with this error.
        is_dry: whether this is a dry run: the traceback goes along with the error then.

    Raises:
        DigideepError: the error itself, or for a fault of ours one that says where the traceback is.
        UserCodeError: code of the user raised another error.
        EnvironmentFailure: code of the user wanted to end the program.
    """
    try:
        yield
    except DigideepError as error:
        logger.error("ends: %s", error, exc_info=True, extra={"report_only": True})
        keep(error)
        _advise(error, session=report.parent)
        _finish_quietly(finish, error.exit_code, str(error))
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {one_line(error, limit=300)}"
        logger.error("ends: %s", found, exc_info=True, extra={"report_only": True})
        told = _unexpected(error)
        _finish_quietly(finish, told.exit_code, str(told) if isinstance(told, UserCodeError) else found)
        if is_dry:
            told.details = without_controls("".join(traceback.format_exception(error)).rstrip())
        kept = f"the traceback is in {report}" if stays(told) else "--dry-run shows the traceback"
        told.args = (f"{told}; {'the traceback is above' if is_dry else kept}",)
        raise told from error
    except BaseException as error:
        # Signals never end a run this way: an environment or a module of the user wanted to end the program.
        found = f"{type(error).__name__}; an environment or another module of the user wanted to end the program"
        _finish_quietly(finish, EnvironmentFailure.exit_code, found)
        raise EnvironmentFailure(f"run: expected code that returns or raises an error, found {found}") from error


def _unexpected(error: Exception) -> DigideepError:
    """Return what is told of an error that nobody raised on purpose: whose code has raised it."""
    place = raised_by_user(error)
    if place:
        return UserCodeError(str(fault_of_user(error, where=place)))
    found = f"{type(error).__name__}: {one_line(error, limit=300)}"
    return DigideepError(f"run: expected no fault of digideep itself, found {found}; please report it")


def _advise(error: DigideepError, *, session: Path) -> None:
    """Add to an error of an environment what can be done about it."""
    if not isinstance(error, EnvironmentFailure | NonFiniteError):
        return
    ending, ways = getattr(error, "ending", "error"), []
    if ending == "hang":
        ways.append("a larger step_timeout_s gives it more time")
    elif "env_error_budget" in str(error):
        ways.append("a larger env_error_budget forgives more")
    elif ending == "error" and getattr(error, "place", None) is not None:
        knob = "on_nonfinite" if isinstance(error, NonFiniteError) else "on_env_error"
        ways.append(f"--set {knob}=reset goes on without the episode")
    if getattr(error, "crash", None) is not None and (session / "crash" / CRASH_FILE).is_file():
        ways.append(f"'python -m digideep.environment.play --replay {shlex.quote(str(session))}' walks there again")
    if ways:
        error.args = (f"{error}; {', '.join(ways)}", *error.args[1:])


def _finish_quietly(finish: Callable[[int, str], None], exit_code: int, reason: str) -> None:
    """Write how the run ended; a disk that refuses even that must not hide the error that ended it."""
    try:
        finish(exit_code, reason)
    except DigideepError as error:  # a file that cannot be read any more is a UsageError
        logger.error("how the run ended could not be written: %s", error)


def finish_in_passing(finish: Callable[[int, str], None], exit_code: int, reason: str) -> None:
    """Write how the run ended while the main thread is stuck and the process about to end.

    The disk may be what hangs: it gets a moment, in a thread that dies with the process.
    """
    writer = threading.Thread(target=_finish_quietly, args=(finish, exit_code, reason), daemon=True)
    writer.start()
    writer.join(_WRITING_S)


def keep_crash(error: DigideepError, *, paths: SessionPaths, params: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Write what `error` carries of its cause into report.log and `crash/`; nothing for other errors."""
    text = getattr(error, "traceback_text", "")
    if text:
        logger.error("the environment's own traceback", extra={"details": text, "report_only": True})
    _keep_batch(error, paths=paths)
    place, note = getattr(error, "crash", None), getattr(error, "crash_note", "")
    if place is None:
        if note:
            _keep_note(note, error, paths=paths)
        return
    config = env_of_crash(place, params=params, allowed=allowed)
    try:
        write_crash(paths.crash, config, error=error, **place)
    except OSError as problem:  # the error that ended the run is the one to tell
        logger.error("%s could not be written: %s", paths.crash, problem)


def _keep_note(note: str, error: DigideepError, *, paths: SessionPaths) -> None:
    """Write into `crash/` why there is no way to the step that failed."""
    try:
        paths.crash.mkdir(exist_ok=True)
        (paths.crash / "note.txt").write_text(f"{note}; it was: {one_line(error)}\n", encoding="utf-8")
    except OSError as problem:
        logger.error("%s could not be written: %s", paths.crash, problem)


def play_env(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's node as tests and plays see it: what is meant for them in place of training's."""
    env = dict(params["env"])
    for name in ("env_kwargs", "wrappers"):
        if env.get(f"play_{name}") is not None:
            env[name] = env[f"play_{name}"]
    return env


def env_of_crash(place: Mapping[str, Any], *, params: Mapping[str, Any], allowed: Sequence[str]) -> EnvConfig:
    """Return the configuration of the environment that failed at `place`, in training or in a test."""
    env = params["env"] if place.get("mode", "train") == "train" else play_env(params)
    return configure(env, where="/env", allowed=allowed, expected=EnvConfig)


def _keep_batch(error: DigideepError, *, paths: SessionPaths) -> None:
    kept = getattr(error, "crash_batch", None)
    if kept is None:
        return
    # Only learners raise such errors, so that whatever this imports is there already.
    from digideep.pipeline.crash_batch import write_crash_batch

    try:
        path = write_crash_batch(paths.crash, kept, error=str(error))
    except (OSError, DigideepError) as problem:  # the error that ended the run is the one to tell
        logger.error("%s could not be written: %s", paths.crash, problem)
    else:
        logger.error("the minibatch and the weights that it met are in %s; digideep.post.load_crash reads them", path)
