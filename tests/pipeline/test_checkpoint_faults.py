from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_meta import META

from digideep.errors import StorageError
from digideep.pipeline.checkpoint import CheckpointStore, Component
from digideep.pipeline.filesystem import REAL

READS = {"status", "open_status", "listdir", "open_for_reading", "read_into", "free_bytes", "close"}


class Killed(BaseException):
    """The process is gone: nothing after this call happens."""


class FaultyFileSystem:
    """Counts calls and, at the n-th, raises what it was given: once, or at that call and at all later ones."""

    def __init__(self, n: int, fault: Callable[[], BaseException], *, lasting: bool) -> None:
        self.n = n
        self.fault = fault
        self.lasting = lasting
        self.count = 0
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        real = getattr(REAL, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            self.names.append(name)
            if self.count == self.n or (self.lasting and self.count > self.n):
                # Descriptors are freed in any case, so that a thousand faults do not use them up.
                if name == "close":
                    real(*args, **kwargs)
                raise self.fault()
            return real(*args, **kwargs)

        return call


def parts(number: int) -> list[Component]:
    return [
        Component("agents.agent", "ppo", 1, {"w": np.full(100, number, dtype="float32")}),
        Component("statistics", "running", 1, {"mean": np.full(3, float(number))}),
        Component("runner", "runner", 1, {"cycle": number}),
    ]


def store_at(directory: Path, fs: Any = REAL, *, run_id: str = "run") -> CheckpointStore:
    return CheckpointStore(directory, session_id="session", run_id=run_id, fs=fs)


def save(store: CheckpointStore, number: int) -> None:
    store.save(number, parts(number), meta=META, logs={})


def assert_loads(directory: Path, number: int, where: str) -> None:
    loaded = store_at(directory).load(number)
    assert loaded.components["runner"]["cycle"] == number, where
    assert loaded.components["agents.agent"]["w"].tolist() == [number] * 100, where


@pytest.fixture
def two(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoints"
    for number in (1, 2):
        save(store_at(directory), number)
    return directory


def each_call(action: Callable[[Any], None], fault: Callable[[], BaseException], *, lasting: bool) -> Any:
    """Yield (n, name of the call, what was raised) for n = 1, 2, ... until the fault no longer fires."""
    n = 1
    while True:
        fs = FaultyFileSystem(n, fault, lasting=lasting)
        raised: BaseException | None = None
        try:
            action(fs)
        except (StorageError, Killed) as error:
            raised = error
        if fs.count < n:
            return
        yield n, fs.names[n - 1], raised
        n += 1


@pytest.mark.parametrize("code", ["ENOSPC", "EIO", "EDQUOT", "EROFS", "EFBIG"])
def test_a_fault_at_any_call_of_a_save_leaves_old_checkpoints_and_nothing_else(two: Path, code: str) -> None:
    number = getattr(errno, code)
    tried = 0

    def fault() -> OSError:
        return OSError(number, os.strerror(number))

    for n, call, raised in each_call(lambda fs: save(store_at(two, fs), 3), fault, lasting=False):
        where = f"call {n}: {call}"
        tried += 1
        if raised is None:
            # Only what decorates or cleans up may fail without consequence.
            assert_loads(two, 3, where)
            shutil.rmtree(two / "checkpoint-3")
        else:
            assert f"found {code}" in str(raised), where
            assert str(two / "checkpoint-3") in str(raised), where
        assert sorted(os.listdir(two)) == ["checkpoint-1", "checkpoint-2"], where
        assert_loads(two, 1, where)
        assert_loads(two, 2, where)
    assert tried > 25


def test_a_disk_that_stays_broken_leaves_old_checkpoints_and_the_next_process_sweeps(two: Path) -> None:
    def fault() -> OSError:
        return OSError(errno.EIO, os.strerror(errno.EIO))

    for n, call, raised in each_call(lambda fs: save(store_at(two, fs), 3), fault, lasting=True):
        where = f"call {n}: {call}"
        assert isinstance(raised, StorageError), where
        store = store_at(two, run_id="next")
        store.sweep()
        assert store.load().number in (2, 3), where
        assert_loads(two, 2, where)
        shutil.rmtree(two / "checkpoint-3", ignore_errors=True)
        assert sorted(os.listdir(two)) == ["checkpoint-1", "checkpoint-2"], where


def test_a_kill_at_any_call_of_a_save_loses_no_acknowledged_checkpoint(two: Path) -> None:
    seen = set()
    for n, call, raised in each_call(lambda fs: save(store_at(two, fs), 3), Killed, lasting=True):
        where = f"killed at call {n}: {call}"
        assert isinstance(raised, Killed), where
        store = store_at(two, run_id="next")
        store.sweep()
        newest = store.load().number
        seen.add(newest)
        assert_loads(two, newest, where)
        assert all(name.startswith("checkpoint-") for name in os.listdir(two)), where
        save(store, 3)
        assert_loads(two, 3, where)
        shutil.rmtree(two / "checkpoint-3")
    assert seen == {2, 3}


def test_a_kill_at_any_call_of_retention_keeps_the_newest(tmp_path: Path) -> None:
    original = tmp_path / "original"
    for number in (1, 2, 3, 4):
        save(store_at(original), number)
    directory = tmp_path / "checkpoints"

    def retain(fs: Any) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(original, directory)
        store_at(directory, fs).retain(keep_last=2, keep_best=0, keep_every=0, best=[])

    for n, call, raised in each_call(retain, Killed, lasting=True):
        where = f"killed at call {n}: {call}"
        assert isinstance(raised, Killed), where
        store = store_at(directory, run_id="next")
        store.sweep()
        assert [store.verify(number) for number in store.numbers()] == [[]] * len(store.numbers()), where
        assert {3, 4} <= set(store.numbers()), where


def test_a_fault_at_any_call_of_retention_is_told(tmp_path: Path) -> None:
    original = tmp_path / "original"
    for number in (1, 2, 3):
        save(store_at(original), number)
    directory = tmp_path / "checkpoints"

    def retain(fs: Any) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(original, directory)
        store_at(directory, fs).retain(keep_last=1, keep_best=0, keep_every=0, best=[])

    def fault() -> OSError:
        return OSError(errno.EACCES, os.strerror(errno.EACCES))

    raised_at: dict[str, BaseException | None] = {}
    for _, call, raised in each_call(retain, fault, lasting=False):
        assert {3} <= set(store_at(directory).numbers()), call
        if call not in READS:
            raised_at[call] = raised

    assert set(raised_at) == {"rename", "fsync_directory", "unlink", "rmdir"}
    for raised in raised_at.values():
        assert "expected to remove old checkpoints, found EACCES" in str(raised)


def test_a_full_disk_is_noticed_before_anything_is_written(two: Path) -> None:
    class FullFileSystem(FaultyFileSystem):
        def free_bytes(self, path: Path) -> int:
            return 1000

    fs = FullFileSystem(0, Killed, lasting=False)

    with pytest.raises(
        StorageError, match=r"checkpoint-3: expected to write \d{5} bytes, found ENOSPC .*, 1000 bytes free"
    ):
        save(store_at(two, fs), 3)

    assert not {"mkdir", "create", "write"} & set(fs.names)


def test_a_commit_whose_last_fsync_failed_is_written_again_and_not_taken_for_durable(two: Path) -> None:
    class ForgetfulFileSystem(FaultyFileSystem):
        """After the rename neither the fsync nor the way back succeeds."""

        renamed = False

        def rename(self, source: Path, target: Path) -> None:
            if self.renamed:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.renamed = True
            REAL.rename(source, target)

        def fsync_directory(self, path: Path) -> None:
            if self.renamed:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            REAL.fsync_directory(path)

    fs = ForgetfulFileSystem(0, Killed, lasting=False)
    store = store_at(two, fs)
    with pytest.raises(StorageError, match="EIO"):
        save(store, 3)
    inode = (two / "checkpoint-3").stat().st_ino
    fs.rename, fs.fsync_directory = REAL.rename, REAL.fsync_directory  # type: ignore[method-assign]

    save(store, 3)

    assert (two / "checkpoint-3").stat().st_ino != inode
    assert sorted(os.listdir(two)) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]


def test_a_damaged_checkpoint_stays_where_replacing_it_fails(two: Path) -> None:
    (two / "checkpoint-2" / "state.json").write_text("")

    def fault() -> OSError:
        return OSError(errno.EIO, os.strerror(errno.EIO))

    for n, call, raised in each_call(lambda fs: save(store_at(two, fs), 2), fault, lasting=False):
        if raised is None:
            shutil.rmtree(two / "checkpoint-2")
            (two / "checkpoint-2").mkdir()
        assert store_at(two).numbers() == [1, 2], f"call {n}: {call}"
        store_at(two).sweep()
