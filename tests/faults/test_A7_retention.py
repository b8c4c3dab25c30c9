"""Which checkpoints stay while saves are killed: the newest, the best and milestones, and nothing that kills left."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

from drivers import Drivers
from ledger import Tally
from saves import check, retain, save, store_at

_LEFT = re.compile(r"checkpoint-\d+|\.(tmp|trash)-\d+-run\d+")


def present(directory: Path) -> set[str]:
    return set(os.listdir(directory))


def expected(newest: int) -> set[int]:
    """Return what `saves.retain` keeps of 1 to `newest`."""
    return {3, newest - 1, newest, *range(10, newest + 1, 10)}


def last_word(lines: list[str]) -> int:
    return max(int(line.removeprefix("saved ")) for line in lines if line.startswith("saved "))


def test_A7_50_saves_with_20_kills_leave_what_was_to_be_kept_and_nothing_else(
    tmp_path: Path, drivers: Drivers, tally: Tally
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng, directory, kills, announced = random.Random(seed), tmp_path / "checkpoints", 0, 0
    while kills < 20 or announced < 50:
        beside = ["--asynchronous"] * (kills % 2)
        driver = drivers.start(str(directory), "--run-id", f"run{kills}", *beside)
        lines = [driver.line() for _ in range(rng.randint(1, 4))]
        time.sleep(rng.random() * 0.02)  # inside a save, or while older ones are removed
        driver.kill()
        announced, kills = last_word([*lines, *driver.rest()]), kills + 1

        where = f"seed {seed}, kill {kills}"
        numbers = store_at(directory).numbers()
        kept = {number for number in expected(announced) if number < announced - 1}
        assert all(_LEFT.fullmatch(name) for name in present(directory)), (where, present(directory))
        assert kept | {announced} <= set(numbers), (where, numbers)
        assert [store_at(directory).verify(number) for number in numbers] == [[]] * len(numbers), where
        tally["kills"] += 1

    store = store_at(directory, run_id="last")
    store.sweep()
    newest = check(store.load())
    save(store, newest + 1)
    retain(store)

    assert present(directory) == {f"checkpoint-{number}" for number in expected(newest + 1)}
    for number in store.numbers():
        assert check(store.load(number)) == number
    tally["lost"] += 0


def test_A7_what_killed_processes_left_is_swept_by_the_next_start_and_not_by_one_that_only_looks(
    tmp_path: Path, drivers: Drivers
) -> None:
    directory = tmp_path / "checkpoints"
    assert drivers.start(str(directory), "--last", "4").rest()[-1] == "exit 0"
    for name in (".tmp-5-gone", ".trash-1-gone"):
        (directory / name).mkdir()
        (directory / name / "memory.train.00000-25.safetensors").write_bytes(b"half")
    (directory / ".tmp-9-gone").mkdir()

    store_at(directory, run_id="look").load()
    looked = present(directory)
    assert drivers.start(str(directory), "--last", "5").rest() == ["saved 5", "exit 0"]

    assert {".tmp-5-gone", ".trash-1-gone", ".tmp-9-gone"} <= looked
    assert present(directory) == {"checkpoint-3", "checkpoint-4", "checkpoint-5"}


def test_A7_removing_checkpoints_takes_nothing_from_those_that_share_their_files(tmp_path: Path) -> None:
    store = store_at(tmp_path / "checkpoints")
    for number in range(1, 13):
        save(store, number)
        retain(store)
        assert store.numbers() == sorted(n for n in expected(number) if 1 <= n <= number)
        assert check(store_at(tmp_path / "checkpoints").load()) == number
    assert check(store.load(3)) == 3
