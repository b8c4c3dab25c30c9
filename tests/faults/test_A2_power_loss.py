"""What is on the disk after a power failure, for every moment of a series of saves by the real store."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from crashdisk import ModelDisk, Operation, RecordingOs, Tree, TreeFileSystem, tree_of
from ledger import Tally
from saves import check, retain, save, store_at

from digideep.errors import CheckpointError

Record = Callable[..., list[Operation]]
LAST = 5


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Return a function that saves 1, 2, ... and gives all calls, with ("ack", number) where a save has returned."""
    recording = RecordingOs()
    monkeypatch.setattr("digideep.pipeline.filesystem.os", recording)

    def run(last: int = LAST, *, rows: int = 25) -> list[Operation]:
        (tmp_path / "disk").mkdir()
        store = store_at(tmp_path / "disk" / "checkpoints")
        for number in range(1, last + 1):
            save(store, number, rows=rows)
            recording.record.append(("ack", number))
            retain(store)
        return recording.record

    return run


def newest(tree: Tree) -> int:
    """Return the number of the checkpoint that a new process loads, 0 if none; its content has to be exact."""
    root = Path("/disk")
    store = store_at(root / "checkpoints", run_id="next", fs=TreeFileSystem(tree, root))
    try:
        loaded = store.load()
    except CheckpointError:
        return 0
    return check(loaded)


def losses(root: Path, record: Sequence[Operation], *, mixed: int, tally: Tally) -> Iterator[str]:
    """Yield one line for each crash state in which the last announced checkpoint, or anything later, is wrong."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng, disk, announced, known = random.Random(seed), ModelDisk(root), 0, dict[str, int]()
    for moment, operation in enumerate(record):
        if operation[0] == "ack":
            announced = operation[1]
        else:
            disk.apply(operation)
        for kept, tree in disk.crashes(rng, mixed=mixed):
            tally["crash states"] += 1
            key = repr(tree)
            if key not in known:
                tally["distinct crash states"] += 1
                known[key] = newest(tree)
            if known[key] < announced:
                tally["lost"] += 1
                yield f"after {moment} {operation[:2]}, {kept}: {known[key]} < {announced}"


def test_A2_no_crash_state_loses_an_announced_checkpoint(tmp_path: Path, record: Record, tally: Tally) -> None:
    calls = record()

    tally["lost"] += 0  # shown where it stays so
    lost = list(itertools.islice(losses(tmp_path / "disk", calls, mixed=40, tally=tally), 9))

    assert lost == []
    assert sum(operation[0] == "ack" for operation in calls) == LAST
    assert sum(operation[0] == "link" for operation in calls) >= LAST
    assert tally["crash states"] > 5_000


@pytest.mark.nightly
def test_A2_no_crash_state_of_long_histories_loses_an_announced_checkpoint(
    tmp_path: Path, record: Record, tally: Tally
) -> None:
    assert list(losses(tmp_path / "disk", record(14), mixed=200, tally=tally)) == []


def test_A2_a_committed_name_never_has_content_that_may_be_lost(tmp_path: Path, record: Record, tally: Tally) -> None:
    calls = record()
    disk, root, known = ModelDisk(tmp_path / "disk"), Path("/disk"), set[str]()

    for operation in calls:
        if operation[0] != "ack":
            disk.apply(operation)
        tree = disk.after_crash(names="all", contents="none")
        tally["crash states"] += 1
        if repr(tree) in known:
            continue
        known.add(repr(tree))
        store = store_at(root / "checkpoints", run_id="next", fs=TreeFileSystem(tree, root))
        assert [store.verify(number) for number in store.numbers()] == [[]] * len(store.numbers()), operation[:2]


def test_A2_a_damaged_checkpoint_that_is_written_again_is_never_both_gone(
    tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    calls = record(2)
    (tmp_path / "disk" / "checkpoints" / "checkpoint-2" / "state.json").write_bytes(b"")
    before = len(calls)
    save(store_at(tmp_path / "disk" / "checkpoints", run_id="again"), 2)

    disk, known = ModelDisk(tmp_path / "disk"), dict[str, int]()
    for moment, operation in enumerate(calls):
        if operation[0] != "ack":
            disk.apply(operation)
        if moment < before:
            continue
        for kept, tree in disk.crashes(random.Random(0), mixed=0):
            tally["crash states"] += 1
            key = repr(tree)
            known[key] = known[key] if key in known else newest(tree)
            assert known[key] >= 1, (moment, operation[:2], kept)


def test_the_recorded_disk_is_the_real_one(tmp_path: Path, record: Record) -> None:
    disk = ModelDisk(tmp_path / "disk")
    for operation in record():
        if operation[0] != "ack":
            disk.apply(operation)

    assert disk.after_crash(names="all", contents="all") == tree_of(tmp_path / "disk")


def without(call: str) -> Callable[[list[Operation]], list[Operation]]:
    return lambda record: [operation for operation in record if operation[0] != call]


def announce_early(record: list[Operation]) -> list[Operation]:
    """Say `saved` right after the rename."""
    early = [operation for operation in record if operation[0] != "ack"]
    commits = [i for i, o in enumerate(early) if o[0] == "rename" and o[2].name.startswith("checkpoint-")]
    for index in reversed(commits):
        early.insert(index + 1, ("ack", int(early[index][2].name.partition("-")[2])))
    return early


@pytest.mark.parametrize("change", [without("fsync"), announce_early], ids=["no fsync at all", "announced too early"])
def test_the_model_notices_a_weaker_protocol(tmp_path: Path, record: Record, change: Any) -> None:
    calls = change(record(2))

    assert next(losses(tmp_path / "disk", calls, mixed=0, tally=Tally()), None) is not None
