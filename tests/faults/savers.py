"""A saver with a disk that waits until it is told to go on, or refuses."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from digideep.pipeline.checkpoint import CheckpointStore
from digideep.pipeline.filesystem import RealFileSystem
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.logs import SessionLogs
from digideep.pipeline.saving import Origin, Saver
from digideep.pipeline.summary import Summary

__all__ = ["Bench", "SlowDisk", "save_threads"]

_PARAMS = {"runner": {"keep_last": 2, "keep_best": 0, "keep_every": 0}}


def save_threads() -> list[str]:
    """Return the threads of savers that are there."""
    return [thread.name for thread in threading.enumerate() if thread.name == "save"]


class SlowDisk(RealFileSystem):
    """Makes no directory before `gate` is set, and refuses the next `refusals` of them with `number`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Event()
        self.refusals = 0
        self.number = 0
        self.calls: list[str] = []

    def mkdir(self, path: Path) -> None:
        """Wait, then make a directory or refuse it."""
        self.arrived.set()
        assert self.gate.wait(30.0), "nobody opened the gate"
        if self.refusals and path.name.startswith(".tmp-"):
            self.refusals -= 1
            raise OSError(self.number, os.strerror(self.number), str(path))
        super().mkdir(path)

    def fsync_directory(self, path: Path) -> None:
        """Note when the directory of all checkpoints was made durable."""
        super().fsync_directory(path)
        if path.name == "checkpoints":
            self.calls.append("durable")

    def rename(self, source: Path, target: Path) -> None:
        """Note the rename."""
        super().rename(source, target)
        self.calls.append(f"rename {target.name.partition('-run')[0]}")


class Bench:
    """A session's directory, its logs and summary, and a saver over them; `said` has the lines it announced."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.paths = SessionPaths(directory)
        self.disk = SlowDisk()
        self.logs = SessionLogs(self.paths, cpu=False, gpu=False)
        self.summary = Summary()
        self.said: list[str] = []
        self.saver = Saver(
            self.paths,
            store=CheckpointStore(self.paths.checkpoints, session_id="session", run_id="run", fs=self.disk),
            logs=self.logs,
            summary=self.summary,
            say=self._say,
        )

    def _say(self, line: str) -> None:
        self.disk.calls.append("said")
        self.said.append(line.rpartition("/")[2])

    def begin(self, number: int, state: dict[str, Any], *, wait: bool = False) -> None:
        """Begin a save of `state`, or make a whole one with `wait`."""
        progress = {"epoch": number, "frame": 10 * number, "episode": 0, "frames_per_s": 1.0, "last_test": None}
        save = self.saver.save if wait else self.saver.begin
        save(number, state, progress, origin=Origin(_PARAMS, "cpu", "exact"), begun_at=time.monotonic())

    def load(self, number: int | None = None) -> dict[str, Any]:
        """Return the components of a checkpoint, read by a process that knows nothing."""
        return CheckpointStore(self.paths.checkpoints, session_id="session", run_id="next").load(number).components

    def close(self) -> None:
        """Let the disk go on and wait for what is under way."""
        self.disk.gate.set()
        self.saver.close()
        self.logs.stop()
