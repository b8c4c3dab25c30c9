"""The program's standard output: documented lines only, and never a reason to stop."""

from __future__ import annotations

import os
import sys

from digideep.errors import one_line

__all__ = ["give_back", "keep_for_ourselves", "say", "show"]


_descriptor: int | None = None


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
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
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
