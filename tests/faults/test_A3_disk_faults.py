"""A disk that refuses: old checkpoints are untouched, one line says why, training goes on, three in a row end it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivers import CALLS, Drivers, inject
from fakes import Ended, checkpoints, read
from ledger import Tally
from saves import check, save, store_at

# Every error at every call of a save is in tests/pipeline/test_checkpoint_faults.py, without a system between.
RARE = [pytest.param(error, marks=pytest.mark.nightly) for error in ("EDQUOT", "EROFS", "EFBIG")]
ERRORS = ["ENOSPC", "EIO", *RARE]
Run = Callable[..., Ended]


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """Checkpoints 1 and 2."""
    for number in (1, 2):
        save(store_at(tmp_path / "original"), number)
    return tmp_path / "original"


def tree(directory: Path) -> dict[str, tuple[int, str]]:
    """Return mode and hash of every file by its path."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(directory)): (path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in files
    }


def check_after(directory: Path, lines: list[str], *, error: str, before: Path, where: str) -> None:
    """Check what a driver has left that was to save 3 and 4 while one call failed."""
    failed = [line for line in lines if line.startswith("failed ")]
    saved = [int(line.removeprefix("saved ")) for line in lines if line.startswith("saved ")]
    assert lines[-1] == "exit 0" and len(failed) + len(saved) == 2, where
    for line in [line for line in lines if not line.startswith(("saved ", "exit "))]:
        assert f", found {error} (" in line and "\n" not in line, where
    assert len(failed) <= 1, where
    if failed:
        assert f"{directory}/checkpoint-{({3, 4} - set(saved)).pop()}: expected to write" in failed[0], where
        assert tree(directory / "checkpoint-2") == tree(before / "checkpoint-2"), where
    store = store_at(directory, run_id="next")
    assert check(store.load()) == saved[-1], where
    assert [store.verify(number) for number in store.numbers()] == [[]] * len(store.numbers()), where
    store.sweep()
    assert all(path.name.startswith("checkpoint-") for path in directory.iterdir()), where


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", ERRORS)
def test_A3_a_fault_at_any_call_of_a_save_leaves_old_checkpoints_and_training_goes_on(
    tmp_path: Path, drivers: Drivers, strace: None, original: Path, call: str, error: str, tally: Tally
) -> None:
    directory, n, fired, lines = tmp_path / "checkpoints", 0, True, list[str]()
    while fired and not any(line.startswith("failed 4: ") for line in lines):  # from there on calls are the same again
        n += 1
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(original, directory)
        fault = f"error={error}:when={n}"
        lines, fired = inject(drivers, str(directory), "--last", "4", call=call, fault=fault, trace=tmp_path / "trace")
        tally["faults injected"] += fired
        check_after(directory, lines, error=error, before=original, where=f"{call} {n} {error}: {lines}")
    assert n > 1


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("options", [[], ["--asynchronous"]], ids=["in place", "in a thread"])
def test_A3_a_disk_that_stays_broken_ends_the_run_after_three_saves_and_leaves_what_stood(
    tmp_path: Path, drivers: Drivers, strace: None, original: Path, error: str, options: list[str], tally: Tally
) -> None:
    directory = tmp_path / "checkpoints"
    shutil.copytree(original, directory)

    lines, fired = inject(
        drivers, str(directory), "--last", "9", *options,
        call="fsync", fault=f"error={error}:when=1+", trace=tmp_path / "trace",
    )  # fmt: skip

    assert fired
    tally["faults injected"] += 3
    assert [line.partition(":")[0] for line in lines] == ["failed 3", "failed 4", "failed 5", "exit 9"]
    assert tree(directory) == tree(original)
    assert sorted(os.listdir(directory)) == ["checkpoint-1", "checkpoint-2"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 5 MB: room for a session with its code, and for few checkpoints."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"expected the right to mount a tmpfs, found: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_A3_a_disk_that_is_full_leaves_what_stood_and_says_how_much_is_missing(
    small_disk: Path, drivers: Drivers, tally: Tally
) -> None:
    rows = ["--rows", "20000"]  # each save has two new arrays of 320 kB
    lines = drivers.start(str(small_disk / "checkpoints"), *rows, "--last", "2").rest()
    assert lines == ["saved 1", "saved 2", "exit 0"]
    (small_disk / "others").write_bytes(bytes(shutil.disk_usage(small_disk).free - 100_000))
    before = tree(small_disk / "checkpoints")

    full = drivers.start(str(small_disk / "checkpoints"), *rows, "--last", "9").rest()
    after = tree(small_disk / "checkpoints")
    (small_disk / "others").unlink()
    freed = drivers.start(str(small_disk / "checkpoints"), *rows, "--last", "5").rest()

    tally["faults injected"] += 3
    assert [line.partition(":")[0] for line in full] == ["failed 3", "failed 4", "failed 5", "exit 9"]
    assert "bytes, found ENOSPC (No space left on device), " in full[0] and "; free some space" in full[0]
    assert after == before
    assert freed == ["saved 3", "saved 4", "saved 5", "exit 0"]


def test_A3_a_run_on_a_full_disk_keeps_its_checkpoints_and_goes_on_where_there_is_room_again(
    small_disk: Path, digideep: Run, resume: Run, toy: Callable[..., list[str]], tally: Tally
) -> None:
    place = [*toy("full", "number_epochs=9", "test_activate=false", "hidden_sizes=[128,128]", "keep_last=20")]
    place[place.index("--session-path") + 1] = str(small_disk)

    ended = digideep(*place, expect=9)
    stood = checkpoints(ended.session)
    summary = read(ended.session / "summary.json")
    before = tree(ended.session / "checkpoints")
    shutil.copytree(ended.session, small_disk.parent / "moved")
    moved = resume(small_disk.parent / "moved", "--trust-session")

    tally["faults injected"] += 3
    assert ended.err.count(" of 3 failed: ") == 3
    assert ended.saved == [f"checkpoint-{number}" for number in stood] and len(stood) >= 2
    assert summary["exit_code"] == 9
    assert set(before) <= set(tree(moved.session / "checkpoints"))
    assert checkpoints(moved.session)[-1] == 18
