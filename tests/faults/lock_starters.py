"""Many processes at a barrier, all of which want the lock of one session: `lock_starters.py SESSION COUNT`.

Each says `ready`, and tries when a line has come on standard input of all; then it says what it got.
"""

from __future__ import annotations

import os
import socket
import sys

from digideep.errors import SessionLockedError
from digideep.pipeline.locks import SessionLock


def _try(session: str, barrier: socket.socket) -> int:
    os.write(1, b"ready\n")
    barrier.recv(1)  # comes back when nobody can write to it any more, for all at the same time
    try:
        with SessionLock(session):
            os.write(1, b"got it\n")
            os.read(0, 1)
    except SessionLockedError as error:
        os.write(1, f"{error}\n".encode())
    return 0


def main(session: str, count: int) -> None:
    """Fork `count` starters, let them go, and wait for their ends."""
    ours, barrier = socket.socketpair()
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            ours.close()
            os._exit(_try(session, barrier))
        pids.append(pid)
    os.read(0, 1)
    ours.close()
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
