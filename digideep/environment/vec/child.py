"""One worker seen from its parent: started, talked to, asked for its stack, ended; and what it prints."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import IO

from digideep.environment.vec.messages import WAKE, Channel, Message
from digideep.environment.vec.worker import STACK_SIGNAL
from digideep.errors import one_line

__all__ = ["Child", "Output"]

logger = logging.getLogger(__name__)

_PROGRAM = "digideep.environment.vec.worker"
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_MAX_LINES = 1000  # of a worker that go to the log
_MAX_LINE = 1000
_KEPT_LINES = 200
_STACK_S = 1.0
_CAN_LOOK = hasattr(os, "waitid")  # at the end of a process without taking it; not everywhere


class Child:
    """A worker process with the environments `envs`, which finds the `modules` that this process has imported.

    Attributes:
        index: number of the worker.
        envs: which environments it holds.
        failures: FAILURE messages that were read while waiting for something else.
    """

    def __init__(self, index: int, envs: range, *, modules: Sequence[str] = ()) -> None:
        self.index = index
        self.envs = envs
        self.failures: list[Message] = []
        watched, self._watch = os.pipe()
        try:
            ours, theirs = socket.socketpair()
        except BaseException:
            os.close(watched)
            os.close(self._watch)
            raise
        descriptors = (theirs.fileno(), watched)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM, *map(str, descriptors), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                start_new_session=True,
                env=_environment(modules),
            )
        except BaseException:
            ours.close()
            os.close(self._watch)
            raise
        finally:
            theirs.close()
            os.close(watched)
        self.channel = Channel(ours)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def output(self) -> IO[bytes]:
        """What the worker prints."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def is_running(self) -> bool:
        """Whether the process is alive."""
        return not self._has_ended(0.0)

    def _has_ended(self, timeout_s: float) -> bool:
        """Whether the process has ended in time; it keeps its number, which its group has too, until `end`."""
        if not _CAN_LOOK:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
            return self._process.returncode is not None
        deadline, pause = time.monotonic() + timeout_s, 0.0005
        while self._process.returncode is None:
            try:
                if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                    return True
            except ChildProcessError:  # somebody else has taken its end
                return self._process.poll() is not None
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return True

    def wake(self, number: int, *, timeout_s: float) -> None:
        """Wake a worker that sleeps; one that is gone is noticed by whoever waits for its answer."""
        with contextlib.suppress(ConnectionError):
            self.channel.send(WAKE, number, timeout_s=timeout_s)

    def drain(self) -> None:
        """Read what has arrived: wake-ups are done with by that, failures are kept.

        Raises:
            EOFError: the worker is gone.
        """
        while (message := self.channel.receive(timeout_s=0.0)) is not None:
            if message.kind != WAKE:
                self.failures.append(message)

    def ask_for_stack(self) -> None:
        """Have a worker that hangs print where it stands."""
        if self.is_running:
            os.kill(self.pid, STACK_SIGNAL)
            time.sleep(_STACK_S)  # nothing tells when it has printed; it may never

    def ending(self) -> str:
        """Return how the process ended, in words; waits for the end of one that has let go of its connection."""
        if not self._has_ended(1.0):
            return "closed its connection"
        self._kill_group()
        code = self._process.wait()
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        hint = "; was memory short?" if -code == signal.SIGKILL else ""
        return f"died of signal {-code} ({name}){hint}"

    def end(self, *, grace_s: float) -> None:
        """End the process and what it has started; `grace_s` is how long it may take by itself."""
        if grace_s > 0:
            self._has_ended(grace_s)
        self._kill_group()
        self._process.wait()
        self.channel.close()
        if self._watch >= 0:
            os.close(self._watch)
        self._watch = -1

    def _kill_group(self) -> None:
        """Kill the process and what it has started, unless its end was taken: its number may be another's by then."""
        if self._process.returncode is None or not _CAN_LOOK:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


class Output:
    """Hands what workers print to the log, line by line and not without end."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children
        self._counts = {child.index: 0 for child in children}
        self._kept: dict[int, deque[str]] = {child.index: deque(maxlen=_KEPT_LINES) for child in children}
        self._partial = {child.index: b"" for child in children}
        self._complete = {child.index: threading.Event() for child in children}
        self._thread = threading.Thread(target=self._run, name="worker-output", daemon=True)
        self._thread.start()

    def tail(self, index: int, *, wait_s: float = 0.0) -> str:
        """Return the last lines of a worker; of one that has ended all of them come within `wait_s`."""
        self._complete[index].wait(wait_s)
        return "\n".join(self._kept[index])

    def close(self) -> None:
        """Wait for the rest of the output, then close the pipes; the processes have ended before."""
        self._thread.join(timeout=2.0)
        if not self._thread.is_alive():
            for child in self._children:
                child.output.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for child in self._children:
                selector.register(child.output, selectors.EVENT_READ, child)
            while selector.get_map():
                for key, _ in selector.select():
                    received = os.read(key.fd, 1 << 16)
                    if received:
                        self._split(key.data.index, received)
                    else:
                        self._line(key.data.index, self._partial[key.data.index])
                        selector.unregister(key.fileobj)
                        self._complete[key.data.index].set()

    def _split(self, index: int, received: bytes) -> None:
        *lines, rest = (self._partial[index] + received).split(b"\n")
        for line in lines:
            self._line(index, line)
        self._partial[index] = rest[-_MAX_LINE:]

    def _line(self, index: int, line: bytes) -> None:
        text = one_line(line.decode("utf-8", "replace"), limit=_MAX_LINE)
        if not text:
            return
        self._kept[index].append(text)
        self._counts[index] += 1
        if self._counts[index] <= _MAX_LINES:
            logger.info("worker %d: %s", index, text)
        elif self._counts[index] == _MAX_LINES + 1:
            logger.warning("worker %d has printed %d lines; the rest is not logged", index, _MAX_LINES)


def _environment(modules: Sequence[str]) -> dict[str, str]:
    """Return the environment variables of a worker: this process's imports, and one thread in each library."""
    # Python itself leaves out what is no text.
    entries = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    entries += [place for name in modules for place in _places(name.partition(".")[0]) if place not in entries]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entries), **dict.fromkeys(_THREADS, "1")}


def _places(name: str) -> list[str]:
    """Return the directory that an imported module came from, which may have left the path since."""
    module = sys.modules.get(name)
    paths = getattr(module, "__path__", None)
    found = list(paths) if paths is not None else [getattr(module, "__file__", None)]
    return [os.path.dirname(os.path.abspath(path)) for path in found if isinstance(path, str)]
