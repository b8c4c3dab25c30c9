"""Room for memories: refused in one line where there is none, reserved before it is written, gone after any end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from digideep.errors import ConfigError, StorageError, UsageError
from digideep.memory import storage
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.memory.storage import Field
from digideep.utility.memory_limit import memory_limit_bytes

FIELDS = {
    "/masks": Field((3,), np.dtype(np.float32)),
    "/frames": Field((3, 5), np.dtype(np.uint8)),
    "/empty": Field((3, 0), np.dtype(np.float64)),
}
ARRAYS = {"/masks": np.ones((2, 9), np.float32), "/frames": np.zeros((2, 9, 4), np.uint8)}


def test_a_file_holds_all_arrays_apart_from_each_other(tmp_path: Path) -> None:
    arrays = storage.on_disk(FIELDS, 11, directory=tmp_path, where="/memory/train")

    assert {key: (array.shape, array.dtype) for key, array in arrays.items()} == {
        key: ((11, *field.shape), field.dtype) for key, field in FIELDS.items()
    }
    assert all((array == 0).all() for array in arrays.values())
    arrays["/masks"][...] = 7.0
    assert (arrays["/frames"] == 0).all()
    arrays["/frames"][...] = 255
    assert (arrays["/masks"] == 7.0).all()


def test_the_space_of_a_file_is_reserved_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = []
    fallocate = os.posix_fallocate

    def spy(descriptor: int, offset: int, size: int) -> None:
        fallocate(descriptor, offset, size)
        reserved.append((os.fstat(descriptor).st_blocks * 512, os.fstat(descriptor).st_size, size))

    monkeypatch.setattr(os, "posix_fallocate", spy)

    storage.on_disk(FIELDS, 1000, directory=tmp_path, where="/memory/train")

    ((blocks, length, size),) = reserved
    assert blocks >= size == length >= 1000 * (12 + 15)


def test_a_file_leaves_nothing_even_where_files_must_have_names_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")

    arrays = storage.on_disk(FIELDS, 11, directory=tmp_path, where="/memory/train")

    arrays["/masks"][...] = 1.0
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    program = f"""
import os, sys
import numpy as np
from pathlib import Path
from digideep.memory.storage import Field, on_disk
arrays = on_disk({{"/masks": Field((3,), np.dtype("float32"))}}, 100_000, directory=Path({str(tmp_path)!r}), where="x")
arrays["/masks"][...] = 1.0
print(sum(arrays["/masks"].ravel()), flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"300000.0\n"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()

    assert process.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_a_storage_error_with_both_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full)
    memory = RingBuffer(RingBufferConfig(capacity=1000, on_disk=True), name="train")

    with pytest.raises(
        StorageError, match=r"^/memory/train/on_disk: expected room for \d+\.\d .B below .*No space left .*B free"
    ):
        memory.reserve(ARRAYS, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_does_not_exist_is_the_users_to_make(tmp_path: Path) -> None:
    memory = RingBuffer(RingBufferConfig(capacity=1000, on_disk=str(tmp_path / "no")), name="train")

    with pytest.raises(
        UsageError, match=r"/on_disk: expected true, false or a directory, found '.*/no'; make it first"
    ):
        memory.reserve(ARRAYS, directory=tmp_path)
    with pytest.raises(ConfigError, match="expected a directory, since there is no session"):
        RingBuffer(RingBufferConfig(on_disk=True), name="train").reserve(ARRAYS)
    with pytest.raises(ConfigError, match="RingBufferConfig/on_disk: expected true, false or a directory, found ''"):
        RingBufferConfig(on_disk="")


def test_a_memory_that_the_machine_cannot_hold_is_refused_before_it_is_made() -> None:
    memory = RingBuffer(RingBufferConfig(capacity=10**12), name="train")

    with pytest.raises(UsageError, match=r"/memory/train/capacity: expected at most the memory of .*\), found .* GB"):
        memory.reserve(ARRAYS)


def test_a_memory_on_disk_may_be_larger_than_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (True, str(tmp_path)):
        RingBufferConfig(capacity=10**12, on_disk=place).check_room(num_envs=2, n_steps=8, where="/memory/train")
    memory = RingBuffer(RingBufferConfig(capacity=10**12, on_disk=True), name="train")

    monkeypatch.setattr(os, "posix_fallocate", lambda *region: pytest.fail("it would have filled the disk"))
    with pytest.raises(StorageError, match=r"/memory/train/on_disk: expected room for 8\d{3}\.\d GB .*No space left"):
        memory.reserve(ARRAYS, directory=tmp_path)


def test_a_memory_that_the_system_refuses_is_told_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*shape: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "zeros", refused)
    memory = RingBuffer(RingBufferConfig(capacity=1000), name="train")

    with pytest.raises(UsageError, match="/memory/train/capacity: expected what the system grants"):
        memory.reserve(ARRAYS)


@pytest.mark.parametrize(
    ("line", "limits", "expected"),
    [
        ("0::/job/task\n", {"job/task/memory.max": "max\n", "job/memory.max": "4096\n"}, 4096),
        ("0::/job/task\n", {"job/task/memory.max": "2048\n", "job/memory.max": "4096\n"}, 2048),
        ("0::/elsewhere\n", {"memory.max": "1024\n"}, 1024),
        ("7:cpu:/a\n4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "512\n"}, 512),
        ("4:memory:/hidden\n", {"memory/memory.limit_in_bytes": "256\n"}, 256),
        ("0::/../../other\n", {"memory.max": "128\n"}, 128),
        ("nonsense\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {"memory.max": "lots\n"}, None),
    ],
)
def test_the_limit_is_the_least_of_the_machine_and_every_control_group(
    line: str, limits: dict[str, str], expected: int | None, tmp_path: Path
) -> None:
    table = tmp_path / "cgroup"
    table.write_text(line)
    for name, text in limits.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    found = memory_limit_bytes(table=table, root=tmp_path / "groups")

    machine = memory_limit_bytes(table=tmp_path / "none", root=tmp_path / "none")
    assert found == (machine if expected is None else expected)
    assert machine > 2**28
