"""How busy the machine is: processors, memory, the processes of this run, and GPUs, sampled by a thread."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from digideep.errors import one_line
from digideep.utility.gpu import UNAVAILABLE, GpuReader

__all__ = ["UsageThread"]

logger = logging.getLogger(__name__)

_STOP_S = 0.8


class UsageThread:
    """Gives a row of machine usage to `write` every `interval_s` seconds, from a daemon thread.

    A row is {"cpu": {"total", "per_cpu"}, "memory": {"used_mb", "total_mb"}, "process": {"cpu", "rss_mb", "count"},
    "gpu": [{"index", "name", "load", ...}, ...]}. Loads are in [0, 1], `per_cpu` is a list, `process` is this process
    and all below it, with its load in processors (1.5: one and a half of them busy). What cannot be read is
    "unavailable" (a single figure of a GPU: None), and what was switched off is not in the row. Nothing that psutil,
    NVML or `write` do wrong reaches the caller: the first failure of each is logged.

    Args:
        interval_s: seconds between rows; the first row comes after a second at most.
        write: takes a row; called from the thread, never after `stop` has returned.
        cpu: read processors, memory and processes.
        gpu: read GPUs.
        gpu_limit_s: how long NVML may take.
    """

    def __init__(
        self,
        interval_s: float,
        write: Callable[[dict[str, Any]], None],
        cpu: bool = True,
        gpu: bool = True,
        gpu_limit_s: float = 5.0,
    ) -> None:
        self._interval_s = interval_s
        self._write = write
        self._processors = _Processors() if cpu else None
        self._gpus = GpuReader(limit_s=gpu_limit_s) if gpu else None
        self._stopping = threading.Event()
        self._write_lock = threading.Lock()
        self._sums_lock = threading.Lock()
        self._sums: dict[str, tuple[float, int]] = {}
        self._complaints: set[str] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to sample; without anything to read no thread is started."""
        if self._thread is None and (self._processors is not None or self._gpus is not None):
            self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End sampling, within a second, also where NVML hangs."""
        self._stopping.set()
        if self._gpus is not None:
            self._gpus.close()
        if self._thread is not None:
            self._thread.join(_STOP_S)
            # Held by the thread while it writes: no row may follow the closing of its file.
            if self._write_lock.acquire(timeout=0.1):
                self._write_lock.release()

    def means_since(self) -> dict[str, float]:
        """Return the means since the last call, by metric name; nothing where no row came in between.

        Names: machine/cpu, machine/memory_mb, machine/process_cpu, machine/process_rss_mb, and of each GPU
        machine/gpu0_load, machine/gpu0_memory_mb, machine/gpu0_power_w, machine/gpu0_temperature_c.
        """
        with self._sums_lock:
            sums, self._sums = self._sums, {}
        return {name: total / count for name, (total, count) in sums.items()}

    def _run(self) -> None:
        if self._processors is not None:
            self._attempt("psutil", self._processors.prime)
        wait_s = min(1.0, self._interval_s)
        while not self._stopping.wait(wait_s):
            wait_s = self._interval_s
            row = self._sample()
            with self._write_lock:
                if self._stopping.is_set():
                    return
                self._attempt("the log of machine usage", functools.partial(self._write, row))
            with self._sums_lock:
                for name, value in _metrics(row):
                    total, count = self._sums.get(name, (0.0, 0))
                    self._sums[name] = (total + value, count + 1)

    def _sample(self) -> dict[str, Any]:
        row: dict[str, Any] = {}
        if self._processors is not None:
            for key, read in self._processors.readings().items():
                row[key] = self._attempt("psutil", read)
        if self._gpus is not None:
            row["gpu"] = self._gpus.read()
        return row

    def _attempt(self, what: str, action: Callable[[], Any]) -> Any:
        """Return what `action` gives; "unavailable" after a failure, of which the first of its kind is logged."""
        try:
            return action()
        except Exception as error:  # of another library or of a caller's function; a run must not end of its gauges
            if what not in self._complaints:
                self._complaints.add(what)
                logger.info("machine usage: %s failed, %s: %s", what, type(error).__name__, one_line(error, limit=200))
            return UNAVAILABLE


class _Processors:
    """Processors, memory and the process tree, as psutil sees them. Loads are those since the reading before."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}  # psutil keeps the last reading of a process in the object

    def prime(self) -> None:
        """Take the first reading, from which the loads of the next one count."""
        import psutil

        psutil.cpu_percent(percpu=True)
        self.process()

    def readings(self) -> dict[str, Callable[[], dict[str, Any]]]:
        return {"cpu": self.cpu, "memory": self.memory, "process": self.process}

    def cpu(self) -> dict[str, Any]:
        import psutil

        per_cpu = [round(load / 100, 4) for load in psutil.cpu_percent(percpu=True)]
        return {"total": round(sum(per_cpu) / len(per_cpu), 4), "per_cpu": per_cpu}

    def memory(self) -> dict[str, Any]:
        import psutil

        memory = psutil.virtual_memory()
        return {"used_mb": _mb(memory.total - memory.available), "total_mb": _mb(memory.total)}

    def process(self) -> dict[str, Any]:
        import psutil

        own = psutil.Process(os.getpid())
        found = {process.pid: process for process in (own, *own.children(recursive=True))}
        # Equality of psutil's processes includes the time of their start: a number that is used again is another one.
        self._known = {pid: self._known[pid] if self._known.get(pid) == new else new for pid, new in found.items()}
        load = rss = 0.0
        count = 0
        for process in self._known.values():
            try:
                load += process.cpu_percent() / 100
                rss += process.memory_info().rss
            except psutil.Error:
                continue  # it has ended since it was listed, or is not ours to look at
            count += 1
        return {"cpu": round(load, 4), "rss_mb": _mb(rss), "count": count}


def _mb(size: float) -> float:
    return round(size / 2**20, 2)


def _metrics(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Give the figures of a row that are worth a curve."""
    shown = {
        "machine/cpu": ("cpu", "total"),
        "machine/memory_mb": ("memory", "used_mb"),
        "machine/process_cpu": ("process", "cpu"),
        "machine/process_rss_mb": ("process", "rss_mb"),
    }
    for name, (part, key) in shown.items():
        if isinstance(row.get(part), dict):
            yield name, row[part][key]
    if isinstance(row.get("gpu"), list):
        for gpu in row["gpu"]:
            names = {
                "load": gpu["load"],
                "memory_mb": gpu["memory_used_mb"],
                "power_w": gpu["power_w"],
                "temperature_c": gpu["temperature_c"],
            }
            yield from ((f"machine/gpu{gpu['index']}_{key}", v) for key, v in names.items() if v is not None)
