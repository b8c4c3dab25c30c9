"""Ctrl-C once: saved and 130; twice: out at once. Through a pipe, and from a terminal."""

from __future__ import annotations

import functools
import json
import os
import pty
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fakes import Ended, Program, checkpoints, read, wait_until
from signalling import take_terminal, workers_of

Run = Callable[..., Ended]
Start = Callable[..., Program]
Toy = Callable[..., list[str]]

ENDLESS = ["number_epochs=100000", "test_activate=false", "save_interval=0"]


class Terminal:
    """A terminal whose keys a test presses; `path` is the end that a program takes."""

    def __init__(self) -> None:
        self._ours, self._theirs = pty.openpty()
        self.path = os.ttyname(self._theirs)
        os.set_blocking(self._ours, False)
        self.shown = b""

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._ours, b"\x03")

    def read(self) -> str:
        """Return all that is shown so far."""
        try:
            while received := os.read(self._ours, 1 << 16):
                self.shown += received
        except (BlockingIOError, OSError):
            pass  # nothing there now, or the last program has closed its end
        return self.shown.decode("utf-8", "replace")

    def close(self) -> None:
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def _hanging(tmp_path: Path) -> list[str]:
    faulty = {"fault": "hang", "at": 2, "episode": 1, "once": str(tmp_path / "hangs")}
    knobs = {"model_name": "digideep.testing:Faulty-v0", "env_kwargs": faulty, "number_epochs": 2}
    return ["--cpanel", json.dumps(knobs)]


def _press_until_gone(press: Callable[[], None], program: Program) -> None:
    """Interrupt twice, and again as long as the program is there: two that come at once may be one to the kernel."""
    press()

    def is_gone() -> bool:
        try:
            press()
            time.sleep(0.05)
            return psutil.Process(program.pid).status() == psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.NoSuchProcess, OSError):
            return True

    wait_until(is_gone)


def test_D5_a_second_interrupt_does_not_wait(start: Start, resume: Run, toy: Toy, tmp_path: Path) -> None:
    program = start(*toy("hung"), *_hanging(tmp_path))
    program.wait_for("saved ")
    wait_until((tmp_path / "hangs").exists)
    began = time.monotonic()

    _press_until_gone(lambda: program.send(signal.SIGINT), program)
    ended = program.end(timeout_s=20)

    assert ended.code == 130
    assert time.monotonic() - began < 10.0  # two seconds are promised; the machine may be busy
    assert "Traceback" not in ended.err
    resume(ended.session)


def test_D5_the_key_of_a_terminal_saves_and_ends(start: Start, toy: Toy, terminal: Terminal) -> None:
    program = start(*toy("typed", *ENDLESS, "num_workers=2"), before=functools.partial(take_terminal, terminal.path))
    program.wait_for("saved ")
    wait_until(lambda: "frames/s" in terminal.read())  # the live line, which only a terminal gets
    workers = workers_of(program.pid)

    terminal.interrupt()
    ended = program.end()

    shown = terminal.read()
    assert ended.code == 130
    assert ended.saved[-1] == f"checkpoint-{checkpoints(ended.session)[-1]}" != "checkpoint-0"
    assert read(ended.session / "summary.json")["reason"] == "SIGINT"
    assert len(workers) == 2
    assert "Traceback" not in shown and "KeyboardInterrupt" not in shown


def test_D5_the_key_of_a_terminal_pressed_twice_does_not_wait(
    start: Start, resume: Run, toy: Toy, tmp_path: Path, terminal: Terminal
) -> None:
    program = start(*toy("hung"), *_hanging(tmp_path), before=functools.partial(take_terminal, terminal.path))
    program.wait_for("saved ")
    wait_until((tmp_path / "hangs").exists)

    _press_until_gone(terminal.interrupt, program)
    ended = program.end(timeout_s=20)

    shown = terminal.read()
    assert ended.code == 130
    assert "stopped inside a cycle: checkpoint-0 stands, " in shown
    assert "Traceback" not in shown
    resume(ended.session)
