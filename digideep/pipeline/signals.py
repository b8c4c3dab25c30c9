"""Signals become flags, and a watchdog thread keeps the deadlines that follow from them.

Handlers only set flags; the runner looks at the flags after every cycle. The main thread may be inside one long C call
or waiting for an environment that hangs, and then no Python handler runs: the interpreter's wake-up descriptor still
tells the watchdog, which ends the process when the time is over.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from digideep.utility.offspring import end_offspring, spare_offspring

__all__ = ["HANDLED", "StopRequest"]

logger = logging.getLogger(__name__)

HANDLED = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_SECOND_INTERRUPT_S = 0.5  # two seconds are promised
_LAST_WORDS_S = 1.0


class StopRequest:
    """What signals have asked for since the start.

    `stop_signal` is the number of the first signal that asks for an end, or None. `on_deadline` is called in the
    watchdog thread with the exit code before the process is ended without further ado; it must be quick.
    """

    def __init__(self) -> None:
        self.stop_signal: int | None = None
        self.grace_s = 20.0
        self.on_deadline: Callable[[int], None] | None = None
        self.created = time.monotonic()
        self._save = False
        self._asked_at: float | None = None  # when the first request came that has not been taken up
        self._interrupts = 0
        self._deadline: float | None = None
        self._former: dict[int, Any] = {}
        self._former_wakeup = -1
        self._read_fd = self._write_fd = -1
        self._watchdog: threading.Thread | None = None

    @property
    def exit_code(self) -> int | None:
        """The exit code that the stopping signal stands for, or None."""
        return None if self.stop_signal is None else 128 + self.stop_signal

    def install(self) -> None:
        """Install the handlers and start the watchdog; without effect outside the main thread."""
        if threading.current_thread() is not threading.main_thread() or self._watchdog is not None:
            return
        spare_offspring()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._former_wakeup = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in HANDLED:
            former = signal.getsignal(number)
            if number == signal.SIGHUP and former == signal.SIG_IGN:
                continue  # nohup: stays ignored
            self._former[number] = signal.signal(number, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)  # blocked across an exec into a session's own code
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._watchdog.start()

    def restore(self) -> None:
        """Put the former handlers back and end the watchdog."""
        if self._watchdog is None:
            return
        for number, former in self._former.items():
            signal.signal(number, former if former is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(self._former_wakeup)
        os.close(self._write_fd)
        self._watchdog.join()
        os.close(self._read_fd)
        self._former.clear()
        self._watchdog = None

    def ignore(self) -> None:
        """Ignore every signal from now on, for a process that is leaving: the interpreter takes handlers away first."""
        for number in self._former:
            signal.signal(number, signal.SIG_IGN)

    def is_stopping(self) -> bool:
        """Whether a signal has asked for an end."""
        return self.stop_signal is not None

    def is_urgent(self) -> bool:
        """Whether half of the grace period has passed since a save or an end was asked for."""
        return self._asked_at is not None and time.monotonic() - self._asked_at > 0.5 * self.grace_s

    def request_save(self) -> None:
        """Ask for a save at the end of the cycle, as SIGUSR1 does."""
        self._save = True
        self._note_time()

    def request_stop(self, number: int) -> None:
        """Ask for an end, as the signal `number` does; the first one counts."""
        if self.stop_signal is None:
            self.stop_signal = number
        self._note_time()

    def _note_time(self) -> None:
        if self._asked_at is None:
            self._asked_at = time.monotonic()

    def received(self) -> list[int]:
        """Return the signals that have been asked for and not been taken up yet."""
        stopping = [] if self.stop_signal is None else [self.stop_signal]
        return [*stopping, *([int(signal.SIGUSR1)] if self._save else [])]

    def take_save(self) -> bool:
        """Return whether a save was asked for since the last call."""
        asked, self._save = self._save, False
        if self.stop_signal is None:
            self._asked_at = None
        return asked

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.request_save()
        else:
            self.request_stop(number)

    def _watch(self) -> None:
        # A signal that this thread took between a block in the main thread and an exec would be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        with selectors.DefaultSelector() as selector:
            selector.register(self._read_fd, selectors.EVENT_READ)
            while True:
                left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
                if selector.select(left):
                    received = os.read(self._read_fd, 4096)
                    if not received:
                        return
                    self._note(received)
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self._end()

    def _note(self, received: bytes) -> None:
        for number in received:
            if number not in _STOPPING or number not in self._former:
                continue
            self.request_stop(number)
            self._interrupts += number == signal.SIGINT
            # Some of the grace period belongs to the exit itself.
            allowed = 0.9 * self.grace_s if number != signal.SIGINT else None
            if self._interrupts >= 2:
                allowed = _SECOND_INTERRUPT_S
            if allowed is not None:
                due = time.monotonic() + allowed
                self._deadline = due if self._deadline is None else min(self._deadline, due)

    def _end(self) -> None:
        code = self.exit_code or 1
        # In a thread of its own, which may wait for ever for a lock that the stuck main thread holds.
        last_words = threading.Thread(target=self.on_deadline or _nothing_begun, args=(code,), daemon=True)
        last_words.start()
        last_words.join(_LAST_WORDS_S)
        end_offspring()  # a worker inside a call that keeps its other threads from running sees no end of ours
        os._exit(code)


def _nothing_begun(code: int) -> None:
    logger.warning("stopped by %s before training had begun: nothing was saved", signal.Signals(code - 128).name)
