"""TensorBoard's event file of a session, and its server as a child; its package is imported by the server alone."""

from __future__ import annotations

import logging
import math
import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from digideep.errors import one_line
from digideep.utility.appendfile import AppendFile
from digideep.utility.eventrecord import ScalarEvent, file_record, parse_event, scalars_record

__all__ = ["EVENT_FILE", "EventLength", "EventLog", "TensorBoardServer", "serve"]

logger = logging.getLogger(__name__)

EVENT_FILE = "events.out.tfevents.0000000000.digideep"  # one name, so that every resume continues the same file
_FLOAT32_MAX = 3.4028234e38


class EventLength(NamedTuple):
    """How long an event file was at a moment, for a checkpoint's manifest."""

    name: str
    length: int


class EventLog:
    """Writes scalars to the one event file of `directory`, and continues it in a later process.

    A tag has at most one value a step: a second one is left out, and so is one whose step lies before the last of its
    tag (counted in `out_of_order`) or that no 32-bit float can hold (counted in `not_finite`). Failures of the file
    never raise, as with AppendFile.
    """

    def __init__(self, directory: Path | str) -> None:
        self.out_of_order = 0
        self.not_finite = 0
        self._directory = Path(directory)
        self._file = AppendFile(self._directory / EVENT_FILE, whole_length=self._read_back)
        self._last_step: dict[str, int] = {}  # of each tag
        self._wall_s = 0.0
        self._begun = False

    @property
    def path(self) -> Path:
        """The event file; it is made when the first value is written."""
        return self._file.path

    @property
    def failures(self) -> int:
        """How often the file could not be written."""
        return self._file.failures

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write one event with all of `values` (by tag) at `step`, the frame."""
        if not values:
            return
        self._begin()
        kept = {tag: float(value) for tag, value in values.items() if self._accepts(tag, step, float(value))}
        if not kept:
            return
        self._file.append(scalars_record(self._now_s(), step=step, values=kept))
        self._last_step.update(dict.fromkeys(kept, step))

    def flush(self) -> None:
        """Try again to write events that could not be written."""
        self._file.flush()

    def length(self) -> EventLength:
        """Write out all events; return the file's name and its length in bytes."""
        return EventLength(EVENT_FILE, self._file.length())

    def sync(self) -> EventLength:
        """Make all events durable; return the file's name and its length in bytes."""
        return EventLength(EVENT_FILE, self._file.sync())

    def truncate(self, length: int) -> int:
        """Cut the file to `length` bytes, as a checkpoint knew it; return the length it has. Raises StorageError.

        Steps go on from what remains.
        """
        self._last_step = {}  # where there is no file, nothing is read back
        self._begun = False
        return self._file.truncate(length)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _accepts(self, tag: str, step: int, value: float) -> bool:
        last = self._last_step.get(tag)
        if last is not None and step <= last:
            self.out_of_order += step < last
            return False
        if not math.isfinite(value) or abs(value) > _FLOAT32_MAX:
            self.not_finite += 1
            return False
        return True

    def _begin(self) -> None:
        """Read what stands in the file, or begin a new one with its version record."""
        if self._begun:
            return
        self._begun = True
        try:
            self._directory.mkdir(exist_ok=True)
        except OSError as error:
            logger.warning("%s: cannot be made (%s)", self._directory, error)
        if self._file.sync() == 0:
            self._file.append(file_record(self._now_s()))

    def _now_s(self) -> float:
        """Return the wall clock, held where it jumps back: events out of order confuse TensorBoard."""
        self._wall_s = max(self._wall_s, time.time())
        return self._wall_s

    def _read_back(self, descriptor: int, size: int) -> int:
        """Return the length of the whole records in the file, and take from them the last step of each tag."""
        last_step: dict[str, int] = {}
        length = 0
        for event, end in _events(descriptor, size):
            for tag in event.tags:
                last_step[tag] = max(event.step, last_step.get(tag, event.step))
            self._wall_s = max(self._wall_s, event.wall_s)
            length = end
        self._last_step = last_step
        return length


def _events(descriptor: int, size: int) -> Iterator[tuple[ScalarEvent, int]]:
    """Give the events from the beginning, each with the offset of its end, up to the first that is not whole."""
    if size == 0:
        return
    with open(os.dup(descriptor), "rb") as file:
        file.seek(0)
        end = 0
        while header := file.read(12):  # length and its checksum
            if len(header) < 12:
                return
            (length,) = struct.unpack("<Q", header[:8])
            end += 16 + length
            if end > size:
                return
            try:
                event = parse_event(file.read(length))
            except ValueError:
                return
            file.read(4)
            yield event, end


# The child ends when its standard input does: whatever way this process goes, the other end of that pipe is closed.
# TensorBoard leaves a note about itself among the temporary files: it gets a place of its own, which goes with it.
_CHILD = """
import atexit, os, shutil, sys, tempfile, threading
tempfile.tempdir = tempfile.mkdtemp(prefix="digideep-tensorboard-")
atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)
def watch():
    while os.read(0, 4096):
        pass
    shutil.rmtree(tempfile.tempdir, ignore_errors=True)
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
from tensorboard.main import run_main
sys.argv[0] = "tensorboard"
run_main()
"""
_URL = re.compile(r"TensorBoard \S+ at (https?://\S+)")


class TensorBoardServer:
    """A TensorBoard server in a process of its own; `url` is None until it answers, or if it never does."""

    def __init__(self, process: subprocess.Popen[str], *, on_ready: Callable[[str], None] | None) -> None:
        self.process = process
        self.url: str | None = None
        self._answered = threading.Event()
        self._on_ready = on_ready
        self._reader = threading.Thread(target=self._read, name="tensorboard-output", daemon=True)
        self._reader.start()

    def wait(self, timeout_s: float) -> str | None:
        """Return the address once the server has printed it; None if it ended or the time is over."""
        self._answered.wait(timeout_s)
        return self.url

    def close(self) -> None:
        """End the server."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(2.0)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _read(self) -> None:
        """Find the address in the output; what is printed later is read and dropped, so that the pipe stays empty."""
        assert self.process.stdout is not None
        last = ""
        for line in self.process.stdout:
            match = _URL.search(line) if self.url is None else None
            if match:
                self.url = match.group(1)
                self._answered.set()
                if self._on_ready is not None:
                    self._on_ready(self.url)
            last = line.strip() or last
        if self.url is None:
            logger.warning("TensorBoard did not start: %s", one_line(last) or "it printed nothing")
        self._answered.set()


def serve(
    directory: Path | str, *, host: str = "127.0.0.1", on_ready: Callable[[str], None] | None = None
) -> TensorBoardServer:
    """Return a TensorBoard server for `directory`, on a free port of `host`, that ends with this process.

    It returns at once; `on_ready` is called with the address from another thread. The server has a session (process
    group) of its own, so that Ctrl-C does not reach it before the run has ended.
    """
    command = [sys.executable, "-P", "-W", "ignore", "-c", _CHILD, "--logdir", str(directory)]
    command += ["--host", host, "--port", "0", "--load_fast", "false"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    return TensorBoardServer(process, on_ready=on_ready)
