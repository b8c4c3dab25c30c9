"""A damaged memory: named in the error, and left out only where that is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from segmented import CountingFileSystem, blocks_in, flip_a_bit, save, segment_file, store_in

from digideep.errors import CheckpointError


def test_damage_of_a_shared_file_is_damage_of_every_checkpoint_that_has_it(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    save(store, 1, [0])
    save(store, 2, [0, 1])
    flip_a_bit(store.path(1) / segment_file(0))

    with pytest.raises(CheckpointError) as caught:
        store_in(tmp_path).load()

    text = str(caught.value)
    assert text.count(f"{segment_file(0)}: its sha256 is") == 3
    assert "all 2 damaged" in text
    assert "checkpoint-2 is whole but for the memory 'train' (memory.train.00000-8.safetensors: its sha256" in text
    assert '; to go on without what was in it, set /memory/train/on_damage to "drop"' in text


def test_an_older_whole_checkpoint_comes_before_a_newer_one_without_its_memory(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    save(store, 1, [0])
    save(store, 2, [0, 1])
    flip_a_bit(store.path(2) / segment_file(1))

    loaded = store_in(tmp_path).load(droppable={"memory.train"})

    assert (loaded.number, loaded.dropped) == (1, ())


@pytest.mark.parametrize("damage", ["changed", "missing"])
@pytest.mark.parametrize("number", [None, 2])
def test_a_memory_that_may_be_dropped_is_left_out_with_one_warning(
    tmp_path: Path, damage: str, number: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    save(store_in(tmp_path), 2, [0, 1])
    victim = store_in(tmp_path).path(2) / segment_file(0)
    if damage == "changed":
        flip_a_bit(victim)
    else:
        victim.unlink()
    fs = CountingFileSystem()
    store = store_in(tmp_path, fs, run_id="next")

    loaded = store.load(number, droppable={"memory.train", "memory.other"})

    assert loaded.dropped == ("memory.train",)
    assert list(loaded.components) == ["agents.agent"]
    assert caplog.text.count("goes on without what was in the memory 'train'") == 1
    save(store, 3, [1])
    assert fs.linked == []  # a memory that begins anew may give its names again
    assert blocks_in(store.load(3)) == [1]


def test_damage_beside_the_memory_is_never_passed_over(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    path = save(store, 1, [0])
    flip_a_bit(path / segment_file(0))
    flip_a_bit(path / "agents.agent.safetensors")

    with pytest.raises(CheckpointError, match="all 1 damaged") as caught:
        store.load(droppable={"memory.train"})

    assert "on_damage" not in str(caught.value)


def test_only_the_memory_that_may_be_dropped_is(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    flip_a_bit(save(store, 1, [0]) / segment_file(0))

    with pytest.raises(CheckpointError, match="the memory 'train'"):
        store.load(1, droppable={"memory.other"})
