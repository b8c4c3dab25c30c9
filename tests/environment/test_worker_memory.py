"""What is told of memory where a worker was killed, from files of both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from digideep.environment.vec.memory import memory_text, tree_memory
from digideep.utility.memory_limit import GroupMemory, group_memory


def write(directory: Path, **values: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (directory / name.replace("__", ".")).write_text(f"{value}\n")


def test_the_group_of_version_2_is_read(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("0::/user/job\n")
    write(tmp_path / "root" / "user" / "job", memory__current="1000", memory__max="2000")

    assert group_memory(table=tmp_path / "table", root=tmp_path / "root") == GroupMemory(1000, 2000)


def test_the_narrowest_group_above_counts(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("0::/user/job\n")
    write(tmp_path / "root" / "user" / "job", memory__current="1000", memory__max="max")
    write(tmp_path / "root" / "user", memory__current="1500", memory__max="1600")
    write(tmp_path / "root", memory__current="5000", memory__max="9000")

    assert group_memory(table=tmp_path / "table", root=tmp_path / "root") == GroupMemory(1500, 1600)


def test_the_group_of_version_1_is_read_and_its_number_without_a_meaning_is_no_limit(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n")
    directory = tmp_path / "root" / "memory" / "docker" / "abc"
    write(directory, memory__usage_in_bytes="700", memory__limit_in_bytes="9223372036854771712")
    unlimited = group_memory(table=tmp_path / "table", root=tmp_path / "root")
    write(directory, memory__limit_in_bytes="800")

    assert unlimited == GroupMemory(700, 0)
    assert group_memory(table=tmp_path / "table", root=tmp_path / "root") == GroupMemory(700, 800)


def test_in_a_container_whose_group_is_named_as_outside_the_root_counts(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("0::/kubepods/pod1/abc\n")
    write(tmp_path / "root", memory__current="10", memory__max="20")

    assert group_memory(table=tmp_path / "table", root=tmp_path / "root") == GroupMemory(10, 20)


@pytest.mark.parametrize("table", [None, "", "0\n", "nonsense"])
def test_what_cannot_be_read_is_unavailable(tmp_path: Path, table: str | None) -> None:
    if table is not None:
        (tmp_path / "table").write_text(table)

    assert group_memory(table=tmp_path / "table", root=tmp_path / "nowhere") == GroupMemory(None, None)


def test_the_words_have_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digideep.environment.vec.memory.tree_memory", lambda: 3 * 2**20)
    for found, words in (
        (GroupMemory(2**20, 2**21), "memory: process tree 3 MB, cgroup 1 MB, limit 2 MB"),
        (GroupMemory(2**20, 0), "memory: process tree 3 MB, cgroup 1 MB, no limit"),
        (GroupMemory(None, None), "memory: process tree 3 MB, cgroup unavailable, limit unavailable"),
    ):
        monkeypatch.setattr("digideep.environment.vec.memory.group_memory", lambda found=found: found)
        assert memory_text() == words


def test_the_process_tree_has_at_least_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: psutil.Process, recursive: bool = False) -> list[psutil.Process]:
        raise psutil.AccessDenied

    there = tree_memory()
    monkeypatch.setattr(psutil.Process, "children", refuse)

    assert there is not None and there > 2**20
    assert tree_memory() is None
