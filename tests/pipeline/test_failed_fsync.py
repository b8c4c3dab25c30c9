"""After a failed fsync the next one may succeed and mean nothing: what it was about is written once more."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from segmented import CountingFileSystem, blocks_in, save, segment_file, store_in

from digideep.errors import StorageError
from digideep.pipeline.filesystem import RealFileSystem
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.logs import SessionLogs
from digideep.utility.jsonl import JsonlWriter

Break = Callable[[int], None]


@pytest.fixture
def fsyncs(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], Break]:
    """Return a list of inodes that were synchronised, and a function that lets the next fsyncs fail."""
    done: list[int] = []
    left = [0]
    really = os.fsync

    def fsync(descriptor: int) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        done.append(os.fstat(descriptor).st_ino)
        really(descriptor)

    def fail(count: int) -> None:
        left[0] = count

    monkeypatch.setattr(os, "fsync", fsync)
    return done, fail


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bytes]]:
    """Return a list of (offset, content) that was written over itself."""
    found: list[tuple[int, bytes]] = []
    really = os.pwrite

    def pwrite(descriptor: int, content: bytes, offset: int) -> int:
        found.append((offset, bytes(content)))
        return really(descriptor, content, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return found


def test_rows_of_a_log_are_written_again_before_the_next_fsync(
    tmp_path: Path, fsyncs: tuple[list[int], Break], rewritten: list[tuple[int, bytes]]
) -> None:
    log = JsonlWriter(tmp_path / "log.jsonl")
    log.append({"n": 1})
    durable = log.sync()
    log.append({"n": 2})
    fsyncs[1](1)

    assert log.sync() == 2 * durable and log.failures == 1
    log.append({"n": 3})
    assert rewritten == []
    log.sync()
    log.sync()

    assert rewritten == [(durable, b'{"n":2}\n{"n":3}\n')]
    assert (tmp_path / "log.jsonl").read_text() == '{"n":1}\n{"n":2}\n{"n":3}\n'
    log.close()


def test_a_monitor_file_that_cannot_be_synchronised_is_a_warning_and_written_again(
    tmp_path: Path,
    fsyncs: tuple[list[int], Break],
    rewritten: list[tuple[int, bytes]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    paths = SessionPaths(tmp_path)
    logs = SessionLogs(paths, cpu=False, gpu=False)
    path = paths.monitor / "train" / "0.monitor.csv"
    path.parent.mkdir(parents=True)
    path.write_text("#{}\nr,l,t,env\n1,1,1,0\n")

    for _ in range(2):
        fsyncs[1](1)
        logs.sync()
    logs.sync()
    logs.sync()

    assert caplog.text.count("0.monitor.csv: cannot be made durable") == 1
    assert rewritten == [(0, path.read_bytes())] * 2
    assert fsyncs[0] == [path.stat().st_ino] * 2


def test_a_commit_that_may_not_be_durable_is_written_again_and_not_synchronised_again(tmp_path: Path) -> None:
    class OnceFileSystem(RealFileSystem):
        fails = True

        def fsync_directory(self, path: Path) -> None:
            if self.fails and path.name == "checkpoints":
                self.fails = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().fsync_directory(path)

    path = save(store_in(tmp_path), 1, [0])
    inode = path.stat().st_ino
    store = store_in(tmp_path, OnceFileSystem(), run_id="next")
    store.load()

    with pytest.raises(StorageError, match="EIO"):
        store.stands(1)

    assert not store.stands(1)
    save(store, 1, [0])
    assert path.stat().st_ino != inode
    assert store.stands(1)


def test_a_loaded_segment_that_cannot_be_synchronised_is_written_from_memory(tmp_path: Path) -> None:
    class OnceFileSystem(CountingFileSystem):
        fails = True

        def fsync(self, descriptor: int) -> None:
            if self.fails:
                self.fails = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().fsync(descriptor)

    save(store_in(tmp_path), 1, [0, 1])
    fs = OnceFileSystem()
    store = store_in(tmp_path, fs, run_id="next")
    store.load()

    with pytest.raises(StorageError, match="EIO"):
        save(store, 2, [0, 1])
    save(store, 2, [0, 1])

    assert segment_file(0) in fs.written and fs.linked == [segment_file(1)]
    assert blocks_in(store.load(2)) == [0, 1]
