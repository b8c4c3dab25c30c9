"""Storage drivers seen from the tests: started by fork in milliseconds, killed, or traced with faults injected."""

from __future__ import annotations

import array
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, NamedTuple

__all__ = ["CALLS", "Driver", "Drivers", "Injected", "has_strace", "inject"]

PROGRAM = Path(__file__).with_name("storage_driver.py")
_REQUIRED = "DIGIDEEP_REQUIRE_STRACE"
"""Environment variable with which a missing strace is a failure and no skip."""


class Driver:
    """A driver that runs; its output is read line by line."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self._stdin = stdin
        self._stdout: IO[str] = os.fdopen(stdout)

    def line(self) -> str:
        """Return the next line, empty at the end."""
        return self._stdout.readline().rstrip("\n")

    def go(self) -> None:
        """Open the gate."""
        os.write(self._stdin, b"x")

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def rest(self) -> list[str]:
        """Return what it said until its end; a last line that is torn is none."""
        lines = self._stdout.read().split("\n")[:-1]
        self._stdout.close()
        os.close(self._stdin)
        return lines


class Drivers:
    """Starts drivers from one process that has imported everything."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        path = os.pathsep.join(filter(None, [str(PROGRAM.parent), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "--serve"],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        theirs.close()

    def start(self, *arguments: str) -> Driver:
        """Start a driver with these arguments."""
        stdin, to_stdin = os.pipe()
        from_stdout, stdout = os.pipe()
        descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [stdin, stdout]))]
        self._ours.sendmsg([json.dumps(arguments).encode()], descriptors)
        os.close(stdin)
        os.close(stdout)
        return Driver(int(self._ours.recv(100)), to_stdin, from_stdout)

    def close(self) -> None:
        """End the process that forks."""
        self._ours.close()
        self._process.wait(timeout=10)


def has_strace() -> bool:
    """Whether strace is there and may trace; one that has to be there and is not is an error.

    Raises:
        AssertionError: CI asks for it (see `.ci/run`) and it does not work.
    """
    path = shutil.which("strace")
    works = path is not None and subprocess.run([path, "-o", os.devnull, "true"], capture_output=True).returncode == 0
    assert works or not os.environ.get(_REQUIRED), "expected a strace that works, found none; install it"
    return works


class Injected(NamedTuple):
    """What a driver said under strace, and whether the fault has fired."""

    lines: list[str]
    fired: bool


CALLS = {
    **{name: f"?{name},?{name}at" for name in ("mkdir", "open", "rename", "link", "unlink")},
    **{name: name for name in ("write", "fsync")},
    "rmdir": "?rmdir",
}
"""System calls that change a disk, as strace names them; which of two there is depends on the processor."""


def inject(drivers: Drivers, *arguments: str, call: str, fault: str, trace: Path) -> Injected:
    """Return what a driver said; from its gate on strace injects `fault`, such as `error=EIO:when=2`, into `call`."""
    driver = drivers.start("--gate", *arguments)
    assert driver.line() == "ready"
    names = CALLS[call]
    traced = ["-e", f"trace={names}", "-e", f"inject={names}:{fault}", "-e", "signal=none"]
    command = ["strace", "-f", "-p", str(driver.pid), "-o", str(trace), *traced]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        attached = strace.stderr.readline()
        assert "attached" in attached, attached
        driver.go()
        lines = driver.rest()
        strace.stderr.read()
    killed = not any(line.startswith("exit ") for line in lines)
    return Injected(lines, killed or "INJECTED" in trace.read_text())
