"""Segments of a large memory: written once, linked into later checkpoints, read one at a time."""

from __future__ import annotations

import errno
import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_meta import META, reseal
from segmented import CountingFileSystem, blocks_in, flip_a_bit, parts, save, segment_file, store_in

from digideep.errors import CheckpointError, StorageError
from digideep.pipeline.checkpoint import Checkpoint, Component
from digideep.pipeline.contents import gather
from digideep.pipeline.fsio import Stamp
from digideep.pipeline.reader import CheckpointReader
from digideep.pipeline.segments import KeptBuffers
from digideep.types import LiveSegments, Segment
from digideep.utility.codec import CodecError


def test_segments_come_back_under_their_key_in_their_order(tmp_path: Path) -> None:
    path = save(store_in(tmp_path), 1, [7, 3, 5])

    loaded = store_in(tmp_path).load()

    state = loaded.components["memory.train"]
    assert list(state) == ["total", "segments", "open", "$odd"]
    assert state["segments"].names == ("00007-8", "00003-8", "00005-8")
    assert len(state["segments"]) == 3
    assert blocks_in(loaded) == [7, 3, 5]
    assert sorted(name for name in os.listdir(path) if name.startswith("memory")) == [
        segment_file(3), segment_file(5), segment_file(7), "memory.train.safetensors",
    ]  # fmt: skip
    stored = json.loads((path / "state.json").read_text())["memory.train"]
    assert stored["segments"] == {"$segments": ["00007-8", "00003-8", "00005-8"]}


def test_a_state_without_any_segment_keeps_its_key(tmp_path: Path) -> None:
    save(store_in(tmp_path), 1, [])

    state = store_in(tmp_path).load().components["memory.train"]

    assert state["segments"].names == () and list(state["segments"]) == []


