"""Independent jobs of numpy at the same time, one in this thread and the others in threads of their own."""

from __future__ import annotations

import contextvars
import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Crew"]

T = TypeVar("T")


class Crew:
    """Runs jobs side by side where there are threads for it, else one after the other; results are the same bits.

    It pays for jobs of some tenths of a millisecond that are mostly products of matrices, during which numpy lets
    other threads run. Threads start when there are first jobs for them, end with the crew, and never keep the program
    from ending. A fork of the process starts its own.

    Args:
        threads: this one included.
    """

    def __init__(self, threads: int) -> None:
        self.threads = max(1, threads)
        self._begin()

    def run(self, *jobs: Callable[[], T]) -> list[T]:
        """Return what the jobs return, in their order, once all have ended; the first error of a job is raised."""
        if self.threads == 1 or len(jobs) == 1:
            return [job() for job in jobs]
        self._ensure(min(self.threads, len(jobs)) - 1)
        others = [self._hand_over(job) for job in jobs[1:]]
        try:
            first = jobs[0]()
        finally:
            # Whoever goes on, even after an error, uses the memory that they write to.
            for other in others:
                other.exception()
        return [first, *(other.result() for other in others)]

    def _begin(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = 0
        self._process = os.getpid()

    def _ensure(self, count: int) -> None:
        """Have at least `count` threads beside this one."""
        if self._process != os.getpid():  # threads do not come along with a fork
            self._begin()
        while self._started < count:
            name = f"digideep-crew_{self._started}"
            threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True).start()
            weakref.finalize(self, self._calls.put, None)
            self._started += 1

    def _hand_over(self, job: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        # What numpy does about overflows belongs to the context, which threads do not share.
        context = contextvars.copy_context()
        self._calls.put(lambda: context.run(_settle, future, job))
        return future


def _work(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    for call in iter(calls.get, None):
        call()


def _settle(future: Future[Any], job: Callable[[], Any]) -> None:
    try:
        result = job()
    except BaseException as error:  # raised where the result is asked for
        future.set_exception(error)
    else:
        future.set_result(result)
