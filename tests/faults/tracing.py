"""Programs that run already, killed by strace at a chosen system call."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from drivers import CALLS

__all__ = ["is_stopped", "kill_at"]


def is_stopped(pid: int) -> bool:
    """Whether a process has been stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")


def kill_at(pid: int, *, call: str, n: int, trace: Path) -> None:
    """Let a stopped program go on until its n-th `call` in one thread, or to its end; returns when it is gone."""
    inject = ["-e", f"trace={CALLS[call]}", "-e", f"inject={CALLS[call]}:signal=KILL:when={n}", "-e", "signal=none"]
    command = ["strace", "-f", "-p", str(pid), "-o", str(trace), *inject]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        attached = strace.stderr.readline()
        assert "attached" in attached, attached
        os.kill(pid, signal.SIGCONT)
        strace.stderr.read()
