"""What the explorers of one session share: how often workers are replaced, and whom they tell of failures."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from digideep.environment.crash import write_crash
from digideep.environment.recovery import ErrorCount, Supervision
from digideep.environment.vec.restart import RestartBudget
from digideep.errors import DigideepError, EnvironmentFailure
from digideep.pipeline.failure import env_of_crash, finish_in_passing
from digideep.pipeline.options import Mode

if TYPE_CHECKING:
    from digideep.pipeline.session import Session

__all__ = ["supervise"]

logger = logging.getLogger(__name__)


def supervise(session: Session) -> Supervision:
    """Return what the explorers of `session` are given."""

    def keep_first(error: DigideepError) -> None:
        _keep_first(session, error)

    def tell_stuck(line: str) -> None:
        _tell_stuck(session, line)

    return Supervision(RestartBudget(), on_first=keep_first, on_stuck=tell_stuck, errors=ErrorCount())


def _keep_first(session: Session, error: DigideepError) -> None:
    """Write the way to a failure that was forgiven into `crash/`; a play changes nothing in a session."""
    place = getattr(error, "crash", None)
    if place is None or session.experiment is None or session.options.mode is Mode.PLAY:
        return
    config = env_of_crash(place, params=session.experiment.params, allowed=session.allowed)
    try:
        write_crash(session.paths.crash, config, error=error, **place)
    except OSError as problem:
        logger.warning("%s could not be written: %s", session.paths.crash, problem)


def _tell_stuck(session: Session, line: str) -> None:
    """Say, from another thread, why the process ends, and write it down if the disk lets us."""
    session.live.clear()
    session.live.above(f"digideep: error: {line}\n")
    finish_in_passing(functools.partial(session.finish, wait=False), EnvironmentFailure.exit_code, line)
