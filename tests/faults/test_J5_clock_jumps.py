"""A clock on the wall that jumps, forth and back, harms nothing."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fakes import Ended, Program, check_logs_continue, checkpoints, differences, read, rows

from digideep.pipeline.layout import new_session_directory

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

SETS = ["test_win_size=1", "number_epochs=6"]


def jump(seed: int) -> None:
    """Have the wall clock jump by up to a week with each look at it."""
    rng, now = random.Random(seed), time.time
    time.time = lambda: now() + rng.uniform(-7, 7) * 86400.0


@pytest.fixture
def seed() -> int:
    chosen = random.randrange(2**32)
    print("seed", chosen)
    return chosen


def _event_times(session: Path) -> list[float]:
    import struct

    from tensorboard.compat.proto import event_pb2

    (path,) = (session / "tensorboard").iterdir()
    data, found, place = path.read_bytes(), list[float](), 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        found.append(event_pb2.Event.FromString(data[place + 12 : place + 12 + length]).wall_time)
        place += 16 + length
    return found


def _all_totals(node: object) -> list[float]:
    if not isinstance(node, dict):
        return []
    own = [value for key, value in node.items() if key in ("total", "self", "count")]
    return own + [total for child in node.get("children", {}).values() for total in _all_totals(child)]


def test_J5_a_run_and_its_resume_under_a_jumping_clock_are_as_any_other(
    start: Callable[..., Program], command: Run, toy: Toy, seed: int
) -> None:
    before = functools.partial(jump, seed)
    straight = command(*toy("straight", *SETS)).session
    began = time.monotonic()

    first = start(*toy("jumps", *SETS), moments={"learnt 7": ["SIGTERM"]}, before=before).end()
    session = first.session
    second = start("--load-checkpoint", str(session), "--resume", before=before).end()

    elapsed_s = time.monotonic() - began
    assert (first.code, second.code) == (143, 0)
    assert "resumes from checkpoint-7," in second.err
    assert differences(straight, session) == []
    check_logs_continue(session)
    clocks = [row["meta"]["clock"] for row in rows(session / "varlog.jsonl")]
    assert 0 <= clocks[0] and clocks[-1] <= elapsed_s
    for row in rows(session / "prolog.jsonl"):
        assert all(0 <= entry["total"] <= elapsed_s for entry in row["data"].values())
    assert all(0 <= value for value in _all_totals(read(session / "timers.json")))
    speeds = [row["data"]["time/frames_per_s"]["mean"] for row in rows(session / "varlog.jsonl")]
    assert all(speed > 0 for speed in speeds)
    summary = read(session / "summary.json")
    assert 0 < summary["wall_s"] <= elapsed_s and summary["frames_per_s"] > 0
    times = _event_times(session)
    assert times == sorted(times)  # TensorBoard takes an event that goes back for a restart


def test_J5_the_newest_checkpoint_is_that_of_the_highest_number_whatever_its_time(command: Run, toy: Toy) -> None:
    import os

    session = command(*toy("times", "test_win_size=1", "max_exec_iter=2", "keep_last=9"), expect=75).session
    for age, number in enumerate(checkpoints(session)):
        directory = session / "checkpoints" / f"checkpoint-{number}"
        for path in (*directory.iterdir(), directory):
            os.utime(path, (2e9 - 1e8 * age, 2e9 - 1e8 * age))  # the first one is the youngest, and of the future

    ended = command("--load-checkpoint", str(session), "--resume", "--set", "/runner/max_iter=0")

    assert "resumes from checkpoint-4," in ended.err


def test_J5_names_of_sessions_stay_distinct_when_the_clock_goes_back(tmp_path: Path) -> None:
    now = datetime(2026, 11, 29, 16, 11, 5, tzinfo=UTC)
    moments = [now, now + timedelta(seconds=1), now, now - timedelta(days=1), now + timedelta(seconds=1), now]

    names = [new_session_directory(tmp_path, None, moment).name for moment in moments]

    assert names == [
        "session_20261129161105",
        "session_20261129161106",
        "session_20261129161105_2",
        "session_20261128161105",
        "session_20261129161106_2",
        "session_20261129161105_3",
    ]
