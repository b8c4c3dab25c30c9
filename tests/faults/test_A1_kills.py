"""`kill -9` at any instant, also inside a save: nothing that was announced is lost."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from drivers import CALLS, Drivers, inject
from fakes import TOY, Ended, differences
from ledger import Tally
from real_runs import kill_at_random
from saves import check, retain, save, store_at


def numbers(lines: list[str]) -> list[int]:
    """Return what a driver has announced."""
    return [int(line.removeprefix("saved ")) for line in lines if line.startswith("saved ")]


def look(directory: Path, *, announced: int, where: str, rows: int = 25) -> int:
    """Return the newest checkpoint after a kill, which has to be the last announced one or complete and later."""
    newest = check(store_at(directory, run_id="look").load(), rows=rows)
    assert newest in (announced, announced + 1), where
    return newest


def kill_drivers(
    directory: Path, drivers: Drivers, *, kills: int, options: list[str], tally: Tally, rows: int = 25
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng, announced = random.Random(seed), 0
    for kill in range(kills):
        driver = drivers.start(str(directory), "--run-id", f"run{kill}", "--rows", str(rows), *options)
        lines = [driver.line() for _ in range(rng.randint(1, 2))]
        time.sleep(rng.random() * 0.03)  # anywhere inside the saves that follow
        driver.kill()
        lines += driver.rest()

        where, said = f"seed {seed}, kill {kill}: {lines}", numbers(lines)
        assert said[0] in (announced + 1, announced + 2), where  # a save may be complete and not yet announced
        assert said == list(range(said[0], said[-1] + 1)), where
        announced = said[-1]
        look(directory, announced=announced, where=where, rows=rows)
        tally["kills"] += 1
    store = store_at(directory, run_id="last")
    store.sweep()
    retain(store)
    newest = check(store.load(), rows=rows)
    assert store.numbers() == sorted({3, newest - 1, newest, *range(10, newest + 1, 10)})
    assert {path.name for path in directory.iterdir()} == {f"checkpoint-{number}" for number in store.numbers()}
    tally["lost"] += 0


@pytest.mark.parametrize("options", [[], ["--asynchronous"]], ids=["in place", "in a thread"])
def test_A1_random_kills_lose_nothing_that_was_announced(
    tmp_path: Path, drivers: Drivers, options: list[str], tally: Tally
) -> None:
    kill_drivers(tmp_path / "checkpoints", drivers, kills=40, options=options, tally=tally)


@pytest.mark.nightly
@pytest.mark.parametrize("options", [[], ["--asynchronous"]], ids=["in place", "in a thread"])
@pytest.mark.parametrize("rows", [25, 20_000])
def test_A1_300_random_kills_lose_nothing_that_was_announced(
    tmp_path: Path, drivers: Drivers, options: list[str], rows: int, tally: Tally
) -> None:
    kill_drivers(tmp_path / "checkpoints", drivers, kills=300, options=options, tally=tally, rows=rows)


@pytest.mark.parametrize("options", [[], ["--asynchronous"]], ids=["in place", "in a thread"])
@pytest.mark.parametrize("call", CALLS)
def test_A1_a_kill_at_each_call_of_a_save_loses_nothing_that_was_announced(
    tmp_path: Path, drivers: Drivers, strace: None, call: str, options: list[str], tally: Tally
) -> None:
    original, directory = tmp_path / "original", tmp_path / "checkpoints"
    for number in (1, 2):
        save(store_at(original), number)
    n, fired = 0, True
    while fired:
        n += 1
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(original, directory)
        fault = f"signal=KILL:when={n}"
        lines, fired = inject(
            drivers, str(directory), "--last", "3", *options, call=call, fault=fault, trace=tmp_path / "trace"
        )

        where = f"{call} {n}: {lines}"
        assert fired == ("exit 0" not in lines), where
        newest = look(directory, announced=max([2, *numbers(lines)]), where=where)
        tally["kills at a call"] += fired
        store = store_at(directory, run_id="next")
        store.sweep()
        assert all(path.name.startswith("checkpoint-") for path in directory.iterdir()), where
        assert check(store.load()) == newest, where
        save(store, newest + 1)
        assert check(store.load()) == newest + 1, where
    assert n > 1


@pytest.mark.parametrize("kills", [pytest.param(12, id="12"), pytest.param(200, marks=pytest.mark.nightly, id="200")])
def test_A1_real_runs_that_are_killed_at_random_end_as_if_they_had_not_been(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], tmp_path: Path, kills: int, tally: Tally
) -> None:
    sets = ["--set", f"number_epochs={2 * kills}", "test_interval=8", "test_win_size=1", "keep_last=3"]
    straight = digideep(*toy("straight"), *sets).session
    argv = ["--autoresume", "--params", TOY, "--session-path", str(tmp_path), "--session-name", "killed", *sets]

    session = kill_at_random(argv, cwd=tmp_path, kills=kills, tally=tally)

    assert differences(straight, session) == []
