"""The checks that stand around every test here notice what they are for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import shared_memory
from pathlib import Path

import psutil
import pytest
from fakes import Program, wait_until
from leftovers import CASE, Listeners, end, leftovers, processes, shared_names

from digideep.environment.vec.child import Child

WAIT = "import sys; sys.stdin.read()"


def what_is_left(tmp_path: Path, before: set[object], shared: set[str]) -> list[str]:
    return leftovers(
        os.environ[CASE],
        processes_before=before,  # type: ignore[arg-type]
        shared_before=shared,
        temporary=tmp_path,
        timeout_s=0.0,
    )


def test_a_child_that_goes_on_is_noticed(tmp_path: Path) -> None:
    before = processes(os.environ[CASE])
    with subprocess.Popen([sys.executable, "-c", WAIT], stdin=subprocess.PIPE) as child:
        left = what_is_left(tmp_path, set(before), shared_names())

    assert left == [f"process {child.pid}: {sys.executable} -c {WAIT}"]
    assert what_is_left(tmp_path, set(before), shared_names()) == []


def test_a_process_that_has_lost_its_parent_is_noticed_and_can_be_ended(tmp_path: Path) -> None:
    before = processes(os.environ[CASE])
    program = (
        "import subprocess, sys\n"
        "quiet = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.DEVNULL)\n"
        "wait = 'import signal; signal.pause()'\n"
        "child = subprocess.Popen([sys.executable, '-c', wait], start_new_session=True, **quiet)\n"
        "print(child.pid)\n"
    )

    orphan = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()

    (left,) = what_is_left(tmp_path, set(before), shared_names())
    assert left.startswith(f"process {orphan}: ")
    end(processes(os.environ[CASE]) - before)
    assert leftovers(os.environ[CASE], processes_before=before, shared_before=shared_names(), temporary=tmp_path) == []


def test_shared_memory_and_temporary_files_that_stay_are_noticed(tmp_path: Path) -> None:
    before = processes(os.environ[CASE])
    shared = shared_names()
    memory = shared_memory.SharedMemory(create=True, size=100)
    (tmp_path / "forgotten").touch()

    left = what_is_left(tmp_path, {*before, *processes(os.environ[CASE])}, shared)

    memory.close()
    memory.unlink()
    assert left == [f"shared memory {memory.name}", "temporary file forgotten"]


@pytest.mark.open_to_others
@pytest.mark.parametrize(("host", "family"), [("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)])
def test_a_listener_on_all_interfaces_is_noticed(host: str, family: socket.AddressFamily) -> None:
    with Listeners("none", interval_s=60.0) as listeners, socket.socket(family) as server:
        server.bind((host, 0))
        server.listen()
        listeners.look()
        port = server.getsockname()[1]

        assert listeners.found == {f"process {os.getpid()} listens on {host} port {port}"}


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_a_listener_on_loopback_is_welcome(host: str, family: socket.AddressFamily) -> None:
    with Listeners("none", interval_s=60.0) as listeners, socket.socket(family) as server:
        server.bind((host, 0))
        server.listen()
        listeners.look()

        assert listeners.found == set()


def test_I1_no_program_of_a_test_can_be_reached_from_other_machines(
    start: Callable[..., Program], toy: Callable[..., list[str]], _nothing_is_left: Listeners
) -> None:
    """TensorBoard listens; that only this machine can reach it is what the fixture around every test looks at."""
    program = start(*toy("served", "number_epochs=100000", "test_activate=false"), "--tensorboard")
    program.wait_for("saved ")

    wait_until(lambda: listening(psutil.Process(program.pid)), timeout_s=60)
    _nothing_is_left.look()

    program.send(signal.SIGTERM)
    assert program.end().code == 143


def listening(program: psutil.Process) -> bool:
    """Whether a child of a program accepts connections, from wherever they come."""
    connections = [found for child in program.children(recursive=True) for found in child.net_connections("tcp")]
    return any(connection.status == psutil.CONN_LISTEN for connection in connections)


def test_E5_a_worker_is_a_program_of_its_own_in_a_session_of_its_own() -> None:
    """One that is forked has the descriptors, locks and signal handlers of its parent, and may outlive it."""
    worker = Child(0, range(1))
    try:
        command = Path(f"/proc/{worker.pid}/cmdline").read_bytes().split(b"\0")

        assert b"digideep.environment.vec.worker" in command
        assert os.getsid(worker.pid) == worker.pid
    finally:
        worker.end(grace_s=0.0)
        worker.output.close()
