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


class Child:
    """A worker process with the environments `envs`.

    Attributes:
        index: number of the worker.
        envs: which environments it holds.
        failures: FAILURE messages that were read while waiting for something else.
    """

    def __init__(self, index: int, envs: range) -> None:
        self.index = index
        self.envs = envs
        self.failures: list[Message] = []
        ours, theirs = socket.socketpair()
        watched, self._watch = os.pipe()
        descriptors = (theirs.fileno(), watched)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM, *map(str, descriptors), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                start_new_session=True,
                env=_environment(),
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
        return self._process.poll() is None

    def wake(self, number: int) -> None:
        """Wake a worker that sleeps; one that is gone is noticed by whoever waits for its answer."""
        with contextlib.suppress(ConnectionError):
            self.channel.send(WAKE, number)

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
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "closed its connection"
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
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=grace_s)
        # The group outlives its leader while a grandchild runs, and keeps its number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.channel.close()
        with contextlib.suppress(OSError):
            os.close(self._watch)
        self._watch = -1


class Output:
    """Hands what workers print to the log, line by line and not without end."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children
        self._counts = {child.index: 0 for child in children}
        self._kept: dict[int, deque[str]] = {child.index: deque(maxlen=_KEPT_LINES) for child in children}
        self._partial = {child.index: b"" for child in children}
        self._thread = threading.Thread(target=self._run, name="worker-output", daemon=True)
        self._thread.start()

    def tail(self, index: int) -> str:
        """Return the last lines of a worker."""
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


def _environment() -> dict[str, str]:
    """Return the environment variables of a worker: this process's imports, and one thread in each library."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, **dict.fromkeys(_THREADS, "1")}
