"""What people report of logs after a resume, each as it must be here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, check_logs_continue, event_steps, monitor_rows, read, rows

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]


def test_rows_never_shrink_nor_restart(command: Run, toy: Toy) -> None:
    session = command(*toy("logs", "test_win_size=1", "max_exec_iter=2"), expect=75).session
    report = (session / "report.log").read_text()
    before = [len(rows(session / name)) for name in ("varlog.jsonl", "prolog.jsonl")]
    episodes = monitor_rows(session)

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/max_iter=0")

    after = [len(rows(session / name)) for name in ("varlog.jsonl", "prolog.jsonl")]
    assert (before, after) == ([2, 2], [4, 4])
    assert (session / "report.log").read_text().startswith(report)
    for name, lines in monitor_rows(session).items():
        assert lines[: len(episodes[name])] == episodes[name]
    frames = [row["meta"]["frame"] for row in rows(session / "varlog.jsonl")]
    assert event_steps(session)["train/return"] == frames
    check_logs_continue(session)


def test_frames_a_second_are_of_this_run(command: Run, toy: Toy) -> None:
    session = command(*toy("speed", "test_activate=false", "number_epochs=40"), expect=0).session
    first = read(session / "summary.json")["frame"]

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/n_epochs=41")

    summary = read(session / "summary.json")
    run = rows(session / "varlog.jsonl")
    seconds = summary["wall_s"] - run[-2]["meta"]["clock"]
    assert summary["frames_per_s"] < summary["frame"] / max(seconds, 1e-9)
    assert summary["frames_per_s"] * seconds < first  # the 40 epochs before are not counted


def test_the_printed_speed_is_frames_by_wall_time(command: Run, toy: Toy) -> None:
    session = command(*toy("speed", "test_activate=false", "n_steps=256", "epoch_size=8", "save_interval=0")).session

    run = rows(session / "varlog.jsonl")
    frames = run[-1]["meta"]["frame"] - run[0]["meta"]["frame"]
    seconds = run[-1]["meta"]["clock"] - run[0]["meta"]["clock"]
    parts = [
        (later["meta"]["frame"] - earlier["meta"]["frame"]) / later["data"]["time/frames_per_s"]["mean"]
        for earlier, later in itertools.pairwise(run)
    ]
    assert frames / sum(parts) == pytest.approx(frames / seconds, rel=0.2)


def test_every_tag_of_varlog_is_in_tensorboard_at_the_same_frames(command: Run, toy: Toy) -> None:
    session: Path = command(*toy("tags", "test_win_size=1")).session

    steps, run = event_steps(session), rows(session / "varlog.jsonl")
    for tag in {name for row in run for name in row["data"]}:
        assert steps[tag] == [row["meta"]["frame"] for row in run if tag in row["data"]]
