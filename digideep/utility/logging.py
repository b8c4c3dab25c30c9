"""The log of a session: report.log beside plain lines on stderr, each message once, however often it comes.

`open_report` sets up the logger `digideep` and nothing else. Messages are one line each; control characters in them
are replaced, so that a name cannot forge a line. Tracebacks are in report.log only. Two attributes of a record, given
as `extra={...}`, steer this: `details`, text of several lines that goes to report.log below its message, and
`report_only`, true for what does not belong on stderr.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO

from digideep.errors import UsageError, one_line
from digideep.utility.appendfile import open_append
from digideep.utility.livelog import LiveLine, SafeStream
from digideep.utility.values import closest

__all__ = ["LEVELS", "Report", "level_name", "open_report", "parse_level"]

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
FILE_BYTES = 10 * 2**20  # of report.log; with the four older ones 50 MB
OLDER_FILES = 4
SAME_MESSAGES = 5  # of one place; those after them are counted
_MAX_PLACES = 4096
_MAX_DETAILS = 200_000  # characters of a traceback
_LINE = 4000  # characters of a message
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def level_name(text: str | int) -> str:
    """Return debug, info, warn, error or fatal for a level given by name or as number 0 to 4. Raises UsageError."""
    word, names = str(text).strip().lower(), list(LEVELS)
    if word.isascii() and word.isdigit() and len(word) == 1 and int(word) < len(names):
        return names[int(word)]
    word = {"warning": "warn", "critical": "fatal"}.get(word, word)
    if word not in LEVELS:
        near = closest(word, names)
        raise UsageError(
            f"--log-level: expected {', '.join(names)} or 0 to {len(names) - 1}, found {one_line(text, limit=60)!r}; "
            f"{f'did you mean {near!r}?' if near else 'give one of them'}"
        )
    return word


def parse_level(text: str | int) -> int:
    """Return the level of the logging module that `level_name` stands for. Raises UsageError."""
    return LEVELS[level_name(text)]


class RepeatFilter(logging.Filter):
    """Lets the first messages that one place repeats pass, and counts the rest.

    One filter serves several handlers: the verdict on a record is given once. Records with `is_row` (given as `extra`)
    pass and are not remembered: no two rows of a run are the same.
    """

    def __init__(self, limit: int = SAME_MESSAGES) -> None:
        super().__init__()
        self.limit = limit
        self._counts: dict[tuple[str, str, int, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be written."""
        verdict: bool | None = getattr(record, "digideep_passes", None)
        if verdict is None:
            verdict = record.digideep_passes = getattr(record, "is_row", False) or self._passes(record)
        return verdict

    def summary(self) -> list[str]:
        """Return a line for each message that was held back, with its count, and begin to count anew."""
        lines = [
            f"{count - self.limit} more times: {message}"
            for (_, _, _, message), count in self._counts.items()
            if count > self.limit
        ]
        self._counts.clear()
        return lines

    def _passes(self, record: logging.LogRecord) -> bool:
        key = (record.name, record.pathname, record.lineno, _message(record))
        count = self._counts.get(key, 0) + 1
        if count == 1 and len(self._counts) >= _MAX_PLACES:
            # Forget the oldest that was never held back; without one there is no room, and the message passes.
            oldest = next((known for known, n in self._counts.items() if n <= self.limit), None)
            if oldest is None:
                return True
            del self._counts[oldest]
        self._counts[key] = count
        return count <= self.limit


class _StderrHandler(logging.Handler):
    """Plain lines on stderr: the message, with its level where it is a warning or worse."""

    def __init__(self, live: LiveLine) -> None:
        super().__init__()
        self._live = live

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "report_only", False):
            return
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        self._live.above(f"{level}{_message(record)}\n")


class _FileHandler(logging.Handler):
    """report.log and its older parts, `report.log.1` to `.4`; a failure of the disk never raises.

    The first failure is told on stderr, and the next message that can be written says how many are missing.
    """

    def __init__(self, path: Path, live: LiveLine) -> None:
        super().__init__()
        self._path = path
        self._live = live
        self._descriptor: int | None = None
        self._missing = 0
        self._told = False

    def emit(self, record: logging.LogRecord) -> None:
        data = _report_text(record).encode("utf-8", "backslashreplace")
        if self._missing:
            data = _stamped(record.created, f"WARNING {self._missing} messages are missing here") + data
        try:
            self._write(data)
            self._missing = 0
        except OSError as error:
            self._missing += 1
            if not self._told:
                self._told = True
                self._live.above(f"warning: {one_line(self._path)}: cannot be written ({one_line(error)})\n")

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
        super().close()

    def _write(self, data: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = open_append(self._path)
        size = os.fstat(self._descriptor).st_size
        if size and size + len(data) > FILE_BYTES:
            self._rotate()
            size = 0
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, size)  # no half message in front of the next
            raise

    def _rotate(self) -> None:
        assert self._descriptor is not None
        os.close(self._descriptor)
        self._descriptor = None
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{i}") for i in range(1, OLDER_FILES + 1))]
        for newer, older in reversed(list(itertools.pairwise(names))):
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)
        self._descriptor = open_append(self._path)


