from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from digideep.errors import SessionLockedError, StorageError, UsageError
from digideep.pipeline.filesystem import RealFileSystem
from digideep.pipeline.locks import SessionLock, clear_done, holder, is_done, mark_done

# Takes the lock, says so in one line, and keeps it until its standard input ends.
HOLDER = """
import subprocess, sys
from digideep.pipeline.locks import SessionLock
with SessionLock(sys.argv[1]) as lock:
    child = None
    if "child" in sys.argv:
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], close_fds=False)
    print(lock.generation, child.pid if child else 0, flush=True)
    sys.stdin.read()
"""


class Holder:
    """Another process that holds the lock of a session."""

    def __init__(self, session: Path, *options: str) -> None:
        command = [sys.executable, "-c", HOLDER, str(session), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        answer = self.process.stdout.readline().split()
        self.generation, self.child = int(answer[0]), int(answer[1])

    def end(self) -> None:
        self.process.communicate()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "session_x"
    path.mkdir()
    return path


@pytest.fixture
def other(session: Path) -> Iterator[Holder]:
    holder = Holder(session)
    yield holder
    holder.end()


def test_a_second_process_is_refused_and_told_who_has_it(session: Path, other: Holder) -> None:
    started = time.monotonic()

    with pytest.raises(SessionLockedError) as caught, SessionLock(session):
        pass

    message = str(caught.value)
    assert str(session) in message
    assert f"open in process {other.process.pid} on host {os.uname().nodename}" in message
    assert time.monotonic() - started < 5.0


def test_the_lock_is_free_after_its_holder_left(session: Path) -> None:
    for _ in range(3):
        with SessionLock(session) as lock:
            assert lock.held

        assert not lock.held


def test_the_lock_is_free_at_once_after_kill_nine(session: Path) -> None:
    killed = Holder(session)
    killed.kill()

    with SessionLock(session) as lock:
        assert lock.generation == killed.generation + 1


def test_programs_started_by_the_holder_do_not_keep_the_lock(session: Path) -> None:
    killed = Holder(session, "child")
    killed.kill()

    try:
        with SessionLock(session) as lock:
            os.kill(killed.child, 0)  # it lives

            assert lock.held
    finally:
        os.kill(killed.child, signal.SIGKILL)


def test_waiting_takes_the_lock_when_the_holder_leaves(session: Path) -> None:
    other = Holder(session)
    waiting = SessionLock(session, wait_s=60)
    thread = threading.Thread(target=waiting.__enter__)
    thread.start()

    other.end()
    thread.join(timeout=60)

    assert waiting.held
    assert holder(session) is not None
    waiting.__exit__(None, None, None)


def test_waiting_ends_at_its_limit(session: Path, other: Holder) -> None:
    started = time.monotonic()

    with pytest.raises(SessionLockedError), SessionLock(session, wait_s=0.5):
        pass

    assert 0.5 <= time.monotonic() - started < 10


def test_the_lock_file_says_who_holds_it_in_one_line_of_json(session: Path) -> None:
    with SessionLock(session):
        text = (session / "running.lock").read_text()

    content = json.loads(text)
    assert text.endswith("}\n")
    assert list(content) == ["host", "boot_id", "pid", "started", "generation"]
    assert content["pid"] == os.getpid()
    assert content["generation"] == 1


def test_the_lock_file_is_neither_replaced_nor_removed(session: Path) -> None:
    (session / "running.lock").write_text("x" * 3000)
    inode = (session / "running.lock").stat().st_ino

    with SessionLock(session):
        during = (session / "running.lock").read_text()

    assert (session / "running.lock").stat().st_ino == inode
    assert json.loads(during)["generation"] == 1
    assert len(during) < 400


@pytest.mark.parametrize("content", ["", "{", "[]", '{"generation": "7"}', '{"generation": -4}', "\x00" * 40])
def test_a_torn_lock_file_is_no_obstacle(session: Path, content: str) -> None:
    (session / "running.lock").write_text(content)

    with SessionLock(session) as lock:
        assert lock.generation == 1


def test_deleting_the_lock_file_does_not_let_a_second_process_in(session: Path, other: Holder) -> None:
    (session / "running.lock").unlink()

    with pytest.raises(SessionLockedError), SessionLock(session):
        pass


def test_a_lock_file_that_is_a_link_is_refused_and_its_target_unchanged(session: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (session / "running.lock").symlink_to(tmp_path / "precious")

    with pytest.raises(UsageError, match=r"running\.lock: expected a regular file, found a symbolic link"):
        SessionLock(session).__enter__()

    assert (tmp_path / "precious").read_text() == "precious"
    assert holder(session) is None


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_a_lock_file_that_is_no_file_is_refused_without_hanging(session: Path, kind: str) -> None:
    (os.mkfifo if kind == "fifo" else os.mkdir)(session / "running.lock")

    with pytest.raises(UsageError, match="expected a regular file, found something else"):
        SessionLock(session).__enter__()

    assert holder(session) is None


def test_a_missing_session_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: expected the directory of a session, found none"):
        SessionLock(tmp_path / "nowhere").__enter__()


def test_refusals_leave_no_descriptor_open(session: Path, other: Holder) -> None:
    before = len(os.listdir("/dev/fd"))

    for _ in range(3):
        with pytest.raises(SessionLockedError):
            SessionLock(session).__enter__()

    assert len(os.listdir("/dev/fd")) == before


def test_the_holder_is_named_only_while_it_holds(session: Path) -> None:
    assert holder(session) is None
    assert os.listdir(session) == []

    other = Holder(session)
    during = holder(session)
    other.end()

    assert during is not None
    assert during["pid"] == other.process.pid
    assert holder(session) is None
    assert os.listdir(session) == ["running.lock"]


def test_looking_does_not_keep_a_session_from_starting(session: Path) -> None:
    with SessionLock(session):
        pass
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            holder(session)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(50):
            with SessionLock(session) as lock:
                assert lock.held
    finally:
        stop.set()
        thread.join()


def test_a_forked_process_neither_ends_the_lock_nor_outlasts_it(session: Path) -> None:
    lock = SessionLock(session).__enter__()
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go[0], 1)
        lock.__exit__(None, None, None)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)

    os.write(go[1], b"x")
    os.read(ready[0], 1)
    held_after_child = holder(session)
    lock.__exit__(None, None, None)
    held_after_parent = holder(session)
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    for descriptor in (*ready, *go):
        os.close(descriptor)

    assert held_after_child is not None
    assert held_after_parent is None


