"""Long runs grow in nothing: memory, descriptors, threads, processes."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes import Program
from signalling import wrap

WARM_UP = 40  # epochs until caches and buffers have their size
FEW = ["num_envs=2", "num_workers=2", "n_steps=8", "epoch_size=1", "minibatch_size=8", "test_win_size=1", "keep_last=2"]


def measure_epochs(path: str) -> None:
    """Write a line at each epoch: resident bytes, descriptors, threads, and processes below this one."""
    process = psutil.Process(os.getpid())

    def make(original: Any) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(session: Any, *args: Any, **options: Any) -> Any:
            # A save in flight has descriptors, and where epochs are quicker than the disk one is always in flight.
            session.saver.look(wait=True)
            found = [process.memory_info().rss, _descriptors(), threading.active_count(), len(process.children())]
            with open(path, "a") as file:
                file.write(json.dumps(found) + "\n")
            return original(session, *args, **options)

        return wrapper

    wrap("digideep.pipeline.session:Session.log_epoch", make)


def _descriptors() -> int:
    """Count open descriptors but that of the log which is opened by a clock, at the first look at the usage."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += not os.readlink(f"/proc/self/fd/{name}").endswith("/monlog.jsonl")
        except FileNotFoundError:  # that of the listing itself
            continue
    return count


def test_J1_epochs_and_saves_leave_nothing_open_and_take_no_memory(
    start: Callable[..., Program], toy: Callable[..., list[str]], tmp_path: Path
) -> None:
    _check_growth(start, toy, tmp_path, epochs=150)


@pytest.mark.nightly
def test_J1_five_hundred_epochs_and_saves_leave_nothing_open_and_take_no_memory(
    start: Callable[..., Program], toy: Callable[..., list[str]], tmp_path: Path
) -> None:
    _check_growth(start, toy, tmp_path, epochs=500)


def _check_growth(start: Callable[..., Program], toy: Callable[..., list[str]], tmp_path: Path, *, epochs: int) -> None:
    path = tmp_path / "measured"

    ended = start(
        *toy("long", f"number_epochs={epochs}", *FEW), before=functools.partial(measure_epochs, str(path))
    ).end(timeout_s=600)

    assert ended.code == 0
    assert len(ended.saved) >= epochs
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    # The usage thread opens files for a moment: the lowest of a few epochs is what stays.
    early, late = rows[WARM_UP : WARM_UP + 20], rows[-20:]
    before, after = ([min(row[i] for row in part) for i in range(4)] for part in (early, late))
    grown_mb = (after[0] - before[0]) / 1e6
    print(f"{epochs} epochs: grown by {grown_mb:.2f} MB; descriptors, threads, children: {before[1:]} -> {after[1:]}")
    assert grown_mb < 5.0
    assert after[1:] == before[1:]
