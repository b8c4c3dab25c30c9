"""What is kept of a run that failed: the environment's own traceback, and the way to see its error again."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from digideep.environment.config import EnvConfig
from digideep.environment.crash import write_crash
from digideep.errors import DigideepError
from digideep.pipeline.layout import SessionPaths
from digideep.utility.node import configure

__all__ = ["keep_crash"]

logger = logging.getLogger(__name__)


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
