"""A process that saves one checkpoint after the other through the real store, for others to kill or to inject faults.

It imports no torch. `--serve` is a process that has imported everything and forks a driver for each request on its
standard input, a socket: JSON of the arguments, and the driver's standard input and output as descriptors.

Announcements go through `writev`, which storage does not use, so that a fault injected into `write` hits storage alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import saves

from digideep.errors import StorageError
from digideep.pipeline.checkpoint import CheckpointStore, NoCheckpointError
from digideep.pipeline.writer import Writer

FAILURES = 3


def say(line: str) -> None:
    """Announce something, durably as far as a kill goes."""
    os.writev(1, [line.encode() + b"\n"])


def drive(directory: str, *, run_id: str, rows: int, last: int | None, gate: bool, asynchronous: bool) -> int:
    """Go on from the newest checkpoint, say each number after its save has returned, and return the exit code.

    Args:
        directory: of the checkpoints.
        run_id: of this process.
        rows: size of the state, see `saves.components`.
        last: number of the last save; None: until somebody ends this.
        gate: wait for a line on standard input before the first save.
        asynchronous: write in the thread that writes while training goes on.
    """
    store = saves.store_at(directory, run_id=run_id)
    store.sweep()
    try:
        first = saves.check(store.load(), rows=rows) + 1
    except NoCheckpointError:
        first = 1
    if gate:
        say("ready")
        os.read(0, 1)
    failures, writer = 0, Writer()
    for number in itertools.count(first) if last is None else range(first, last + 1):
        error = _in_thread(writer, store, number, rows) if asynchronous else _here(store, number, rows)
        if error is not None:
            say(f"failed {number}: {error}")
        failures = 0 if error is None else failures + 1
        if failures == FAILURES:
            return 9
    return 0


def _here(store: CheckpointStore, number: int, rows: int) -> StorageError | None:
    try:
        saves.save(store, number, rows=rows)
    except StorageError as error:
        return error
    _follow(store, number)
    return None


def _in_thread(writer: Writer, store: CheckpointStore, number: int, rows: int) -> StorageError | None:
    """Save as a run does: copied here, written there, announced from there."""
    content = store.gather(saves.components(number, rows=rows))

    def write(stack: Any) -> None:
        store.commit(number, content, meta=saves.META, logs={})
        _follow(store, number)

    writer.start(write)
    written = writer.take(wait=True)
    if written is None or written.error is None:
        return None
    if not isinstance(written.error, StorageError):
        raise written.error
    return written.error


def _follow(store: CheckpointStore, number: int) -> None:
    say(f"saved {number}")
    try:
        saves.retain(store)
    except StorageError as error:
        say(f"retention failed: {error}")


def main(arguments: Sequence[str]) -> int:
    """Be a driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--run-id", default="run")
    parser.add_argument("--rows", type=int, default=25)
    parser.add_argument("--last", type=int)
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--asynchronous", action="store_true")
    code = drive(**vars(parser.parse_args(arguments)))
    say(f"exit {code}")
    return code


def _serve() -> None:
    """Fork a driver for each request and answer with its process id, until nobody can ask any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: whoever asked sees the end of their output
    requests = socket.socket(fileno=0)
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1 << 16, 2)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            _become_driver(json.loads(message), descriptors, requests)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.sendall(f"{pid}\n".encode())


def _become_driver(arguments: Sequence[str], descriptors: Sequence[int], requests: socket.socket) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(descriptors[0], 0)
        os.dup2(descriptors[1], 1)
        for descriptor in descriptors:
            os.close(descriptor)
        code = main(arguments)
    except BaseException as error:
        say(f"died: {type(error).__name__}: {error}")
    finally:
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        import tempfile

        with tempfile.TemporaryDirectory() as warm:  # imports what is imported late, before anybody counts calls
            drive(str(Path(warm) / "checkpoints"), run_id="warm", rows=1, last=4, gate=False, asynchronous=True)
        _serve()
    else:
        sys.exit(main(sys.argv[1:]))
