"""The last words of a run that ends in the middle of a cycle, because time is over and the main thread is stuck."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from digideep.pipeline.failure import finish_in_passing
from digideep.pipeline.options import Mode

if TYPE_CHECKING:
    from digideep.pipeline.session import Session

__all__ = ["abandon", "leave"]

logger = logging.getLogger(__name__)


def abandon(session: Session, code: int, *, frame: int) -> None:
    """Say, from the watchdog's thread, what stands and what is lost; the process ends right after.

    Args:
        session: what is left.
        code: exit code.
        frame: real transitions up to now.
    """
    if session.options.mode is Mode.PLAY:
        _say(session, "stopped inside an evaluation: no results were written")
        return
    _say(session, f"stopped inside a cycle: {_what_is_left(session, frame)}")
    finish_in_passing(functools.partial(session.finish, wait=False), code, "stopped inside a cycle")


def _what_is_left(session: Session, frame: int) -> str:
    if session.options.dry_run:
        return "a dry run keeps nothing"
    entries = session.summary.checkpoints
    stands, saved_frame = (entries[-1]["name"], entries[-1]["frame"]) if entries else ("no checkpoint", 0)
    return f"{stands} stands, {frame - saved_frame} frames will be repeated"


def leave(session: Session, code: int) -> None:
    """Note how a run ended that is over, and whose process does not leave in time: nothing of it is lost."""
    if session.summary.state == "running":
        finish_in_passing(functools.partial(session.finish, wait=False), code, "stopped while it was leaving")


def _say(session: Session, line: str) -> None:
    session.live.end_with(f"{line}\n")
    logger.warning("%s", line, extra={"report_only": True})
