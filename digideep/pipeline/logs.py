"""The logs of one session, and their lengths, which a checkpoint and a resume must agree on."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from digideep.errors import StorageError, one_line
from digideep.pipeline.fsio import publish_json
from digideep.pipeline.layout import SessionPaths
from digideep.types import StateDict
from digideep.utility.appendfile import open_plain, rewrite
from digideep.utility.jsonl import JsonlWriter
from digideep.utility.monitoring import Monitor
from digideep.utility.profiling import get_timer_root, get_timer_tree, load_timer_state, reset_timers, timer_state
from digideep.utility.tensorboard import EventLog
from digideep.utility.timertree import ProfileLog
from digideep.utility.usage import UsageThread

__all__ = ["SessionLogs"]

logger = logging.getLogger(__name__)

_USAGE_INTERVAL_S = 5.0


class SessionLogs:
    """varlog, prolog, monlog, the event file and the timer tree of a session, and the monitor that feeds them.

    Args:
        paths: where they lie.
        cpu: whether load and memory of the machine are sampled.
        gpu: whether GPUs are.
        facts: stand in timers.json beside the times.
    """

    def __init__(
        self, paths: SessionPaths, *, cpu: bool, gpu: bool, facts: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._facts = facts
        self.monitor = Monitor()
        self._paths = paths
        self._varlog = JsonlWriter(paths.varlog)
        self._prolog = JsonlWriter(paths.prolog)
        self._monlog = JsonlWriter(paths.monlog)
        self._events = EventLog(paths.tensorboard)
        self._profile = ProfileLog()
        self._usage = UsageThread(_USAGE_INTERVAL_S, self._write_usage, cpu=cpu, gpu=gpu) if cpu or gpu else None
        self._timers_refused = False
        self._doubtful: set[Path] = set()  # monitor files of which an fsync has failed
        reset_timers()
        self._clock_offset_s = 0.0
        self._started = time.monotonic()

    @property
    def clock_s(self) -> float:
        """Seconds that processes have spent on this session, up to the checkpoint and since."""
        return self._clock_offset_s + time.monotonic() - self._started

    def start(self) -> None:
        """Begin to sample the machine."""
        if self._usage is not None:
            self._usage.start()

    def stop(self) -> None:
        """End sampling and close every file."""
        if self._usage is not None:
            self._usage.stop()
        for log in (self._varlog, self._prolog, self._monlog, self._events):
            log.close()

    def log_epoch(self) -> dict[str, Any]:
        """Write one row of metrics and one of the profile, and the same numbers for TensorBoard; return the metrics."""
        if self._usage is not None:
            for name, value in self._usage.means_since().items():
                self.monitor.monitor(name, value)
        self.monitor.set_meta(clock=self.clock_s)
        row = self.monitor.dump()
        self._varlog.append(row)
        self._prolog.append({"meta": row["meta"], "data": self._profile.row(get_timer_root())})
        self._events.scalars(int(row["meta"]["frame"]), {name: entry["mean"] for name, entry in row["data"].items()})
        self._events.flush()
        return row

    def timers(self) -> dict[str, Any]:
        """Return the whole timer tree as timers.json has it; for the thread that trains."""
        return get_timer_tree(metadata=self._facts)

    def write_timers(self, tree: Mapping[str, Any]) -> None:
        """Write what `timers` returned to timers.json; a disk that refuses it stops nothing, and is told once."""
        try:
            publish_json(self._paths.timers, tree)
        except StorageError as error:
            if not self._timers_refused:
                logger.warning("the timers could not be written, and are tried again at each save: %s", error)
            self._timers_refused = True

    def lengths(self) -> dict[str, int]:
        """Write out every log and return its length in bytes by path relative to the session; nothing waits for a disk.

        A checkpoint that holds them is to be committed after `sync`.
        """
        event_file = self._events.length()
        lengths = {log.path.name: log.length() for log in (self._varlog, self._prolog, self._monlog)}
        lengths[f"{self._paths.tensorboard.name}/{event_file.name}"] = event_file.length
        for path in self._monitor_files():
            lengths[str(path.relative_to(self._paths.root))] = path.lstat().st_size
        return lengths

    def sync(self) -> None:
        """Make every log durable; may run in another thread while rows are written.

        A log that the disk refuses is a warning: training does not stop for it.
        """
        self._events.sync()
        for log in (self._varlog, self._prolog, self._monlog):
            log.sync()
        for path in self._monitor_files():
            self._sync_file(path)

    def _sync_file(self, path: Path) -> None:
        try:
            if path in self._doubtful:
                rewrite(path)
            descriptor = open_plain(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if path not in self._doubtful:
                logger.warning("%s: cannot be made durable (%s); tried again at the next save", one_line(path), error)
            self._doubtful.add(path)
        else:
            self._doubtful.discard(path)

    def cut(self, lengths: Mapping[str, int]) -> None:
        """Cut every log to the length that a checkpoint knew it to have, 0 for one that it did not know.

        Raises:
            StorageError: a log cannot be cut; going on would repeat its rows.
        """
        for log in (self._varlog, self._prolog, self._monlog):
            log.truncate(lengths.get(log.path.name, 0))
        self._paths.tensorboard.mkdir(exist_ok=True)  # a lost directory is no reason to stop
        directory = self._paths.tensorboard.name
        known = [length for name, length in lengths.items() if name.startswith(f"{directory}/")]
        self._events.truncate(max(known, default=0))
        for path in self._monitor_files():
            _cut_file(path, lengths.get(str(path.relative_to(self._paths.root)), 0))

    def state_dict(self) -> tuple[StateDict, StateDict]:
        """Return the state of the monitor, and apart from it all that the clock has touched."""
        monitor = self.monitor.state_dict()
        clocks = {
            "clock_s": self.clock_s,
            "monitor": monitor.pop("clocks"),
            "profile": self._profile.state_dict(),
            "timers": timer_state(),
        }
        return monitor, clocks

    def load_state_dict(self, monitor: StateDict, clocks: StateDict) -> None:
        """Go on from what `state_dict` returned."""
        self.monitor.load_state_dict({**monitor, "clocks": clocks["monitor"]})
        self._clock_offset_s = float(clocks["clock_s"])
        self._profile.load_state_dict(clocks["profile"])
        load_timer_state(clocks["timers"])

    def _write_usage(self, row: Mapping[str, Any]) -> None:
        meta = {**self.monitor.meta, "clock": self.clock_s}
        self._monlog.append({"meta": meta, "data": row})

    def _monitor_files(self) -> list[Path]:
        return sorted(path for path in self._paths.monitor.glob("*/*.monitor.csv") if not path.is_symlink())


def _cut_file(path: Path, length: int) -> None:
    try:
        descriptor = open_plain(path, os.O_RDWR)
        try:
            size = os.fstat(descriptor).st_size
            if size < length:
                logger.warning("%s: rows are missing, %d bytes of %d are left", one_line(path), size, length)
            os.ftruncate(descriptor, min(length, size))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(f"{one_line(path)}: expected a file that can be cut, found {error}") from error
