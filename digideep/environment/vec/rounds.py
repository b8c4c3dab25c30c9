"""Steps of workers: asked for by words in shared memory, waited for with a short look and then asleep."""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from digideep.environment.vec.child import Child
from digideep.environment.vec.messages import FAILURE, FAULTS
from digideep.environment.vec.signals import (
    ANSWERED,
    ASKED,
    FAILED,
    FAULTED,
    PARENT_SLEEPS,
    PARENT_SPIN_NS,
    ROW,
    SLEEP_MS,
    WORKER_SLEEPS,
    Patience,
    fence,
)
from digideep.environment.vec.workers import Lost, Workers
from digideep.errors import DigideepError

__all__ = ["Round"]

logger = logging.getLogger(__name__)


class Round:
    """The steps of one group of workers, one at a time: `ask`, then `wait`.

    Args:
        workers: all of them.
        indices: those of this group.
        timeout_s: longest time of a step.
        lose: gets a worker that has died or hung in a step, which it replaces, or raises what is to be told.
        note: gets what workers tell of failures that were forgiven.

    Attributes:
        tick: steps asked for.
        row: of the newest step.
        is_open: whether a step was asked for and not waited for to its end.
    """

    def __init__(
        self,
        workers: Workers,
        indices: Sequence[int],
        *,
        timeout_s: float,
        lose: Callable[[Round, Lost], None],
        note: Callable[[Sequence[Any]], None],
    ) -> None:
        self.indices = tuple(indices)
        self.tick = 0
        self.row = 0
        self.is_open = False
        self._workers = workers
        self._timeout_s = timeout_s
        self._lose = lose
        self._note = note
        self._patience = Patience(PARENT_SPIN_NS)
        self._number = 0
        self._began = 0.0
        self._views: list[memoryview] = []

    def attach(self, views: Sequence[memoryview]) -> None:
        """Take over the words of all workers."""
        self._views = [views[index] for index in self.indices]

    def ask(self, t: int) -> None:
        """Have every worker step its environments."""
        number = self._number = self._workers.next_number()
        views = self._views
        self.tick += 1
        self.row = t
        self.is_open = True
        self._began = time.monotonic()
        for view in views:
            view[ROW] = t
        fence()
        for view in views:
            view[ASKED] = number
        fence()
        for index, view in zip(self.indices, views, strict=True):
            if view[WORKER_SLEEPS]:
                self._wake(self._workers.children[index])

    def wait(self) -> None:
        """Wait for all.

        Raises:
            DigideepError: what an environment did wrong, the first by number of the worker.
        """
        number = self._number
        try:
            for view in self._views:
                if not self._patience.sees(view, ANSWERED, number):
                    self._sleep()
                    break
            fence()
            self.is_open = False
            for index, view in zip(self.indices, self._views, strict=True):
                if view[FAILED] == number or view[FAULTED] == number:
                    self._hear(self._workers.children[index], view)
        except DigideepError as error:
            self.is_open = False
            error.row = self.row + 1  # type: ignore[attr-defined]  # another group may be a row ahead
            raise

    def rest(self) -> None:
        """End a step that may have begun; what goes wrong in it is logged, since something else went wrong before."""
        if self.is_open:
            try:
                self.wait()
            except DigideepError as error:
                logger.warning("%s", error, extra={"details": getattr(error, "traceback_text", "")})

    def _hear(self, child: Child, view: memoryview) -> None:
        """Take what a worker has sent about a step that went wrong in it."""
        workers, number = self._workers, self._number
        try:
            if view[FAULTED] == number:
                self._note(workers.kept(child, number, FAULTS).content)
            if view[FAILED] == number:
                raise workers.failed(child, workers.kept(child, number, FAILURE))
        except Lost as lost:
            self._lose(self, lost)

    def _wake(self, child: Child) -> None:
        try:
            child.wake(self._number, timeout_s=self._timeout_s)
        except TimeoutError:
            self._hangs(child)

    def _hangs(self, child: Child) -> None:
        try:
            self._workers.hangs(child, self._timeout_s)
        except Lost as lost:
            self._lose(self, lost)

    def _sleep(self) -> None:
        """Wait without using the processor."""
        deadline = self._began + self._timeout_s
        try:
            while pending := [
                (self._workers.children[index], view)
                for index, view in zip(self.indices, self._views, strict=True)
                if view[ANSWERED] < self._number
            ]:
                if time.monotonic() > deadline:
                    self._hangs(pending[0][0])
                    continue
                try:
                    self._nap(pending)
                except Lost as lost:
                    self._lose(self, lost)
        finally:
            for view in self._views:
                view[PARENT_SLEEPS] = 0

    def _nap(self, pending: Sequence[tuple[Child, memoryview]]) -> None:
        poll = select.poll()
        for child, view in pending:
            view[PARENT_SLEEPS] = 1
            poll.register(child.channel.fileno(), select.POLLIN)
        fence()
        if all(view[ANSWERED] >= self._number for _, view in pending):
            return
        readable = {descriptor for descriptor, _ in poll.poll(SLEEP_MS)}
        for child, _ in pending:
            if child.channel.fileno() in readable:
                try:
                    child.drain()
                except EOFError:
                    self._workers.died(child)
            elif not child.is_running:
                self._workers.died(child)
