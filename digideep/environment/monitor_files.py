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
from collections.abc import Mapping, Sequence
from pathlib import Path

from digideep.errors import StorageError, one_line
from digideep.types import Episode

__all__ = ["MAX_FILES", "MonitorFiles"]

logger = logging.getLogger(__name__)

MAX_FILES = 8  # a mode; workers beyond share them, so that a session does not fill up with files
_FIXED = ("r", "l", "t", "env")


class MonitorFiles:
    """The monitor files of one mode, made when the first episode ends.

    A file that exists is gone on with: its header stays and rows follow.
    """

    def __init__(self, directory: Path | None, *, mode: str, env_id: str, keys: Sequence[str] = ()) -> None:
        self._directory = directory
        self._mode = mode
        self._env_id = env_id
        self._keys = tuple(keys)
        self._started = time.monotonic()
        self._started_at = time.time()
        self._files: dict[int, _MonitorFile] = {}
        self._is_broken = False

    def write(self, episode: Episode, *, worker: int) -> None:
        """Append one episode; a failure of the file system is logged once and ends the writing, never the training."""
        if self._directory is None or self._is_broken:
            return
        index = worker % MAX_FILES
        try:
            file = self._files.get(index)
            if file is None:
                file = self._files[index] = self._open(self._directory, index)
            file.write(episode, elapsed_s=time.monotonic() - self._started)
        except OSError as error:
            self._is_broken = True
            logger.warning("monitor files of %s: %s; no more rows are written", self._mode, one_line(error))

    def sync(self) -> dict[str, int]:
        """Make all rows durable and return the length of each file, keyed `monitor/<mode>/<worker>.monitor.csv`.

        Raises:
            StorageError: the file system refused.
        """
        lengths = {}
        for index, file in sorted(self._files.items()):
            try:
                lengths[f"monitor/{self._mode}/{_name(index)}"] = file.sync()
            except OSError as error:
                raise StorageError(f"{file.path}: expected to become durable, found {one_line(error)}") from error
        return lengths

    def flush(self) -> None:
        """Hand all rows to the operating system."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Close the files."""
        files, self._files = self._files, {}
        for file in files.values():
            try:
                file.close()
            except OSError as error:
                logger.warning("%s: %s; its last rows are lost", file.path, one_line(error))

    def _open(self, directory: Path, index: int) -> _MonitorFile:
        folder = directory / self._mode
        folder.mkdir(parents=True, exist_ok=True)
        about = {"t_start": self._started_at, "env_id": self._env_id, "mode": self._mode, "worker": index}
        return _MonitorFile(folder / _name(index), about=about, keys=self._keys)


class _MonitorFile:
    def __init__(self, path: Path, *, about: Mapping[str, object], keys: Sequence[str]) -> None:
        self.path = path
        self._about = about
        self._keys = keys
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, 0o644), "a+", encoding="utf-8", newline="")
        self._columns = self._header()
        self._ignored: set[str] = set()

    def _header(self) -> tuple[str, ...] | None:
        """Return the metric columns of a file that goes on; None where there is no header yet."""
        self._file.seek(0)
        first, second = self._file.readline(), self._file.readline()
        self._file.seek(0, os.SEEK_END)
        if not (first.endswith("\n") and second.endswith("\n")):
            self._file.truncate(0)  # empty, or torn within its first lines
            return None
        return tuple(next(csv.reader([second])))[len(_FIXED) :]

    def write(self, episode: Episode, *, elapsed_s: float) -> None:
        if self._columns is None:
            self._columns = (*self._keys, *sorted(set(episode.metrics) - set(self._keys)))
            self._file.write("#" + json.dumps(self._about) + "\n" + _row([*_FIXED, *self._columns]))
        unknown = set(episode.metrics) - set(self._columns) - self._ignored
        if unknown:
            self._ignored |= unknown
            logger.warning(
                "%s: no column for %s, which the first episode did not have; it is in the other logs only",
                self.path,
                ", ".join(sorted(one_line(name, limit=80) for name in unknown)),
            )
        metrics = [repr(episode.metrics[name]) if name in episode.metrics else "" for name in self._columns]
        fixed = [repr(episode.return_), str(episode.length), f"{elapsed_s:.6f}", str(episode.env)]
        self._file.write(_row([*fixed, *metrics]))

    def flush(self) -> None:
        self._file.flush()

    def sync(self) -> int:
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()


def _name(index: int) -> str:
    return f"{index}.monitor.csv"


def _row(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([one_line(cell, limit=200) for cell in cells])
    return line.getvalue()