def test_only_new_segments_are_written_and_the_others_linked(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    store = store_in(tmp_path, fs)
    save(store, 1, [0, 1])
    fs.written.clear()

    save(store, 2, [1, 2])
    save(store, 3, [1, 2])

    assert [name for name in fs.written if "-8" in name] == [segment_file(2)]
    assert fs.linked == [segment_file(1), segment_file(1), segment_file(2)]
    assert (store.path(1) / segment_file(1)).stat().st_ino == (store.path(3) / segment_file(1)).stat().st_ino
    assert blocks_in(store.load(3)) == [1, 2]
    assert store.verify(1) == store.verify(2) == store.verify(3) == []


def test_a_resumed_process_links_what_it_has_loaded(tmp_path: Path) -> None:
    save(store_in(tmp_path), 1, [0, 1])
    fs = CountingFileSystem()
    store = store_in(tmp_path, fs, run_id="next")

    store.load()
    save(store, 2, [0, 1, 2])

    assert fs.linked == [segment_file(0), segment_file(1)]
    assert blocks_in(store_in(tmp_path).load(2)) == [0, 1, 2]


def test_what_is_linked_after_a_load_is_synchronised_first(tmp_path: Path) -> None:
    class SynchronisingFileSystem(CountingFileSystem):
        def __init__(self) -> None:
            super().__init__()
            self.synchronised: list[int] = []

        def fsync(self, descriptor: int) -> None:
            self.synchronised.append(os.fstat(descriptor).st_ino)
            super().fsync(descriptor)

    path = save(store_in(tmp_path), 1, [0])
    fs = SynchronisingFileSystem()
    store = store_in(tmp_path, fs, run_id="next")
    store.load()
    inode = (path / segment_file(0)).stat().st_ino

    for number in (2, 3):
        save(store, number, [0])

    assert fs.synchronised.count(inode) == 1


def test_a_process_that_has_loaded_another_checkpoint_does_not_link_by_name_alone(tmp_path: Path) -> None:
    first = store_in(tmp_path)
    save(first, 1, [0])
    save(first, 2, [0, 1])
    branch = store_in(tmp_path, run_id="branch")
    branch.load(1)
    branch.supersede(1)

    other = Component("memory.train", "ringbuffer", 1, {"segments": LiveSegments([])})
    other.state["segments"] = LiveSegments([Segment("00001-8", {"/rows": np.full((8, 3), 77, "float32")})])
    branch.save(2, [other], meta=META, logs={})

    assert blocks_in(branch.load(2)) == [77]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_links_fail_segments_are_copied(tmp_path: Path, number: int) -> None:
    fs = CountingFileSystem()
    store = store_in(tmp_path, fs)
    save(store, 1, [0, 1])
    fs.refused["link"] = number

    save(store, 2, [0, 1])

    assert (store.path(1) / segment_file(0)).stat().st_ino != (store.path(2) / segment_file(0)).stat().st_ino
    assert blocks_in(store.load(2)) == [0, 1]


def test_where_links_fail_the_room_for_copies_is_asked_for(tmp_path: Path) -> None:
    class SmallDisk(CountingFileSystem):
        free = 1 << 30

        def free_bytes(self, path: Path) -> int:
            return self.free

    fs = SmallDisk()
    store = store_in(tmp_path, fs)
    fs.refused["link"] = errno.EPERM
    for number in (1, 2):  # the second one finds out
        save(store, number, range(40))
    fs.free = 70_000
    fs.written.clear()

    with pytest.raises(StorageError, match=r"found ENOSPC .* 70000 bytes free"):
        save(store, 3, range(40))

    assert fs.written == []


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_was_changed_is_not_passed_on_and_the_next_save_writes_it_anew(tmp_path: Path, links: bool) -> None:
    fs = CountingFileSystem()
    store = store_in(tmp_path, fs)
    save(store, 1, [0, 1])
    if not links:
        fs.refused["link"] = errno.EPERM
    flip_a_bit(store.path(1) / segment_file(0))
    os.utime(store.path(1) / segment_file(0), ns=(1, 1))  # as any later change would

    with pytest.raises(StorageError, match=r"checkpoint-2: expected to write .* found EIO \(it was changed since"):
        save(store, 2, [0, 1])
    save(store, 2, [0, 1])

    assert store.numbers() == [1, 2]
    assert blocks_in(store_in(tmp_path).load(2)) == [0, 1]


def test_a_checkpoint_that_somebody_removed_costs_its_segments_once_more_and_no_save(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    save(store, 1, [0, 1])
    shutil.rmtree(store.path(1))

    save(store, 2, [0, 1])

    assert blocks_in(store.load()) == [0, 1]


def test_retention_takes_names_away_and_no_content(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for number in (1, 2, 3):
        save(store, number, [0, 1])

    store.retain(keep_last=1, keep_best=0, keep_every=0, best=[])

    assert store.numbers() == [3]
    assert blocks_in(store.load()) == [0, 1]
    assert (store.path(3) / segment_file(0)).stat().st_nlink == 1


def test_retention_reads_nothing_that_this_process_has_written(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    store = store_in(tmp_path, fs)
    for number in (1, 2, 3):
        save(store, number, [0, 1])
    fs.read.clear()

    store.retain(keep_last=1, keep_best=0, keep_every=0, best=[])

    assert fs.read == ["MANIFEST.json"]


def test_retention_reads_a_file_that_has_changed_since(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for number in (1, 2):
        save(store, number, [number])
    flip_a_bit(store.path(2) / segment_file(2))
    os.utime(store.path(2) / segment_file(2), ns=(1, 1))

    removed = store.retain(keep_last=1, keep_best=0, keep_every=0, best=[])

    assert removed == []


def test_loading_always_reads_every_file(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    store = store_in(tmp_path, fs)
    path = save(store, 1, [0, 1])
    fs.read.clear()

    store.load()

    assert sorted(fs.read) == sorted(os.listdir(path))


def test_one_who_looks_at_many_checkpoints_reads_what_they_share_once(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        save(store_in(tmp_path), number, [0, number])  # each by a process of its own, which links nothing
    store = store_in(tmp_path)
    store.load()
    save(store, 4, [0, 3])
    fs = CountingFileSystem()
    reader, seen = CheckpointReader(tmp_path / "checkpoints", session_id="session", fs=fs), dict[Stamp, str]()

    for number in (3, 4):
        reader.load(number, vouched=seen)

    assert [fs.read.count(name) for name in (segment_file(0), segment_file(3))] == [1, 1]
    flip_a_bit(store.path(3) / segment_file(3))
    os.utime(store.path(3) / segment_file(3), ns=(1, 1))
    assert [reader.verify(number, vouched=seen) == [] for number in (1, 2, 3, 4)] == [True, True, False, False]


def test_a_segment_that_changes_between_the_check_and_its_use_is_noticed(tmp_path: Path) -> None:
    path = save(store_in(tmp_path), 1, [0, 1])
    segments = iter(store_in(tmp_path).load().components["memory.train"]["segments"])
    next(segments)
    flip_a_bit(path / segment_file(1))

    with pytest.raises(CheckpointError, match=r"checkpoint-1: memory\.train\.00001-8\.safetensors: its sha256 is"):
        next(segments)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["00001-8", "00000-8"], "expected the segments that state.json names in their order"),
        (["00000-8"], "expected the segments that state.json names in their order"),
        (["00000-8", "../../x"], "expected names of segments under 'segments'"),
        ("00000-8", "expected names of segments under 'segments'"),
    ],
)
def test_a_state_that_names_other_segments_is_refused(tmp_path: Path, names: Any, reason: str) -> None:
    path = save(store_in(tmp_path), 1, [0, 1])
    state = json.loads((path / "state.json").read_text())
    state["memory.train"]["segments"]["$segments"] = names
    content = json.dumps(state).encode()
    (path / "state.json").write_bytes(content)
    record = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    reseal(path, lambda fields: fields["files"].update({"state.json": record}))

    with pytest.raises(CheckpointError, match=reason):
        store_in(tmp_path).load(1)


@pytest.mark.parametrize("name", ["", "A", "a.b", "../x", "a/b", "x" * 65, "ä", 7])
def test_names_that_are_no_file_names_are_refused(tmp_path: Path, name: Any) -> None:
    component = Component("memory.train", "m", 1, {"segments": LiveSegments([Segment(name, {})])})

    with pytest.raises(CodecError, match="expected segments named by"):
        store_in(tmp_path).save(1, [component], meta=META, logs={})


@pytest.mark.parametrize(
    "others",
    [
        [Component("memory.train.a", "m", 1, {"w": np.zeros(1)})],
        [Component("memory.Train", "m", 1, {"segments": LiveSegments([Segment("a", {})])})],
    ],
)
def test_two_parts_with_one_file_name_are_refused(tmp_path: Path, others: list[Component]) -> None:
    component = Component("memory.train", "m", 1, {"segments": LiveSegments([Segment("a", {"w": np.zeros(1)})])})

    with pytest.raises(CodecError):
        store_in(tmp_path).save(1, [component, *others], meta=META, logs={})


@pytest.mark.parametrize("arrays", [{"__metadata__": np.zeros(1)}, {"x": np.zeros(1, "complex64")}, {3: np.zeros(1)}])
def test_arrays_that_cannot_be_stored_are_refused(tmp_path: Path, arrays: Any) -> None:
    component = Component("memory.train", "m", 1, {"segments": LiveSegments([Segment("a", arrays)])})

    with pytest.raises(CodecError, match="expected arrays of known dtypes in a segment"):
        store_in(tmp_path).save(1, [component], meta=META, logs={})


def test_views_of_any_stride_and_byte_order_come_back_as_they_are(tmp_path: Path) -> None:
    grid = np.arange(24, dtype="float64").reshape(4, 6)
    arrays = {"t": grid.T, "s": grid[::2, ::3], "b": np.arange(3, dtype=">i4"), "0": np.array(2.5), "e": grid[:0]}
    segments = LiveSegments([Segment("a", arrays)])
    for directory, copied_bytes in (("copied", 1 << 20), ("borrowed", 0)):
        store = store_in(tmp_path / directory)
        store.directory.parent.mkdir()
        content = gather(
            [Component("memory.train", "m", 1, {"s": segments})], buffers=KeptBuffers(), known={},
            copied_bytes=copied_bytes,
        )  # fmt: skip
        assert content.is_copy is (directory == "copied")
        store.commit(1, content, meta=META, logs={})

        (found,) = store.load().components["memory.train"]["s"]

        assert set(found.arrays) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found.arrays[name], array)
            assert found.arrays[name].shape == array.shape


def test_copies_do_not_see_later_changes_and_their_memory_is_used_again(tmp_path: Path) -> None:
    rows = np.zeros((100, 3))
    buffers = KeptBuffers()

    def copy(name: str) -> Any:
        component = Component("memory.train", "m", 1, {"s": LiveSegments([Segment(name, {"rows": rows})])})
        return gather([component], buffers=buffers, known={})

    first = copy("a")
    rows[:] = 5.0
    assert b"".join(bytes(piece) for piece in first.files["memory.train.a.safetensors"])[-2400:] == bytes(2400)
    kept = buffers.segment_bytes
    for name in "bcd":
        copy(name)

    assert buffers.segment_bytes == kept > 2400


def test_the_first_save_after_a_load_copies_into_memory_that_was_touched_before(tmp_path: Path) -> None:
    save(store_in(tmp_path), 1, [0])
    layout = store_in(tmp_path).load().layout
    buffers = KeptBuffers()

    buffers.expect(layout)
    buffers.touch()
    before = {name: dict(arrays) for name, arrays in buffers.arrays.items()}
    gather(parts(2, [0]), buffers=buffers, known={})

    assert {name: list(arrays) for name, arrays in before.items()} == {
        "agents.agent": ["/w"],
        "memory.train": ["/open"],
    }
    assert all(buffers.arrays[name][key] is array for name, kept in before.items() for key, array in kept.items())


def test_room_for_a_quarter_more_segments_is_made_while_there_is_time(tmp_path: Path) -> None:
    buffers = KeptBuffers()
    segments = LiveSegments([Segment("a", {"/rows": np.zeros(4 << 20, "uint8")})])
    gather([Component("memory.train", "m", 1, {"s": segments})], buffers=buffers, known={})
    before = buffers.segment_bytes

    buffers.touch()
    buffers.touch()

    assert before < 1.25 * (4 << 20) <= buffers.segment_bytes < 1.6 * (4 << 20)


def test_a_loaded_memory_is_saved_elsewhere_to_the_same_bytes(tmp_path: Path) -> None:
    first = save(store_in(tmp_path), 1, [4, 5])
    loaded = store_in(tmp_path).load()
    again = [Component(name, entry["kind"], 1, loaded.components[name]) for name, entry in _table(loaded)]
    (tmp_path / "second").mkdir()

    second = store_in(tmp_path / "second").save(1, again, meta=META, logs={})

    assert {p.name: p.read_bytes() for p in first.iterdir()} == {p.name: p.read_bytes() for p in second.iterdir()}


def _table(loaded: Checkpoint) -> Any:
    return loaded.manifest["components"].items()
