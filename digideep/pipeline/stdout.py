"""The program's standard output: documented lines only, and never a reason to stop."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from digideep.errors import one_line

__all__ = ["bounded", "give_back", "keep_for_ourselves", "say", "show"]

logger = logging.getLogger(__name__)


_LINES = 1000  # of Python code in this process, in one go
_LINES_PER_S = 1.0  # in the long run
_LINES_AGAIN = 10.0  # before a stream that was shut opens again
_LINE = 1000  # characters that count as a line

_descriptor: int | None = None


class _Budget:
    """Lines that may still be written: so many at once, and a few more each second."""

    def __init__(self) -> None:
        self._left = float(_LINES)
        self._looked_at = time.monotonic()
        self._is_spent = self._is_told = False

    def take(self, text: str) -> bool:
        """Whether `text` may be written. Once it may not, nothing may until there is room for some lines."""
        now = time.monotonic()
        self._left = min(float(_LINES), self._left + _LINES_PER_S * (now - self._looked_at))
        self._looked_at = now
        size = max(text.count("\n"), len(text) / _LINE)
        self._is_spent = size > self._left or (self._is_spent and self._left < _LINES_AGAIN)
        if not self._is_spent:
            self._left -= size
        elif not self._is_told:
            self._is_told = True
            logger.warning("an environment or a module prints more than %d lines; the rest is not shown", _LINES)
        return not self._is_spent


class _Bounded:
    """A stream that lets so much through and swallows the rest; everything else is the stream's own."""

    def __init__(self, stream: TextIO, budget: _Budget) -> None:
        self.unbounded = stream
        self._budget = budget
        self._is_inside_line = False

    def write(self, text: str) -> int:
        """Write text if there is room for it."""
        if not text:
            return 0
        written = text if self._budget.take(text) else "\n" if self._is_inside_line else ""
        if written:
            self.unbounded.write(written)
            self._is_inside_line = not written.endswith("\n")
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unbounded, name)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Bound what Python code in this process prints inside the block; our own lines and log are not counted.

    What libraries in C write to the descriptors is not bounded: led through a pipe, the last words of a process that is
    dying would be lost.
    """
    budget = _Budget()
    former = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    ours = {name: _Bounded(stream, budget) for name, stream in former.items() if stream is not None}
    for name, stream in ours.items():
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream in ours.items():
            if getattr(sys, name) is stream:  # else somebody has exchanged it since, and may put it back later
                setattr(sys, name, former[name])


def keep_for_ourselves() -> None:
    """Keep standard output for documented lines: what environments and libraries print goes to standard error.

    For a process of our own only, and before it opens anything: a standard descriptor that is closed is opened on
    nothing, since the next file or pipe would take its number. Child processes print to standard error too.
    """
    global _descriptor
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    _descriptor = os.dup(1)
    os.dup2(2, 1)


def give_back() -> None:
    """Make descriptor 1 standard output again, for the interpreter that this process is about to become."""
    if _descriptor is not None:
        os.dup2(_descriptor, 1)


def say(line: str) -> None:
    """Write one line to standard output; a reader that has gone away changes nothing."""
    show(one_line(line, limit=100_000))


def show(text: str) -> None:
    """Write text of our own, of one or more lines, to standard output."""
    try:
        if _descriptor is not None:
            _write_all(_descriptor, (text + "\n").encode("utf-8", "backslashreplace"))
        else:
            stream = getattr(sys.stdout, "unbounded", sys.stdout)
            stream.write(text + "\n")
            stream.flush()
    except (OSError, ValueError, AttributeError):
        _give_up()


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _give_up() -> None:
    """Lead the descriptor elsewhere, or the interpreter would fail once more when it flushes at its end."""
    try:
        target = sys.stdout.fileno() if _descriptor is None else _descriptor
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, target)
        os.close(sink)
    except (OSError, ValueError, AttributeError):
        return