class Report:
    """The open log: `live` is the line at the bottom of a terminal, `close` puts everything back as it was."""

    def __init__(self, path: Path | None, *, level: int, stream: TextIO | None = None) -> None:
        self.live = LiveLine(SafeStream(stream))
        self.logger = logging.getLogger("digideep")
        self._repeats = RepeatFilter()
        self._open = True
        self._before = (self.logger.level, self.logger.propagate, self.logger.handlers[:], self.logger.disabled)
        handlers: list[logging.Handler] = [_StderrHandler(self.live)]
        handlers[0].setLevel(level)
        if path is not None:
            handlers.append(_FileHandler(path, self.live))
            # The file tells the course of events also where the user wants a quiet terminal.
            handlers[1].setLevel(min(level, logging.INFO))
        for handler in handlers:
            handler.addFilter(self._repeats)
        self._handlers = handlers
        self.logger.handlers = handlers[:]
        self.logger.setLevel(min(handler.level for handler in handlers))
        self.logger.propagate = False  # whatever handlers others give the root logger
        self.logger.disabled = False
        self._showwarning = warnings.showwarning
        warnings.showwarning = self._show_warning
        self._ours = warnings.showwarning

    def close(self) -> None:
        """Tell how often repeated messages were held back, and restore the logger; again does nothing."""
        if not self._open:
            return
        self._open = False
        for line in self._repeats.summary():
            self.logger.warning("%s", line)
        self.live.clear()
        if warnings.showwarning is self._ours:  # else somebody replaced it since, and may restore it later
            warnings.showwarning = self._showwarning
        level, propagate, handlers, disabled = self._before
        self.logger.handlers = handlers
        self.logger.propagate = propagate
        self.logger.disabled = disabled
        self.logger.setLevel(level)
        for handler in self._handlers:
            handler.close()

    def _show_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        """Take a warning of any library into the log, as one message of the place that it names."""
        if file is not None or not self._open:
            self._showwarning(message, category, filename, lineno, file, line)
            return
        logger = logging.getLogger("digideep.warnings")
        if logger.isEnabledFor(logging.WARNING):
            text = f"{category.__name__}: {message} ({filename}:{lineno})"
            logger.handle(logger.makeRecord(logger.name, logging.WARNING, filename, lineno, "%s", (text,), None))


def open_report(path: Path | str | None, level: int | str = logging.INFO, *, stream: TextIO | None = None) -> Report:
    """Return the open log of a session.

    Args:
        path: report.log, continued if it exists; None for a run that leaves nothing on disk.
        level: of what goes to stderr, a number of the logging module or a word for `parse_level`; report.log has
            at least `info`.
        stream: instead of stderr.
    """
    number = parse_level(level) if isinstance(level, str) else level
    return Report(Path(path) if path is not None else None, level=number, stream=stream)


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except (TypeError, ValueError, KeyError) as error:  # arguments that do not fit must not end a run
        text = f"{record.msg!r} {record.args!r} ({error})"
    indent = " " * (len(text) - len(text.lstrip(" ")))  # of the rows of a table
    return indent[:80] + one_line(text, limit=_LINE)


def _report_text(record: logging.LogRecord) -> str:
    """Return a record as it stands in report.log: one line, and details indented below it."""
    parts = [str(getattr(record, "details", "") or "")]
    if record.exc_info and record.exc_info[0] is not None:
        parts.append("".join(traceback.format_exception(*record.exc_info)))
    if record.stack_info:
        parts.append(record.stack_info)
    details = "\n".join(part for part in parts if part)[-_MAX_DETAILS:]
    head = _stamped(record.created, f"{record.levelname} {record.name}: {_message(record)}").decode()
    lines = _CONTROL.sub(" ", details).splitlines()
    return head + "".join(f"    {line}\n" for line in lines)


def _stamped(created_s: float, text: str) -> bytes:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created_s))
    return f"{moment}.{int(created_s * 1000) % 1000:03d}Z {text}\n".encode("utf-8", "backslashreplace")
