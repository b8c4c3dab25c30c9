"""Finds an environment of this process that does not come back, and gets the main thread out of it.

A thread looks now and then whether the call that it saw before is still the same. If it is after the time limit, the
main thread gets a signal whose handler raises inside the environment, so that the normal way of a failure begins. Where
that does not work, since the environment swallows it or is inside one long call of a library, the stack of every thread
is logged and the process ends. A library that keeps every other thread from running keeps this one too: environments of
that kind belong into workers, which are ended from outside.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from digideep.errors import EnvironmentFailure
from digideep.utility.offspring import end_offspring

__all__ = ["RAISED", "Hang", "HangWatch", "hung", "late", "let_ctrl_c_out"]

logger = logging.getLogger(__name__)

_SIGNAL = signal.SIGUSR2
_LOOK_S = 1.0
_LEAVE_S = 2.0  # how long the main thread has to come out of the environment
_LAST_WORDS_S = 1.0

_watches: list[HangWatch] = []
_former: list[Any] = []  # handler of the signal before the first watch


class Hang(BaseException):
    """Raised inside an environment that does not come back; no `except Exception` of it may catch this."""


RAISED = BaseException
"""What can come out of a call of an environment: whatever its class, it is a failure of the environment."""


def let_ctrl_c_out(error: BaseException) -> None:
    """Raise an `error` that the keyboard may have caused; programs that handle SIGINT themselves never get such ones.

    What an environment raises is its own failure then, whatever its class.
    """
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise error


def late(limit_s: float) -> str:
    """Return what is said of a call that took longer than `limit_s`."""
    return f"expected an answer within {limit_s:g} s (step_timeout_s), found none"


def hung(where: str, hang: Hang) -> EnvironmentFailure:
    """Return the error that a hang becomes; to be called while it is handled, whose traceback it takes along."""
    error = EnvironmentFailure(f"{where}: {hang}")
    error.traceback_text = traceback.format_exc()  # type: ignore[attr-defined]
    error.ending = "hang"  # type: ignore[attr-defined]
    return error


class HangWatch:
    """Watches the calls of environments in this process, one at a time.

    Args:
        limit_s: longest time of a call.
        on_stuck: gets one line, before the process ends, where the main thread cannot be got out of a call.

    Attributes:
        where: says what is being called, for that line.
    """

    def __init__(self, limit_s: float, *, on_stuck: Callable[[str], None] | None = None) -> None:
        self.limit_s = limit_s
        self._on_stuck = on_stuck
        self._allowed_s = limit_s
        self._calls = 0
        self._is_inside = False
        self._late_call = -1  # the call that is to be left
        self.where: Callable[[], str] = lambda: "environment"
        self._closing = threading.Event()
        self._main = self._caller = threading.get_ident()
        self._can_interrupt = _listen(self)
        self._thread = threading.Thread(target=self._run, name="hang-watch", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Note that a call begins; a few dozen nanoseconds, for it is done at every step."""
        self._caller = threading.get_ident()
        self._calls += 1
        self._is_inside = True

    def end(self) -> None:
        """Note that it has come back."""
        self._is_inside = False

    def guard(self, where: Callable[[], str], *, limit_s: float | None = None) -> _Guard:
        """Return a context that watches what is done inside its block.

        Raises:
            EnvironmentFailure: it took longer than the limit; the message begins with `where()`.
        """
        return _Guard(self, where, limit_s=self.limit_s if limit_s is None else limit_s)

    def close(self) -> None:
        """End the thread and give the signal back; harmless when repeated."""
        self._closing.set()
        self._is_inside = False
        if self in _watches:
            _watches.remove(self)
            if not _watches and threading.current_thread() is threading.main_thread():
                signal.signal(_SIGNAL, _former.pop())
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def interrupt(self, frame: FrameType | None) -> None:
        """Raise where the main thread is, if that is still inside the call that is late.

        In a frame of this module the call has just come back, and nobody would catch it there.
        """
        has_come_back = frame is not None and frame.f_code.co_filename == HangWatch.end.__code__.co_filename
        if self._is_inside and self._late_call == self._calls and not has_come_back:
            self._late_call = -1
            raise Hang(f"{late(self._allowed_s)}; its stack is in the log")

    def _run(self) -> None:
        seen, since = -1, 0.0
        while not self._closing.wait(min(_LOOK_S, self._allowed_s / 8)):
            now = time.monotonic()
            if not self._is_inside or self._calls != seen:
                seen, since = self._calls, now
            elif now - since >= self._allowed_s:
                self._leave(seen)
                seen = -1

    def _leave(self, call: int) -> None:
        """Get the main thread out of a call, or end the process."""
        deadline = time.monotonic() + _LEAVE_S
        self._late_call = call
        stacks = _stacks()
        if self._can_interrupt and self._caller == self._main:
            signal.pthread_kill(self._main, _SIGNAL)
            while time.monotonic() < deadline:
                if self._calls != call or not self._is_inside or self._closing.wait(0.02):
                    return
        words = threading.Thread(target=self._say, args=(stacks,), daemon=True)
        words.start()
        words.join(_LAST_WORDS_S)  # it may wait for ever for a lock that the stuck thread holds
        end_offspring()
        os._exit(EnvironmentFailure.exit_code)

    def _say(self, stacks: str) -> None:
        line = f"{self.where()}: {late(self._allowed_s)}; it cannot be interrupted, so this process ends"
        logger.error("%s", line, extra={"details": stacks, "report_only": self._on_stuck is not None})
        if self._on_stuck is not None:
            self._on_stuck(line)


class _Guard:
    def __init__(self, watch: HangWatch, where: Callable[[], str], *, limit_s: float) -> None:
        self._watch = watch
        self._where = where
        self._limit_s = limit_s

    def __enter__(self) -> None:
        watch = self._watch
        self._former, watch.where = watch.where, self._where
        watch._allowed_s = self._limit_s
        watch.begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        watch = self._watch
        watch.end()
        watch.where, watch._allowed_s = self._former, watch.limit_s
        if isinstance(error, Hang):
            raise hung(self._where(), error) from None


def _listen(watch: HangWatch) -> bool:
    """Install the handler where that is possible: in the main thread, and where no C code has the signal."""
    former = signal.getsignal(_SIGNAL)
    if threading.current_thread() is not threading.main_thread() or former is None:
        return False
    if not _watches:
        _former.append(former)
        signal.signal(_SIGNAL, _handle)
    _watches.append(watch)
    return True


def _handle(number: int, frame: FrameType | None) -> None:
    for watch in tuple(_watches):
        watch.interrupt(frame)
    if _former and callable(_former[0]):
        _former[0](number, frame)


def _stacks() -> str:
    """Return the Python stack of every thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            parts.append(f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)
