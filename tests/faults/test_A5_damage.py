"""Damaged checkpoints are noticed, whatever is damaged; the one before is taken, but never in place of a named one."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import Ended, differences, read
from ledger import Tally
from saves import check, save, store_at

from digideep.errors import CheckpointError
from digideep.pipeline.checkpoint import CheckpointStore

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]
QUICK = ["number_epochs=3", "test_win_size=1"]


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """Checkpoints 4 and 5, whole, each with files of its own: nothing that one loses is missed by the other."""
    saved = store_at(tmp_path / "linked")
    for number in (3, 4, 5):
        save(saved, number)
    shutil.copytree(saved.directory, tmp_path / "checkpoints")
    shutil.rmtree(tmp_path / "checkpoints" / "checkpoint-3")
    return store_at(tmp_path / "checkpoints", run_id="reader")


def files_of(store: CheckpointStore) -> list[Path]:
    return sorted(store.path(5).iterdir())


class Noticed:
    """Checks that damage to checkpoint 5 is noticed in every way in which it can be looked at."""

    def __init__(self, store: CheckpointStore, caplog: pytest.LogCaptureFixture, tally: Tally) -> None:
        self._store, self._caplog, self._tally = store, caplog, tally

    def __call__(self, what: str) -> None:
        """Count one damage that was noticed; `what` says which if it was not."""
        self._caplog.clear()
        assert self._store.verify(5) != [], what
        assert check(self._store.load()) == 4, what
        assert [record.levelname for record in self._caplog.records] == ["WARNING"], what
        assert "checkpoint-5" in self._caplog.text, what
        with pytest.raises(CheckpointError, match="checkpoint-5"):
            self._store.load(5)
        self._tally["damages noticed"] += 1


@pytest.fixture
def noticed(store: CheckpointStore, caplog: pytest.LogCaptureFixture, tally: Tally) -> Noticed:
    return Noticed(store, caplog, tally)


def test_A5_bit_flips_are_noticed(store: CheckpointStore, noticed: Noticed) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng, files, hit = random.Random(seed), files_of(store), set[str]()
    for index in range(400):
        path = files[index % len(files)]
        original = path.read_bytes()
        position, bit = rng.randrange(len(original)), 1 << rng.randrange(8)
        damaged = bytearray(original)
        damaged[position] ^= bit

        path.write_bytes(damaged)

        noticed(f"seed {seed}: {path.name} byte {position} bit {bit}")
        path.write_bytes(original)
        hit.add(path.name)
    assert check(store.load()) == 5
    assert len(hit) == len(files) >= 8


@pytest.mark.parametrize("kind", ["truncated", "zero tail", "longer", "empty", "deleted", "zeroed", "halved"])
def test_A5_every_damaged_file_is_noticed(store: CheckpointStore, noticed: Noticed, kind: str) -> None:
    for path in files_of(store):
        original = path.read_bytes()
        half = len(original) // 2
        changed = {
            "truncated": original[:-1],
            "halved": original[:half],
            "zero tail": original[:half] + bytes(len(original) - half),
            "longer": original + b"\n",
            "empty": b"",
            "zeroed": bytes(len(original)),
        }
        if kind == "deleted":
            path.unlink()
        else:
            path.write_bytes(changed[kind])

        noticed(f"{path.name} {kind}")
        path.write_bytes(original)
    assert check(store.load()) == 5


def test_A5_swapped_files_are_noticed(store: CheckpointStore, noticed: Noticed) -> None:
    """A file of the checkpoint before is whole, and of the same size, and the wrong one all the same."""
    swapped = 0
    for path in files_of(store):
        other, original = store.path(4) / path.name, path.read_bytes()
        if other.exists() and other.read_bytes() != original:
            path.write_bytes(other.read_bytes())
            noticed(f"{path.name} of another checkpoint")
            path.write_bytes(original)
            swapped += 1
    segments = [path for path in files_of(store) if path.name.startswith("memory.train.")]
    contents = [path.read_bytes() for path in segments]
    for path, content in zip(segments, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    noticed("segments that have changed places")

    assert swapped >= 5


def test_A5_renamed_checkpoints_are_noticed(store: CheckpointStore) -> None:
    store.path(5).rename(store.path(6))

    assert store.verify(6) == ["MANIFEST.json: it was written as checkpoint-5 and renamed since"]
    assert check(store.load()) == 4


@pytest.mark.parametrize("kind", ["directory", "link", "FIFO"])
def test_A5_what_is_no_file_is_noticed(store: CheckpointStore, noticed: Noticed, kind: str) -> None:
    for path in files_of(store):
        aside = store.directory.parent / path.name
        path.rename(aside)
        if kind == "link":
            path.symlink_to(aside)
        else:
            (os.mkfifo if kind == "FIFO" else os.mkdir)(path)

        noticed(f"{path.name} is a {kind}")
        path.rmdir() if kind == "directory" else path.unlink()
        aside.rename(path)


def test_A5_a_damaged_segment_damages_every_checkpoint_that_has_it_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = store_at(tmp_path / "checkpoints")
    for number in (3, 4, 5):
        save(saved, number)
    shared = next(path for path in sorted(saved.path(5).iterdir()) if path.stat().st_nlink == 2)
    content = bytearray(shared.read_bytes())
    content[-1] ^= 1
    shared.write_bytes(content)

    store = store_at(tmp_path / "checkpoints", run_id="reader")

    assert check(store.load()) == 3
    assert [f"checkpoint-{number}" in caplog.text for number in (3, 4, 5)] == [False, True, True]
    assert caplog.text.count(shared.name) == 2


class _Canary:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self._path),))


def test_A5_a_pickle_in_place_of_any_file_is_noticed_and_runs_nothing(
    store: CheckpointStore, noticed: Noticed, tmp_path: Path
) -> None:
    for path in files_of(store):
        original = path.read_bytes()
        path.write_bytes(pickle.dumps(_Canary(tmp_path / "canary")).ljust(len(original), b"\0"))

        noticed(f"{path.name} is a pickle")
        path.write_bytes(original)
    assert not (tmp_path / "canary").exists()


@pytest.fixture
def stopped(command: Run, toy: Toy) -> Path:
    """A session with checkpoints 0, 2 and 4 that has an epoch to go."""
    return command(*toy("stopped", *QUICK, "max_exec_iter=2"), expect=75).session


def damage(session: Path, number: int, name: str = "state.json") -> None:
    path = session / "checkpoints" / f"checkpoint-{number}" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["state.json", "agents.agent.safetensors", "MANIFEST.json"])
def test_A5_the_checkpoint_before_is_taken_with_one_warning_and_the_end_is_the_same(
    command: Run, toy: Toy, stopped: Path, name: str
) -> None:
    damage(stopped, 4, name)

    ended = command("--load-checkpoint", str(stopped), "--resume")

    assert ended.err.count("damaged and passed over: ") == 1
    assert "resumes from checkpoint-2" in ended.err
    assert ended.saved[-1] == "checkpoint-6"
    straight = command(*toy("straight", *QUICK)).session
    assert differences(straight, stopped) == []


def test_A5_a_play_falls_back_too(command: Run, stopped: Path) -> None:
    damage(stopped, 4)

    ended = command("--load-checkpoint", str(stopped), "--play")

    assert ended.err.count("damaged and passed over: ") == 1
    assert read(ended.evaluation / "results.json")["checkpoint"] == "checkpoint-2"


@pytest.mark.parametrize("how", ["number", "directory", "best"])
@pytest.mark.parametrize("verb", ["--play", "--resume"])
def test_A5_a_named_checkpoint_that_is_damaged_is_exit_5(command: Run, stopped: Path, how: str, verb: str) -> None:
    summary = read(stopped / "summary.json")
    best = max(summary["checkpoints"][1:], key=lambda entry: (entry["mean_return"], entry["epoch"]))["name"]
    number = int(best.partition("-")[2]) if how == "best" else 4
    damage(stopped, number)
    named = {
        "number": [str(stopped), "--checkpoint", "4"],
        "directory": [str(stopped / "checkpoints" / "checkpoint-4")],
        "best": [str(stopped), "--checkpoint", "best"],
    }[how]

    ended = command("--load-checkpoint", *named, verb, expect=5)

    assert ended.err.splitlines()[-1].startswith("digideep: error: ")
    assert f"checkpoint-{number}" in ended.err
    assert "passed over" not in ended.err
