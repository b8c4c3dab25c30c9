"""The one thread that writes checkpoints while training goes on: at most one job at a time, and never left behind."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import NamedTuple

from digideep.pipeline.signals import HANDLED
from digideep.utility.profiling import TimerNode, TimerStack

__all__ = ["Job", "Written", "Writer"]

logger = logging.getLogger(__name__)

Job = Callable[[TimerStack], None]
"""What the thread does; it times itself with the stack, which is its own."""


class Written(NamedTuple):
    """How a job ended: its error, or None, and what took how long."""

    error: BaseException | None
    timers: TimerNode


class Writer:
    """Runs one job after the other, each in a thread that ends with it: between two saves there is no thread.

    Where the machine gives no thread the caller's does the job: training waits for it, and nothing is lost.

    Args:
        level: how deep blocks of its timers are kept: -1 all, 0 none.
    """

    def __init__(self, *, level: int = -1) -> None:
        self._level = level
        self._thread: threading.Thread | None = None
        self._written: Written | None = None

    def start(self, job: Job) -> None:
        """Begin a job; what `take` gives of the one before has to be taken first."""
        if self._thread is not None or self._written is not None:
            raise RuntimeError("a job is running, or its end was not taken")
        # No daemon: at the end of the interpreter it is waited for, and nothing it waits for is in another thread.
        thread = threading.Thread(target=self._run_apart, args=(job,), name="save")
        try:
            thread.start()
        except RuntimeError as error:  # the limit of processes counts threads too
            logger.warning("save: %s; training waits until it is done (ulimit -u raises the limit)", error)
            self._run(job)
        else:
            self._thread = thread

    def _run_apart(self, job: Job) -> None:
        # A signal that this thread took would not wake the main thread out of a wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        self._run(job)

    def _run(self, job: Job) -> None:
        stack = TimerStack(self._level)
        error: BaseException | None = None
        try:
            job(stack)
        except BaseException as caught:  # raised again, or counted, by the thread that takes it
            error = caught
        self._written = Written(error, stack.get_root())

    def join(self) -> None:
        """Wait for the job that is running, if one is."""
        if self._thread is not None:
            self._thread.join()

    def take(self, *, wait: bool) -> Written | None:
        """Return how the job ended, once; None where none did.

        Args:
            wait: for a job that is still running; else that is None.
        """
        if self._thread is not None:
            if not wait and self._thread.is_alive():
                return None
            self._thread.join()
            self._thread = None
        written, self._written = self._written, None
        return written
