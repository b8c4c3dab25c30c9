"""New episodes where environments failed and were forgiven, or where their worker had to be replaced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from digideep.environment.vec.base import Fault, VecEnv, told_in, traced
from digideep.environment.vec.restart import RestartBudget
from digideep.errors import DigideepError, EnvironmentFailure

__all__ = ["ErrorCount", "Recovery", "Supervision"]

logger = logging.getLogger(__name__)

_TRACED = 10  # errors of which the log gets the traceback
_TOLD = 100  # errors of which it gets a line each; of those after them every hundredth


class Supervision(NamedTuple):
    """What the explorers of one run share, and whom they tell.

    Attributes:
        restarts: how often workers may be replaced.
        on_first: gets the first failure that is forgiven and can be walked to, with what is needed for that.
        on_stuck: gets one line before a process ends whose environment cannot be interrupted.
        errors: what all explorers have forgiven together; None: each counts for itself.
    """

    restarts: RestartBudget
    on_first: Callable[[DigideepError], None] | None = None
    on_stuck: Callable[[str], None] | None = None
    errors: ErrorCount | None = None


class ErrorCount:
    """Counts the errors that were forgiven in training and tests together, over all processes of a session."""

    def __init__(self) -> None:
        self.total = 0


class Recovery:
    """Counts the errors of environments against a budget, and makes the environments anew.

    Args:
        vec: the environments.
        budget: errors that are forgiven.
        on_first: gets the first failure of this process that can be walked to, with what is needed for that.
        errors: counts those of the other explorers too, which the budget is for.
        mode: of the explorer, for messages.

    Attributes:
        env_errors: errors of these environments that were forgiven, over all processes of a session.
        errors: as above.
    """

    def __init__(
        self,
        vec: VecEnv,
        *,
        budget: int,
        on_first: Callable[[DigideepError], None] | None = None,
        errors: ErrorCount | None = None,
        mode: str = "train",
    ) -> None:
        self.env_errors = 0
        self.errors = errors or ErrorCount()
        self._mode = mode
        self._vec = vec
        self._budget = budget
        self._on_first = on_first
        self._first: DigideepError | None = None
        self._crash: Mapping[str, Any] | None = None

    @classmethod
    def supervised(cls, vec: VecEnv, supervision: Supervision, *, budget: int, mode: str) -> Recovery:
        """Return the recovery of one of the explorers that share a supervision."""
        return cls(vec, budget=budget, on_first=supervision.on_first, errors=supervision.errors, mode=mode)

    def counts(self) -> dict[str, int]:
        """Return what a checkpoint keeps: `env_errors`, and in `session_errors` those of all explorers."""
        return {"env_errors": self.env_errors, "session_errors": self.errors.total}

    def load_counts(self, state: Mapping[str, Any]) -> None:
        """Go on counting where `counts` stood."""
        self.env_errors = int(state.get("env_errors", 0))
        self.errors.total = int(state.get("session_errors", self.env_errors))

    def take(self, add_crash: Callable[[DigideepError], None]) -> Sequence[Fault]:
        """Return what failed since the last call, each environment made anew; it has to be reset by the caller.

        Args:
            add_crash: adds to a failure what is needed to walk to it again.

        Raises:
            EnvironmentFailure: the budget is spent; the message has the last and the first error.
        """
        faults = self._vec.take_faults()
        lost = {fault.env for fault in faults if fault.is_lost}
        for fault in faults:
            told_in(self._mode, fault.error)
            self._first = self._first or fault.error
            if self._crash is None:
                add_crash(fault.error)
                self._keep(fault.error)
            if not fault.is_lost:
                self._count(fault.error)
        broken = {fault.env for fault in faults} - lost
        if broken:
            self._vec.rebuild(sorted(broken))
        return faults

    def final(self, error: Exception, add_crash: Callable[[DigideepError], None]) -> None:
        """Add to the failure that ends a run the way to the first one of this process that can be walked to."""
        if not isinstance(error, DigideepError):
            return
        told_in(self._mode, error)
        if self._crash is None:
            add_crash(error)
        else:
            error.crash = self._crash  # type: ignore[attr-defined]

    def _keep(self, error: DigideepError) -> None:
        self._crash = getattr(error, "crash", None)
        if self._crash is not None and self._on_first is not None:
            self._on_first(error)

    def _count(self, error: DigideepError) -> None:
        if self.errors.total >= self._budget:
            first = "" if self._first is error else f"; the first of this process was: {self._first}"
            text = f"{error}; env_error_budget {self._budget} is spent{first}"
            raise traced(EnvironmentFailure(text), getattr(error, "traceback_text", "")) from error
        self.env_errors += 1
        self.errors.total += 1
        count = self.errors.total
        if count <= _TOLD or count % _TOLD == 0:
            details = getattr(error, "traceback_text", "") if count <= _TRACED else ""
            logger.warning(
                "%s; its episode is dropped, error %d of %d", error, count, self._budget, extra={"details": details}
            )
