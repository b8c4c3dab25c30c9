"""The program of a worker: several environments, stepped into shared memory when the parent asks.

    python -m digideep.environment.vec.worker CONNECTION WATCH PARENT

The first two are descriptors, PARENT is a process id. The worker leads a session of its own, so that signals for the
group of its parent do not reach it; it ends when its parent has ended, and takes its own children with it. torch is
never imported here, and nothing heavy before the signals are dealt with.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from types import FrameType

__all__ = ["STACK_SIGNAL", "main"]

STACK_SIGNAL = signal.SIGUSR2  # makes a worker write the Python stack of every thread
_GRACE_S = 2.0  # for environments to close after the parent has gone


def main(argv: list[str]) -> None:
    """Serve the parent until it says so or is gone; this process and its children do not outlive the call."""
    _ignore_signals()
    for stream in (sys.stdout, sys.stderr):
        # Line by line, so that a death takes no line along; and no character makes an environment's print raise.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    connection, watch, parent = (int(text) for text in argv)
    for descriptor in (connection, watch):
        os.set_inheritable(descriptor, False)  # or a child of an environment would keep the connection open
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, all_threads=True)
    threading.Thread(target=_watch_parent, args=(watch, parent), daemon=True).start()
    try:
        from digideep.environment.vec.serving import serve

        serve(socket.socket(fileno=connection))
    except BaseException:
        # Told before the end, which would keep Python from telling it. The parent ends what is left of the group.
        traceback.print_exc()
        _flush()
        os._exit(1)
    _flush()
    _end_group()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the parent no longer reads, or an environment has closed it
            stream.flush()


def _ignore_signals() -> None:
    """Ignore what a terminal or a scheduler sends, by a handler: children would inherit what is ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Stand in for a handler."""


def _watch_parent(watch: int, parent: int) -> None:
    """End this process group when the parent has gone, even if an environment never returns."""
    poll = select.poll()
    poll.register(watch, select.POLLIN | select.POLLHUP)
    while not poll.poll(1000) and os.getppid() == parent:
        pass
    time.sleep(_GRACE_S)
    _end_group()


def _end_group() -> None:
    """Kill this process and whatever its environments have started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
