"""How often workers may be replaced: a few times in ten minutes, with the first error kept to the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from digideep.environment.vec.base import traced
from digideep.errors import WorkerError

__all__ = ["RESTARTS", "RestartBudget"]

logger = logging.getLogger(__name__)

RESTARTS = 3
_WINDOW_S = 600.0


class RestartBudget:
    """Counts the workers that died or hung, over all explorers of one run.

    Args:
        limit: workers that may be replaced within ten minutes; 0 replaces none.
        clock: seconds that only go forward.
    """

    def __init__(self, limit: int = RESTARTS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._spent: list[float] = []
        self._lost = 0
        self._first = ""

    def spend(self, error: WorkerError) -> None:
        """Take one restart and warn of its cause.

        Raises:
            WorkerError: none is left; of more than one loss the message has the last and the first.
        """
        self._lost += 1
        self._first = self._first or str(error)
        now = self._clock()
        self._spent = [moment for moment in self._spent if now - moment < _WINDOW_S]
        if len(self._spent) >= self._limit:
            if self._lost == 1:
                raise error
            final = WorkerError(f"{error}; the first of {self._lost} was: {self._first}")
            traced(final, getattr(error, "traceback_text", ""), getattr(error, "place", None))
            final.ending = getattr(error, "ending", "death")  # type: ignore[attr-defined]
            raise final from error
        self._spent.append(now)
        logger.warning(
            "%s; it is replaced (%d of %d in 10 minutes)",
            error, len(self._spent), self._limit,
            extra={"details": getattr(error, "traceback_text", "")},
        )  # fmt: skip