def test_done_is_recorded_and_taken_back(session: Path) -> None:
    assert not is_done(session)

    mark_done(session, "total_frames\nreached")
    content = json.loads((session / "done.lock").read_text())
    done = is_done(session)
    clear_done(session)
    clear_done(session)

    assert done
    assert content["reason"] == "total_frames reached"
    assert content["time"].endswith("Z")
    assert not is_done(session)
    assert os.listdir(session) == []


def test_what_cannot_be_recorded_is_a_storage_error(session: Path) -> None:
    class ReadOnlyFileSystem(RealFileSystem):
        def create(self, path: Path, *, mode: int) -> int:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        def unlink(self, path: Path) -> None:
            if path.name == "done.lock":
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with pytest.raises(StorageError, match=r"done\.lock: expected to write \d+ bytes, found EROFS"):
        mark_done(session, "x", fs=ReadOnlyFileSystem())
    assert not is_done(session)
    mark_done(session, "x")
    with pytest.raises(StorageError, match=r"done\.lock: expected to remove, found EROFS"):
        clear_done(session, fs=ReadOnlyFileSystem())
    assert is_done(session)


def test_a_hostile_lock_file_cannot_forge_output(session: Path) -> None:
    with SessionLock(session):
        (session / "running.lock").write_text('{"host": "a\\u001b[31m\\nok", "pid": 1}')
        during = holder(session)
        with pytest.raises(SessionLockedError) as caught:
            SessionLock(session).__enter__()

    assert during == {"host": "a [31m ok", "pid": 1}
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)
