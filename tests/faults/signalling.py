"""What a test puts into a program before it begins: signals at a chosen event, a place that hangs, a terminal."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

__all__ = [
    "call_in",
    "count_events",
    "hang_in",
    "signal_at_event",
    "signal_in",
    "take_terminal",
    "workers_of",
    "wrap",
]


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the workers of a program."""
    return [child for child in psutil.Process(pid).children(recursive=True) if "worker" in " ".join(child.cmdline())]


def _stands() -> bool:
    return callable(signal.getsignal(signal.SIGUSR1))


def count_events(path: str) -> None:
    """Write down how many audit events of Python there are from the handlers on to the first save."""
    counter = itertools.count()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if not _stands() or os.path.exists(path):
            return
        number = next(counter)
        if event == "os.mkdir" and ".tmp-0" in str(arguments[0]):
            Path(path).write_text(str(number))

    sys.addaudithook(look)


def signal_at_event(number: int, event: int) -> None:
    """Send a signal to this process at the audit event of that number, counted as `count_events` does."""
    counter = itertools.count()

    def look(name: str, arguments: tuple[Any, ...]) -> None:
        if _stands() and next(counter) == event:
            os.kill(os.getpid(), number)

    sys.addaudithook(look)


def wrap(place: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Put what `make` makes of the function at `module:Class.method` in its place."""
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, make(getattr(owner, name)))


def call_in(place: str, *, action: Callable[[], object], call: int = 1) -> None:
    """Do something at the beginning of a call of `module:Class.method`."""
    calls = itertools.count(1)

    def make(original: Any) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **options: Any) -> Any:
            if next(calls) == call:
                action()
            return original(*args, **options)

        return wrapper

    wrap(place, make)


def signal_in(place: str, *, number: int, call: int = 1) -> None:
    """Send a signal to this process at the beginning of a call of `module:Class.method`."""
    call_in(place, action=lambda: os.kill(os.getpid(), number), call=call)


def hang_in(place: str, *, flag: str, call: int = 1) -> None:
    """Never come back from a call of `module:Class.method`, once the file `flag` is made, which says so."""
    calls = itertools.count(1)

    def make(original: Any) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **options: Any) -> Any:
            if next(calls) == call and not os.path.exists(flag):
                Path(flag).touch()
                while True:
                    time.sleep(1000)
            return original(*args, **options)

        return wrapper

    wrap(place, make)


def take_terminal(path: str) -> None:
    """Make a terminal the one that controls this process and its group, and standard input and error."""
    terminal = os.open(path, os.O_RDWR)  # of a leader of a session without one: it becomes the controlling terminal
    for descriptor in (0, 2):
        os.dup2(terminal, descriptor)
    if terminal > 2:
        os.close(terminal)
