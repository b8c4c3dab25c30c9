"""One worker seen from its parent: started, talked to, asked for its stack, ended; and what it prints."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import MutableMapping, Sequence
from typing import IO

from digideep.environment.vec.memory import memory_text
from digideep.environment.vec.messages import WAKE, Channel, Message
from digideep.environment.vec.worker import STACK_SIGNAL
from digideep.errors import one_line

__all__ = ["Child", "ended_how"]

logger = logging.getLogger(__name__)

_PROGRAM = "digideep.environment.vec.worker"
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_MAX_LINES = 1000  # of a worker that go to the log
_MAX_LINE = 1000
_KEPT_LINES = 200
_STACK_S = 1.0
_FATAL = "Fatal Python error: "  # what faulthandler writes before the stack of a process that dies
_CAN_LOOK = hasattr(os, "waitid")  # at the end of a process without taking it; not everywhere


def ended_how(code: int) -> str:
    """Return in words how a process ended: its exit code, or below 0 the signal, which may be one without a name."""
    if code >= 0:
        return f"ended with exit code {code}"
    named = -code in signal.Signals.__members__.values()
    return f"died of signal {-code} ({signal.Signals(-code).name if named else 'unknown'})"


class Child:
    """A worker process with the environments `envs`, which finds the `modules` that this process has imported.

    Attributes:
        index: number of the worker.
        envs: which environments it holds.
        failures: messages other than wake-ups that were read while waiting for something else.
        output: what it prints.
    """

    def __init__(
        self, index: int, envs: range, *, modules: Sequence[str] = (), printed: MutableMapping[int, int] | None = None
    ) -> None:
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
        assert self._process.stdout is not None
        self.output = Output(index, self._process.stdout, printed={} if printed is None else printed)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

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
            self.output.is_stack = True
            os.kill(self.pid, STACK_SIGNAL)
            time.sleep(_STACK_S)  # nothing tells when it has printed; it may never

    def ending(self) -> str:
        """Return how the process ended, in words; waits for the end of one that has let go of its connection."""
        if not self._has_ended(1.0):
            return "closed its connection"
        self._kill_group()
        peak_mb = self._take_end()
        code = self._process.returncode
        if code != -signal.SIGKILL:
            return ended_how(code)
        peak = "" if peak_mb is None else f" (the worker at most {peak_mb:.0f} MB)"
        return f"{ended_how(code)}; was memory short? {memory_text()}{peak}"

    def _take_end(self) -> float | None:
        """Take the end of the process and return the most memory in MB that it has had; None where nobody tells."""
        if self._process.returncode is None and hasattr(os, "wait4"):
            with contextlib.suppress(ChildProcessError):
                _, status, usage = os.wait4(self.pid, 0)
                self._process.returncode = os.waitstatus_to_exitcode(status)
                return usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
        self._process.wait()
        return None

    def end(self, *, grace_s: float) -> None:
        """End the process and what it has started; `grace_s` is how long it may take by itself."""
        if grace_s > 0:
            self._has_ended(grace_s)
        self._kill_group()
        self._process.wait()
        self.channel.close()
        self.output.close()
        if self._watch >= 0:
            os.close(self._watch)
        self._watch = -1

    def _kill_group(self) -> None:
        """Kill the process and what it has started, unless its end was taken: its number may be another's by then."""
        if self._process.returncode is None or not _CAN_LOOK:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


class Output:
    """Hands what a worker prints to the log, line by line and not without end.

    Args:
        index: number of the worker.
        pipe: where it prints to.
        printed: lines so far by number of the worker; those of the workers before it count too.

    Attributes:
        is_stack: whether what comes is the stack of a worker that is at its end: too long for a terminal, so that only
            report.log gets it.
    """

    def __init__(self, index: int, pipe: IO[bytes], *, printed: MutableMapping[int, int]) -> None:
        self._index = index
        self._pipe = pipe
        self._printed = printed
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)
        self._partial = b""
        self.is_stack = False
        self._thread = threading.Thread(target=self._run, name="worker-output", daemon=True)
        self._thread.start()

    def tail(self, *, wait_s: float = 0.0) -> str:
        """Return the last lines; of a worker that has ended all of them come within `wait_s`."""
        self._thread.join(wait_s)
        return "\n".join(self._kept.copy())

    def close(self) -> None:
        """Wait for the rest of the output, then close the pipe; the process has ended before."""
        self._thread.join(timeout=2.0)
        if not self._thread.is_alive():
            self._pipe.close()

    def _run(self) -> None:
        while received := os.read(self._pipe.fileno(), 1 << 16):
            *lines, rest = (self._partial + received).split(b"\n")
            for line in lines:
                self._line(line)
            self._partial = rest[-_MAX_LINE:]
        self._line(self._partial)

    def _line(self, line: bytes) -> None:
        text = one_line(line[: 4 * _MAX_LINE].decode("utf-8", "replace"), limit=_MAX_LINE)
        if not text:
            return
        self._kept.append(text)
        self.is_stack = self.is_stack or text.startswith(_FATAL)
        count = self._printed[self._index] = self._printed.get(self._index, 0) + 1
        if count <= _MAX_LINES:
            logger.info("worker %d: %s", self._index, text, extra={"report_only": self.is_stack})
        elif count == _MAX_LINES + 1:
            logger.warning("worker %d has printed %d lines; the rest is not logged", self._index, _MAX_LINES)


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
