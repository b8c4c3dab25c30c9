from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path

import pytest

from digideep.errors import StorageError
from digideep.utility import appendfile
from digideep.utility.appendfile import AppendFile, open_append
from digideep.utility.jsonl import JsonlWriter, read_rows


class FullDisk:
    """Lets `room` bytes through, then answers as a full disk does: short counts first, the error after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 10**9
        self._write = os.write
        monkeypatch.setattr(appendfile.os, "write", self)

    def __call__(self, descriptor: int, data: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(descriptor, bytes(data[: self.room]))
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


def _all_of_it(_descriptor: int, size: int) -> int:
    return size


def test_a_full_disk_raises_nothing_and_leaves_no_half_row(
    tmp_path: Path, disk: FullDisk, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "varlog.jsonl"
    writer = JsonlWriter(path)
    writer.append({"epoch": 0})

    disk.room = 5
    with caplog.at_level(logging.WARNING):
        writer.append({"epoch": 1})
        writer.append({"epoch": 2})
    assert path.read_bytes() == b'{"epoch":0}\n'
    assert writer.failures == 2
    assert writer.sync() == 3 * 12  # with the rows that come as soon as there is room
    disk.room = 10**9
    writer.append({"epoch": 3})

    assert [row["epoch"] for row in read_rows(path)] == [0, 1, 2, 3]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text


def test_a_half_row_that_cannot_be_taken_back_is_removed_later(
    tmp_path: Path, disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = JsonlWriter(tmp_path / "varlog.jsonl")
    writer.append({"epoch": 0})
    disk.room = 5
    with monkeypatch.context() as patch:
        patch.setattr(appendfile.os, "ftruncate", _refuse)
        writer.append({"epoch": 1})
        disk.room = 10**9
        writer.append({"epoch": 2})
        assert writer.path.read_bytes() == b'{"epoch":0}\n{"epo'

    writer.flush()

    assert [row["epoch"] for row in read_rows(writer.path)] == [0, 1, 2]


def _refuse(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_waits_is_bounded(tmp_path: Path, disk: FullDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appendfile, "_PENDING_BYTES", 30)
    file = AppendFile(tmp_path / "log", whole_length=_all_of_it)
    disk.room = 0
    for i in range(6):
        file.append(b"row %d----" % i)
    disk.room = 10**9

    assert file.flush() is True
    assert (tmp_path / "log").read_bytes() == b"row 3----row 4----row 5----"
    assert file.lost == 3


def test_sync_gives_the_durable_length_and_survives_a_failing_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AppendFile(tmp_path / "log", whole_length=_all_of_it)
    assert file.sync() == 0
    assert not file.path.exists()
    file.append(b"0123456789")
    monkeypatch.setattr(appendfile.os, "fsync", _refuse)

    assert file.sync() == 10
    assert file.failures == 1


def test_a_file_that_cannot_be_opened_keeps_its_length_in_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    file = AppendFile(tmp_path / "log", whole_length=_all_of_it)
    monkeypatch.setattr(appendfile, "open_append", _refuse)

    assert file.sync() == 10


def test_truncate_cuts_drops_what_waits_and_refuses_silence(
    tmp_path: Path, disk: FullDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = AppendFile(tmp_path / "log", whole_length=_all_of_it)
    assert file.truncate(0) == 0
    assert not file.path.exists()
    file.append(b"0123456789")
    disk.room = 0
    file.append(b"waiting")
    disk.room = 100

    assert file.truncate(4) == 4
    file.append(b"next")
    assert file.path.read_bytes() == b"0123next"

    assert file.truncate(50) == 8
    assert "rows are missing, 8 bytes of 50 are left" in caplog.text
    monkeypatch.setattr(appendfile.os, "ftruncate", _refuse)
    with pytest.raises(StorageError, match="expected a file that can be cut to 2 bytes"):
        file.truncate(2)


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_only_regular_files_are_written(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    target = tmp_path / "elsewhere"
    target.write_text("mine")
    {"link": lambda: path.symlink_to(target), "fifo": lambda: os.mkfifo(path), "directory": path.mkdir}[kind]()

    with pytest.raises(OSError, match=r"log"):
        open_append(path)
    file = AppendFile(path, whole_length=_all_of_it)
    file.append(b"row")

    assert file.failures == 1
    assert target.read_text() == "mine"
    with pytest.raises(StorageError, match=r"log: expected"):
        file.truncate(0)


def test_the_descriptor_is_not_inherited_and_closing_allows_more(tmp_path: Path) -> None:
    descriptor = open_append(tmp_path / "x")
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)

    file = AppendFile(tmp_path / "log", whole_length=_all_of_it)
    file.append(b"a")
    file.close()
    file.append(b"b")
    file.close()

    assert file.path.read_bytes() == b"ab"


def test_threads_write_whole_records(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "log", whole_length=_all_of_it)
    barrier = threading.Barrier(4)

    def write(letter: bytes) -> None:
        barrier.wait()
        for _ in range(200):
            file.append(letter * 20 + b"\n")

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    lines = file.path.read_bytes().splitlines()
    assert len(lines) == 800
    assert {len(set(line)) for line in lines} == {1}
    assert file.sync() == 800 * 21


def test_a_file_that_cannot_be_read_when_opened_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "varlog.jsonl"
    path.write_bytes(b'{"epoch":0}\n')
    writer = JsonlWriter(path)
    with monkeypatch.context() as patch:
        patch.setattr(appendfile.os, "pread", _refuse)
        writer.append({"epoch": 1})
        writer.append({"epoch": 2})

    writer.flush()

    assert [row["epoch"] for row in read_rows(path)] == [0, 1, 2]
