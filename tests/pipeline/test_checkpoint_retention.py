from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from checkpoint_meta import META

from digideep.pipeline.checkpoint import CheckpointStore, Component


def store_with(directory: Path, numbers: list[int], *, run_id: str = "run1") -> CheckpointStore:
    store = CheckpointStore(directory / "checkpoints", session_id="session", run_id=run_id)
    for number in numbers:
        save(store, number)
    return store


def save(store: CheckpointStore, number: int) -> None:
    store.save(number, [Component("runner", "runner", 1, {"cycle": number, "by": store.run_id})], meta=META, logs={})


@pytest.mark.parametrize(
    ("keep_last", "keep_best", "keep_every", "best", "left"),
    [
        (2, 0, 0, [], [8, 9]),
        (1, 1, 0, [3, 5], [3, 9]),
        (1, 2, 0, [3, 77, 5], [3, 5, 9]),
        (1, None, 0, [3, 5, 1], [1, 3, 5, 9]),
        (1, 0, 4, [], [0, 4, 8, 9]),
        (0, 0, 0, [], [9]),
        (99, 0, 0, [], list(range(10))),
        (3, 1, 5, [2], [0, 2, 5, 7, 8, 9]),
    ],
)
def test_newest_best_and_milestones_stay(
    tmp_path: Path, keep_last: int, keep_best: int | None, keep_every: int, best: list[int], left: list[int]
) -> None:
    store = store_with(tmp_path, list(range(10)))

    removed = store.retain(keep_last=keep_last, keep_best=keep_best, keep_every=keep_every, best=best)

    assert store.numbers() == left
    assert removed == [number for number in range(10) if number not in left]
    assert os.listdir(store.directory) and all(name.startswith("checkpoint-") for name in os.listdir(store.directory))


def test_the_last_good_checkpoint_is_never_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_with(tmp_path, [1, 2, 3])
    for number in (2, 3):
        (store.path(number) / "state.json").write_text("")

    with caplog.at_level(logging.WARNING):
        removed = store.retain(keep_last=2, keep_best=0, keep_every=0, best=[])

    assert removed == []
    assert store.numbers() == [1, 2, 3]
    assert "every checkpoint to keep is damaged; none was removed" in caplog.text


def test_retention_of_nothing_is_nothing(tmp_path: Path) -> None:
    assert store_with(tmp_path, []).retain(keep_last=2, keep_best=0, keep_every=0, best=[]) == []


def test_later_checkpoints_are_moved_aside_and_stay_until_passed_by(tmp_path: Path) -> None:
    store_with(tmp_path, [1, 2, 3])
    store = store_with(tmp_path, [], run_id="run2")

    moved = store.supersede(1)
    names = sorted(os.listdir(store.directory))
    save(store, 2)
    store.retain(keep_last=5, keep_best=0, keep_every=0, best=[])

    assert moved == [".superseded-3-run2", ".superseded-2-run2"]
    assert names == [".superseded-2-run2", ".superseded-3-run2", "checkpoint-1"]
    assert sorted(os.listdir(store.directory)) == [".superseded-3-run2", "checkpoint-1", "checkpoint-2"]
    assert store.load(2).components["runner"]["by"] == "run2"


def test_superseding_again_and_again_keeps_one_of_each_number(tmp_path: Path) -> None:
    for run in range(4):
        store = store_with(tmp_path, [1, 2], run_id=f"run{run}")
        store.supersede(1)
    same_run = store_with(tmp_path, [2], run_id="run3")
    same_run.supersede(1)

    assert sorted(os.listdir(tmp_path / "checkpoints")) == [".superseded-2-run3-2", "checkpoint-1"]


def test_superseding_nothing_changes_nothing(tmp_path: Path) -> None:
    store = store_with(tmp_path, [1, 2])

    assert store.supersede(2) == []
    assert store.numbers() == [1, 2]


def test_sweeping_removes_what_killed_processes_left_and_nothing_else(tmp_path: Path) -> None:
    store = store_with(tmp_path, [1, 2])
    for name in (".tmp-3-old", ".trash-0-old", ".superseded-2-old", ".superseded-9-old", ".other", "notes"):
        (store.directory / name).mkdir()
        (store.directory / name / "file").write_text("x")
    (store.directory / ".tmp-link").symlink_to(store.path(1))

    store.sweep()

    left = [".other", ".superseded-9-old", "checkpoint-1", "checkpoint-2", "notes"]
    assert sorted(os.listdir(store.directory)) == left
    assert store.verify(1) == []


def test_superseded_checkpoints_outlive_a_damaged_successor(tmp_path: Path) -> None:
    store = store_with(tmp_path, [1, 2])
    store.supersede(1)
    save(store, 2)
    (store.path(2) / "state.json").write_text("")

    store.sweep()
    store.retain(keep_last=5, keep_best=0, keep_every=0, best=[])

    assert ".superseded-2-run1" in os.listdir(store.directory)


def test_sweeping_before_the_first_save_is_nothing(tmp_path: Path) -> None:
    store = store_with(tmp_path, [])

    store.sweep()

    assert not store.directory.exists()
