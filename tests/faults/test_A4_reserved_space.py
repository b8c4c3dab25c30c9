"""A memory on disk has its space before training begins: a full disk is an error then, and no SIGBUS later."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import Ended, Program
from ledger import Tally
from toys import arguments

Run = Callable[..., Ended]

BIG = 500_000  # transitions of the toy: more than 16 MB


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"expected the right to mount a tmpfs, found: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_A4_a_memory_that_does_not_fit_its_disk_is_an_error_before_training(
    digideep: Run, tmp_path: Path, tiny_disk: Path, tally: Tally
) -> None:
    knobs = ["num_workers=0", f"capacity={BIG}", f"on_disk={tiny_disk}"]

    ended = digideep(*arguments("toy_q", tmp_path, "big", *knobs), expect=9)

    tally["faults injected"] += 1
    (line,) = [line for line in ended.err.splitlines() if line.startswith("digideep: error: ")]
    assert "/memory/train/on_disk: expected room for " in line
    assert f"below {tiny_disk}, found No space left on device" in line
    assert "lower /memory/train/capacity or name another directory" in line
    assert float(line.partition("room for ")[2].partition(" MB")[0]) > 16.0
    assert ended.code != -signal.SIGBUS and ended.saved == []
    assert os.listdir(tiny_disk) == []


def test_A4_a_disk_that_fills_up_later_takes_nothing_from_the_memory(
    start: Callable[..., Program], tmp_path: Path, tiny_disk: Path, tally: Tally
) -> None:
    program = start(*arguments("toy_q", tmp_path, "fits", "num_workers=0", "capacity=20000", f"on_disk={tiny_disk}"))
    program.wait_for("saved ")  # the memory has its room by then, and no row
    (tiny_disk / "others").write_bytes(bytes(shutil.disk_usage(tiny_disk).free))
    assert shutil.disk_usage(tiny_disk).free == 0

    ended = program.end()

    tally["faults injected"] += 1
    assert ended.code == 0, ended.err
    assert os.listdir(tiny_disk) == ["others"]
