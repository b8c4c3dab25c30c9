"""B9: logs continue without gap or repeat, and steps in TensorBoard strictly increase."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import CLOCKS, Ended, check_logs_continue, event_steps, metric_rows, monitor_rows, rows
from tensorboard.compat.proto import event_pb2
from toys import arguments, straight_run, toys

Run = Callable[..., Ended]


def events(session: Path) -> list[tuple[str, int, float]]:
    """Return (tag, step, value) of all scalars that no clock has touched, sorted."""
    (path,) = (session / "tensorboard").iterdir()
    data, found, place = path.read_bytes(), list[tuple[str, int, float]](), 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        event = event_pb2.Event.FromString(data[place + 12 : place + 12 + length])
        place += 16 + length
        for value in event.summary.value:
            if not value.tag.startswith(CLOCKS):
                number = value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value
                found.append((value.tag, event.step, number))
    return sorted(found)


def profile(session: Path) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return position and counts of each row of prolog.jsonl, without seconds."""
    found = []
    for row in rows(session / "prolog.jsonl"):
        position = {key: value for key, value in row["meta"].items() if key != "clock"}
        counts = {path: entry["count"] for path, entry in row["data"].items() if path.startswith("/cycle")}
        found.append((position, counts))
    return found


@pytest.mark.parametrize("toy", toys())
def test_B9_rows_equal_those_of_an_uninterrupted_run(digideep: Run, resume: Run, tmp_path: Path, toy: str) -> None:
    straight = straight_run(toy, tmp_path)
    argv = arguments(toy, tmp_path, "cut", "num_workers=0")

    session = digideep(*argv, moments={"cycle 4": ["SIGKILL"]}, expect=-9).session
    resume(session, moments={"test 3": ["SIGKILL"]}, expect=-9)
    resume(session, moments={"learnt 7": ["SIGTERM"]}, expect=143)
    resume(session)

    assert metric_rows(session) == metric_rows(straight)
    assert monitor_rows(session) == monitor_rows(straight)
    assert profile(session) == profile(straight)
    assert events(session) == events(straight)
    check_logs_continue(session)


@pytest.mark.parametrize("toy", toys())
def test_B9_steps_in_tensorboard_strictly_increase(digideep: Run, resume: Run, tmp_path: Path, toy: str) -> None:
    argv = arguments(toy, tmp_path, "cut", "num_workers=2")
    session = digideep(*argv, moments={"cycle 4": ["SIGKILL"]}, expect=-9).session
    before = event_steps(session)["train/return"]
    resume(session)

    steps = event_steps(session)

    assert len(before) == 1
    assert "time/frames_per_s" in steps
    for tag, found in steps.items():
        assert all(one < other for one, other in itertools.pairwise(found)), tag
    assert len(steps["train/return"]) == 4
    assert len(list((session / "tensorboard").iterdir())) == 1
