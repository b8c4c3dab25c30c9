"""The program's standard output: documented lines only, and never a reason to stop."""

from __future__ import annotations

import os
import sys

from digideep.errors import one_line

__all__ = ["say", "show"]


def say(line: str) -> None:
    """Write one line to standard output; a reader that has gone away changes nothing."""
    show(one_line(line, limit=100_000))


def show(text: str) -> None:
    """Write text of our own, of one or more lines, to standard output."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        _give_up()


def _give_up() -> None:
    """Lead the descriptor elsewhere, or the interpreter would fail once more when it flushes at its end."""
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.close(sink)
    except OSError:
        return
