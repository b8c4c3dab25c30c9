"""What a test may leave behind, and what the programs of a test must not open: processes, names, listeners."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["CASE", "Listeners", "Process", "end", "leftovers", "processes", "shared_names"]

CASE = "DIGIDEEP_TEST_CASE"
"""Environment variable that every program started by a test inherits, whoever its parent is by then."""

_PROC = Path("/proc")
_SHARED = Path("/dev/shm")
# Started once for all tests by multiprocessing, as children of the process that runs them.
_LASTING = (b"multiprocessing.forkserver", b"multiprocessing.resource_tracker", b"storage_driver.py\0--serve")
_LISTENING = "0A"


class Process(NamedTuple):
    """A process, told apart from a later one of the same number by when it started."""

    pid: int
    started: str
    command: str


def _children() -> dict[int, list[tuple[int, str]]]:
    """Return (pid, start) of all living processes by the pid of their parent; zombies are no processes."""
    found: dict[int, list[tuple[int, str]]] = {}
    for entry in os.listdir(_PROC):
        if not entry.isdigit():
            continue
        try:
            fields = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            found.setdefault(int(fields[1]), []).append((int(entry), fields[19]))
    return found


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""


def processes(case: str) -> set[Process]:
    """Return the living descendants of this process and the processes of a case that have lost their parents."""
    children, mark = _children(), f"{CASE}={case}".encode()
    below, waiting = list[tuple[int, str]](), [os.getpid()]
    while waiting:
        of_one = children.get(waiting.pop(), [])
        below += of_one
        waiting += [pid for pid, _ in of_one]
    everything = {entry for of_one in children.values() for entry in of_one}
    marked = [(pid, began) for pid, began in everything if mark in _read(pid, "environ").split(b"\0")]
    found = set()
    for pid, began in {*below, *marked}:
        command = _read(pid, "cmdline")
        lasting = (pid, began) in children.get(os.getpid(), []) and any(word in command for word in _LASTING)
        if pid != os.getpid() and command and not lasting:
            found.add(Process(pid, began, command.replace(b"\0", b" ").decode(errors="replace").strip()[:200]))
    return found


def shared_names() -> set[str]:
    """Return the names of shared memory and semaphores."""
    return set(os.listdir(_SHARED)) if _SHARED.is_dir() else set()


def _is_anothers(name: str) -> bool:
    """Whether a process that is none of ours has the shared memory mapped: its tests run beside these."""
    ours = {os.getpid(), *(process.pid for process in processes(os.environ.get(CASE, "")))}
    path = f"{_SHARED}/{name}".encode()
    pids = {int(entry) for entry in os.listdir(_PROC) if entry.isdigit()} - ours
    return any(path in _read(pid, "maps") for pid in pids)


def leftovers(
    case: str, *, processes_before: set[Process], shared_before: set[str], temporary: Path, timeout_s: float = 5.0
) -> list[str]:
    """Return one line for each thing of a case that is still there when all has had time to end.

    Args:
        case: the value of `CASE` that its programs have inherited.
        processes_before: what `processes` gave before.
        shared_before: what `shared_names` gave before.
        temporary: the directory for temporary files of its programs, empty at first.
        timeout_s: how long a process whose parent has just ended may need to see that.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = [f"process {p.pid}: {p.command}" for p in processes(case) - processes_before]
        found += [f"shared memory {name}" for name in shared_names() - shared_before if not _is_anothers(name)]
        found += [f"temporary file {path.name}" for path in temporary.iterdir()]
        if not found or time.monotonic() > deadline:
            return sorted(found)
        time.sleep(0.01)


def end(remaining: set[Process]) -> None:
    """Kill processes, so that the next test begins without them."""
    for process in remaining:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


class Listeners:
    """Looks, while a test runs, for sockets that listen on more than loopback.

    Args:
        case: sockets of its processes count, and no others.
        interval_s: how often; what lives for a shorter time may be missed.
    """

    def __init__(self, case: str, *, interval_s: float = 0.05) -> None:
        self.found: set[str] = set()
        self._case = case
        self._interval_s = interval_s
        self._before = set(_open_to_others())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="listeners", daemon=True)

    def __enter__(self) -> Listeners:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def look(self) -> None:
        """Look once."""
        new = {inode: address for inode, address in _open_to_others().items() if inode not in self._before}
        if not new:
            return
        for pid in (os.getpid(), *(process.pid for process in processes(self._case))):
            self.found |= {f"process {pid} listens on {new[inode]}" for inode in _sockets(pid) if inode in new}

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.look()


def _open_to_others() -> dict[str, str]:
    """Return the address of every listening TCP socket beyond loopback by its inode."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in _read(os.getpid(), f"net/{name}").decode().splitlines()[1:]:
            fields = line.split()
            host, _, port = fields[1].partition(":")
            if fields[3] == _LISTENING and not _address(host).is_loopback:
                found[fields[9]] = f"{_address(host)} port {int(port, 16)}"
    return found


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address behind the kernel's hexadecimal words, each of which is little-endian."""
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _sockets(pid: int) -> Iterator[str]:
    try:
        descriptors = os.listdir(_PROC / str(pid) / "fd")
    except OSError:
        return
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            target = os.readlink(_PROC / str(pid) / "fd" / descriptor)
            if target.startswith("socket:["):
                yield target[8:-1]
