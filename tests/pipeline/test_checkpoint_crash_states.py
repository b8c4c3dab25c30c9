"""What is on the disk after a power failure, for every moment of a series of saves.

A recording file system notes each call that changes something. A model disk replays a prefix of the record, keeping
for each directory and each file what is there now and what was there at its last fsync. Every combination of names
(now, or as synchronised) and content (now, as synchronised, halved, zeroed) that a crash may leave is put on a real
disk and read by the real store.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_meta import META

from digideep.errors import CheckpointError
from digideep.pipeline.checkpoint import CheckpointStore, Component
from digideep.pipeline.filesystem import RealFileSystem

Operation = tuple[Any, ...]


class RecordingFileSystem(RealFileSystem):
    """The real one; notes what would have to become durable, in order."""

    def __init__(self) -> None:
        self.record: list[Operation] = []
        self._open: dict[int, Path] = {}

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self.record.append(("mkdir", path))

    def create(self, path: Path, *, mode: int) -> int:
        descriptor = super().create(path, mode=mode)
        self._open[descriptor] = path
        self.record.append(("create", path))
        return descriptor

    def write(self, descriptor: int, content: memoryview) -> int:
        count = super().write(descriptor, content)
        self.record.append(("write", self._open[descriptor], bytes(content[:count])))
        return count

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        self.record.append(("fsync", self._open[descriptor]))

    def fsync_directory(self, path: Path) -> None:
        super().fsync_directory(path)
        self.record.append(("fsync_directory", path))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.record.append(("rename", source, target))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.record.append(("unlink", path))

    def rmdir(self, path: Path) -> None:
        super().rmdir(path)
        self.record.append(("rmdir", path))


@dataclass
class File:
    content: bytes = b""
    synchronised: bytes = b""


@dataclass
class Directory:
    entries: dict[str, File | Directory] = field(default_factory=dict)
    synchronised: dict[str, File | Directory] = field(default_factory=dict)


class ModelDisk:
    """Holds everything below `root` twice: as programs see it, and as it surely survives."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = Directory()

    def _find(self, path: Path) -> Any:
        node: Any = self.top
        for name in path.relative_to(self.root).parts:
            node = node.entries[name]
        return node

    def apply(self, operation: Operation) -> None:
        call, path = operation[0], operation[1]
        if call == "fsync_directory":
            directory = self._find(path)
            directory.synchronised = dict(directory.entries)
            return
        if call in ("write", "fsync"):
            file = self._find(path)
            if call == "write":
                file.content += operation[2]
            else:
                file.synchronised = file.content
            return
        parent = self._find(path.parent)
        if call in ("mkdir", "create"):
            parent.entries[path.name] = Directory() if call == "mkdir" else File()
        elif call == "rename":
            self._find(operation[2].parent).entries[operation[2].name] = parent.entries.pop(path.name)
        else:
            del parent.entries[path.name]

    def put(self, target: Path, *, names: str, content: str) -> None:
        """Write the state after a crash below `target`."""
        shutil.rmtree(target, ignore_errors=True)
        self._put(self.top, target, names=names, content=content)

    def _put(self, node: File | Directory, target: Path, *, names: str, content: str) -> None:
        if isinstance(node, File):
            lost = len(node.content) - len(node.synchronised)
            kept = {"now": node.content, "synchronised": node.synchronised}
            kept["halved"] = node.content[: len(node.content) - (lost + 1) // 2]
            kept["zeroed"] = node.synchronised + bytes(lost)
            target.write_bytes(kept[content])
            return
        target.mkdir()
        for name, child in (node.entries if names == "now" else node.synchronised).items():
            self._put(child, target / name, names=names, content=content)


def parts(number: int) -> list[Component]:
    weights = np.full(10, number, dtype="float32")
    return [Component("agents.agent", "ppo", 1, {"w": weights}), Component("runner", "runner", 1, {"cycle": number})]


def record_of_saves(root: Path) -> list[Operation]:
    """Save 1, 2 and 3 keeping two, and note ("ack", number) after each, as the command line does."""
    root.mkdir()
    fs = RecordingFileSystem()
    store = CheckpointStore(root / "checkpoints", session_id="session", run_id="run", fs=fs)
    for number in (1, 2, 3):
        store.save(number, parts(number), meta=META, logs={})
        fs.record.append(("ack", number))
        store.retain(keep_last=2, keep_best=0, keep_every=0, best=[])
    return fs.record


def losses(root: Path, record: Sequence[Operation], target: Path) -> Iterator[str]:
    """Yield one line for each crash state in which the last acknowledged checkpoint, or anything later, is wrong."""
    disk, acknowledged = ModelDisk(root), 0
    for moment, operation in enumerate(record):
        if operation[0] == "ack":
            acknowledged = operation[1]
        else:
            disk.apply(operation)
        for names in ("now", "synchronised"):
            for content in ("now", "synchronised", "halved", "zeroed"):
                disk.put(target, names=names, content=content)
                found = newest(target)
                if found < acknowledged:
                    yield f"after {moment} {operation[:2]}, names {names}, content {content}: {found} < {acknowledged}"


def newest(target: Path) -> int:
    """Return the number of the checkpoint that a new process loads, 0 if none; its content has to be exact."""
    store = CheckpointStore(target / "checkpoints", session_id="session", run_id="next")
    try:
        loaded = store.load()
    except CheckpointError:
        return 0
    number = loaded.number
    assert loaded.components["agents.agent"]["w"].tolist() == [number] * 10
    assert loaded.components["runner"] == {"cycle": number}
    return number


def test_no_crash_state_loses_an_acknowledged_checkpoint(tmp_path: Path) -> None:
    record = record_of_saves(tmp_path / "disk")

    lost = list(losses(tmp_path / "disk", record, tmp_path / "crashed"))

    assert lost == []
    assert sum(operation[0] == "ack" for operation in record) == 3
    assert len(record) > 50


def test_a_crash_never_leaves_a_committed_name_with_content_that_may_be_lost(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    record = record_of_saves(root)
    disk = ModelDisk(root)

    for operation in record:
        if operation[0] != "ack":
            disk.apply(operation)
        disk.put(tmp_path / "crashed", names="now", content="synchronised")
        store = CheckpointStore(tmp_path / "crashed" / "checkpoints", session_id="session", run_id="next")
        assert [store.verify(number) for number in store.numbers()] == [[]] * len(store.numbers()), operation


def without(call: str) -> Callable[[list[Operation]], list[Operation]]:
    return lambda record: [operation for operation in record if operation[0] != call]


def acknowledge_early(record: list[Operation]) -> list[Operation]:
    """Say `saved` right after the rename."""
    early = [operation for operation in record if operation[0] != "ack"]
    commits = [i for i, o in enumerate(early) if o[0] == "rename" and o[2].name.startswith("checkpoint-")]
    for index in reversed(commits):
        early.insert(index + 1, ("ack", int(early[index][2].name.partition("-")[2])))
    return early


def delete_before_commit(record: list[Operation]) -> list[Operation]:
    """Make room for the second checkpoint by removing the first one before it is written."""
    first = next(i for i, o in enumerate(record) if o == ("ack", 1)) + 1
    gone = next(o[2] for o in record if o[0] == "rename" and o[2].name == "checkpoint-1")
    return [*record[:first], ("rename", gone, gone.with_name(".trash-1-run")), *record[first:]]


@pytest.mark.parametrize(
    "mutate",
    [without("fsync"), without("fsync_directory"), acknowledge_early, delete_before_commit],
    ids=["no fsync", "no directory fsync", "acknowledged before durable", "deleted before commit"],
)
def test_the_model_notices_a_weaker_protocol(tmp_path: Path, mutate: Callable[..., list[Operation]]) -> None:
    record = record_of_saves(tmp_path / "disk")
    cut = next(i for i, operation in enumerate(record) if operation == ("ack", 2)) + 1

    lost = losses(tmp_path / "disk", mutate(record[:cut]), tmp_path / "crashed")

    assert next(lost, None) is not None


def test_the_recorded_disk_is_the_real_one(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    disk = ModelDisk(root)
    for operation in record_of_saves(root):
        if operation[0] != "ack":
            disk.apply(operation)

    disk.put(tmp_path / "model", names="now", content="now")

    def tree(top: Path) -> dict[str, bytes]:
        return {os.path.relpath(path, top): path.read_bytes() for path in top.rglob("*") if path.is_file()}

    assert tree(tmp_path / "model") == tree(root)
