"""Monitor files: one row an episode, in the form that other tools of the field read.

The first line is `#` and a JSON object, the second the header `r,l,t,env,...`: return, length, seconds since the start,
number of the environment, then the metrics. The columns of a file never change: they are those of its first episode and
of the keys that were asked for.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from digideep.errors import one_line
from digideep.types import Episode
from digideep.utility.appendfile import AppendFile, open_plain

__all__ = ["MAX_FILES", "MonitorFiles"]

logger = logging.getLogger(__name__)

MAX_FILES = 8  # a mode; workers beyond share them, so that a session does not fill up with files
_FIXED = ("r", "l", "t", "env")
_WAITING = 100_000  # episodes kept while a file cannot be opened; beyond this the oldest are lost
_HEADER_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 16


class MonitorFiles:
    """The monitor files of one mode, made when the first episode ends.

    A file that exists is gone on with: its header stays and rows follow. What the file system refuses is kept and
    tried again, with one warning a file; it never stops the training.
    """

    def __init__(self, directory: Path | None, *, mode: str, env_id: str, keys: Sequence[str] = ()) -> None:
        self._directory = directory
        self._mode = mode
        self._env_id = env_id
        self._keys = tuple(keys)
        self._started = time.monotonic()
        self._started_at = time.time()
        self._files: dict[int, _MonitorFile] = {}

    def write(self, episode: Episode, *, worker: int) -> None:
        """Add one episode; it is in the file after the next `flush`."""
        if self._directory is None:
            return
        index = worker % MAX_FILES
        file = self._files.get(index)
        if file is None:
            about = {"t_start": self._started_at, "env_id": self._env_id, "mode": self._mode, "worker": index}
            path = self._directory / self._mode / _name(index)
            file = self._files[index] = _MonitorFile(path, about=about, keys=self._keys)
        file.add(episode, elapsed_s=time.monotonic() - self._started)

    def sync(self) -> dict[str, int]:
        """Make all rows durable and return the length of each file, keyed `monitor/<mode>/<worker>.monitor.csv`.

        A length is that of the whole rows that are in the file; what the file system refuses comes later.
        """
        return {f"monitor/{self._mode}/{_name(index)}": file.sync() for index, file in sorted(self._files.items())}

    def flush(self) -> None:
        """Hand all rows to the operating system."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Write what is waiting and close the files."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()


class _Row(NamedTuple):
    episode: Episode
    elapsed_s: float


class _MonitorFile:
    def __init__(self, path: Path, *, about: Mapping[str, object], keys: Sequence[str]) -> None:
        self.path = path
        self._about = about
        self._keys = keys
        self._file = AppendFile(path, whole_length=_whole_length)
        self._columns: tuple[str, ...] | None = None
        self._has_header = False
        self._waiting: deque[_Row] = deque(maxlen=_WAITING)
        self._ignored: set[str] = set()
        self._is_told = False

    def add(self, episode: Episode, *, elapsed_s: float) -> None:
        self._waiting.append(_Row(episode, elapsed_s))

    def flush(self) -> bool:
        """Write what is waiting, as one record; return whether everything is in the file."""
        if self._waiting and self._open():
            rows = [self._cells(row) for row in self._waiting]
            self._waiting.clear()
            self._file.append("".join(rows).encode())
        return self._file.flush() and not self._waiting

    def _open(self) -> bool:
        """Return whether the file has its header, without which no row can be written."""
        if self._has_header:
            return True
        try:
            # Not what they lie in: a session that somebody has removed must not come back as a directory of logs.
            self.path.parent.parent.mkdir(exist_ok=True)
            self.path.parent.mkdir(exist_ok=True)
            self._columns = self._columns or _columns(self.path)
        except OSError as error:
            if not self._is_told:
                logger.warning("%s: cannot be opened (%s); rows are kept and tried again", self.path, one_line(error))
            self._is_told = True
            return False
        if self._columns is None:
            first = self._waiting[0].episode
            self._columns = (*self._keys, *sorted(set(first.metrics) - set(self._keys)))
            self._file.append(("#" + json.dumps(self._about) + "\n" + _row([*_FIXED, *self._columns])).encode())
        self._has_header = self._file.flush()
        return self._has_header

    def _cells(self, row: _Row) -> str:
        assert self._columns is not None
        episode = row.episode
        unknown = set(episode.metrics) - set(self._columns) - self._ignored
        if unknown:
            self._ignored |= unknown
            logger.warning(
                "%s: no column for %s, which the first episode did not have; it is in the other logs only",
                self.path,
                ", ".join(sorted(one_line(name, limit=80) for name in unknown)),
            )
        metrics = [repr(episode.metrics[name]) if name in episode.metrics else "" for name in self._columns]
        return _row([repr(episode.return_), str(episode.length), f"{row.elapsed_s:.6f}", str(episode.env), *metrics])

    def sync(self) -> int:
        self.flush()
        return self._file.sync()

    def close(self) -> None:
        self.flush()
        if self._waiting and self._file.flush():  # else the file tells
            logger.warning("%s: cannot be written; its last rows are lost", self.path)
        self._file.close()


def _columns(path: Path) -> tuple[str, ...] | None:
    """Return the metric columns of a file that goes on; None where there is no whole header yet."""
    try:
        descriptor = open_plain(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        head = os.pread(descriptor, _HEADER_BYTES, 0)
    finally:
        os.close(descriptor)
    lines = head.decode("utf-8", "replace").split("\n", 2)
    return tuple(next(csv.reader([lines[1]]), ()))[len(_FIXED) :] if len(lines) == 3 else None


def _whole_length(descriptor: int, size: int) -> int:
    """Return the length up to the last line end; 0 for a file that is torn within its first two lines."""
    if os.pread(descriptor, _HEADER_BYTES, 0).count(b"\n") < 2:
        return 0
    end = size
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _name(index: int) -> str:
    return f"{index}.monitor.csv"


def _row(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([one_line(cell, limit=200) for cell in cells])
    return line.getvalue()
