"""Writing to a terminal that may be closed, full of other lines, or no terminal at all."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from typing import TextIO

from digideep.errors import one_line

__all__ = ["LiveLine", "SafeStream"]


class SafeStream:
    """The standard error stream of the moment, or a given one; writing to it never raises.

    A stream that is closed, broken or missing takes what it can; `failures` counts the rest. Characters that it has no
    code for are written as escapes.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.failures = 0
        self._stream = stream

    @property
    def is_terminal(self) -> bool:
        """Whether a line can be written over."""
        stream = self._now()
        try:
            return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        except (OSError, ValueError):
            return False

    def write(self, text: str) -> bool:
        """Write and flush; return whether it was possible."""
        stream = self._now()
        if stream is None:
            return False
        try:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed. There is nowhere left to say so.
            self.failures += 1
            return False
        return True

    def _now(self) -> TextIO | None:
        # Asked each time: tests and notebooks exchange sys.stderr, and it is None without a console.
        return self._stream if self._stream is not None else getattr(sys.stderr, "unbounded", sys.stderr)


class LiveLine:
    """One line at the bottom of a terminal that is written over again and again; nothing where there is no terminal.

    Log handlers call `above` for their own lines, so that these stay and the live line moves down.
    """

    def __init__(self, stream: SafeStream | None = None, *, interval_s: float = 0.1) -> None:
        self.stream = stream or SafeStream()
        self.enabled = self.stream.is_terminal
        self._interval_s = interval_s
        self._shown = ""
        self._is_over = False
        self._written_s = -interval_s
        self._lock = threading.RLock()

    def update(self, text: str) -> None:
        """Show `text`, cut to the width of the terminal, if the last one has stood for a moment."""
        if not self.enabled:
            return
        now = time.monotonic()
        with self._lock:
            if now - self._written_s < self._interval_s:
                return
            self._written_s = now
            width = shutil.get_terminal_size().columns - 1
            self._shown = one_line(text)[:width]
            self._draw(self._shown)

    def above(self, text: str) -> bool:
        """Write whole lines above the live line; return whether it was possible."""
        with self._lock:
            if self._is_over:
                return False
            if not self._shown:
                return self.stream.write(text)
            return self.stream.write(f"\r\x1b[K{text}{self._shown}")

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            if self._shown:
                self._shown = ""
                self._draw("")

    def end_with(self, text: str) -> None:
        """Write whole lines after which nothing is written any more, by whatever thread."""
        with self._lock:
            self.clear()
            self.above(text)
            self._is_over = True
            self.enabled = False

    def _draw(self, text: str) -> None:
        if not self.stream.write(f"\r\x1b[K{text}"):
            self.enabled = False
            self._shown = ""
