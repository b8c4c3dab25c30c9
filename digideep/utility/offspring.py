"""The processes that this one has started, found and ended without importing anything: also while all else is stuck."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["end_offspring", "spare_offspring"]

_ROUNDS = 3  # whoever is killed may have started another one just before
_spared: set[int] = set()


class _Process(NamedTuple):
    pid: int
    parent: int
    group: int


def spare_offspring() -> None:
    """Leave alone, from now on, the children that there are: a shell that became this program has started them."""
    try:
        own = os.getpid()
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
                _spared.update(int(word) for word in file.read().split())
    except OSError:  # not on every system
        _spared.update(process.pid for process in _descendants() if process.parent == own)


def end_offspring() -> None:
    """Kill every process that this one, or one that it has started, has started, with their process groups."""
    told: set[int] = set()
    for _ in range(_ROUNDS):
        found = [process for process in _descendants() if process.pid not in told]
        if not found:
            return
        for process in found:
            told.add(process.pid)
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's by now
                if process.group == process.pid:
                    os.killpg(process.group, signal.SIGKILL)
                os.kill(process.pid, signal.SIGKILL)


def _descendants() -> list[_Process]:
    """Return what was started by this process and by those, but for what is spared and all below it."""
    children: dict[int, list[_Process]] = {}
    for process in _processes():
        children.setdefault(process.parent, []).append(process)
    spared = _spared | {_tracker()}
    found, pending = list[_Process](), [os.getpid()]
    while pending:
        for process in children.get(pending.pop(), ()):
            if process.pid not in spared:
                found.append(process)
                pending.append(process.pid)
    return found


def _tracker() -> int:
    """Return the process of Python's own that removes shared memory nobody has removed, and ends by itself; or -1."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    pid = getattr(getattr(module, "_resource_tracker", None), "_pid", None)
    return pid if isinstance(pid, int) else -1


def _processes() -> Iterator[_Process]:
    try:
        names = os.listdir("/proc")
    except OSError:
        yield from _processes_elsewhere()
        return
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                yield _Process(int(name), int(fields[1]), int(fields[2]))


def _processes_elsewhere() -> Iterator[_Process]:
    """Yield the processes of a system without /proc."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            yield _Process(process.pid, process.ppid(), os.getpgid(process.pid))
