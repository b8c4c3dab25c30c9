"""Checkpoints that are damaged: fallen back from with a warning, never silently, never to nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, checkpoints, differences, read

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

QUICK = ["number_epochs=3", "test_win_size=1"]


@pytest.fixture
def stopped(command: Run, toy: Toy) -> Path:
    """A session with checkpoints 0, 2 and 4 that has an epoch to go."""
    return command(*toy("stopped", *QUICK, "max_exec_iter=2"), expect=75).session


def _damage(session: Path, number: int, name: str = "state.json") -> None:
    path = session / "checkpoints" / f"checkpoint-{number}" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["state.json", "agents.agent.safetensors", "MANIFEST.json"])
def test_the_checkpoint_before_is_taken_with_one_warning(
    command: Run, toy: Toy, stopped: Path, tmp_path: Path, name: str
) -> None:
    _damage(stopped, 4, name)

    ended = command("--load-checkpoint", str(stopped), "--resume")

    assert ended.err.count("damaged and passed over: ") == 1
    assert "resumes from checkpoint-2" in ended.err
    assert ended.saved[-1] == "checkpoint-6"
    straight = command(*toy("straight", *QUICK)).session
    assert differences(straight, stopped) == []


def test_a_play_falls_back_too(command: Run, stopped: Path) -> None:
    _damage(stopped, 4)

    ended = command("--load-checkpoint", str(stopped), "--play")

    assert ended.err.count("damaged and passed over: ") == 1
    assert read(ended.evaluation / "results.json")["checkpoint"] == "checkpoint-2"


@pytest.mark.parametrize("verb", ["--resume", "--play"])
def test_all_damaged_is_exit_5_with_each_reason(command: Run, stopped: Path, verb: str) -> None:
    for number in (0, 2, 4):
        _damage(stopped, number)

    ended = command("--load-checkpoint", str(stopped), verb, expect=5)

    error = ended.err.splitlines()[-1]
    assert error.startswith("digideep: error: ")
    assert all(f"checkpoint-{number}" in error for number in (0, 2, 4))
    assert ended.saved == []
    assert checkpoints(stopped) == [0, 2, 4]


@pytest.mark.parametrize("how", ["number", "directory", "best"])
def test_a_named_checkpoint_that_is_damaged_is_exit_5(command: Run, stopped: Path, how: str) -> None:
    summary = read(stopped / "summary.json")
    best = max(summary["checkpoints"][1:], key=lambda entry: (entry["mean_return"], entry["epoch"]))["name"]
    number = int(best.partition("-")[2]) if how == "best" else 4
    _damage(stopped, number)
    named = {
        "number": [str(stopped), "--checkpoint", "4"],
        "directory": [str(stopped / "checkpoints" / "checkpoint-4")],
        "best": [str(stopped), "--checkpoint", "best"],
    }[how]

    ended = command("--load-checkpoint", *named, "--play", expect=5)

    assert ended.err.splitlines()[-1].startswith("digideep: error: ")
    assert f"checkpoint-{number}" in ended.err
    assert "passed over" not in ended.err


def test_a_checkpoint_that_is_not_there_is_told_with_those_that_are(command: Run, stopped: Path) -> None:
    ended = command("--load-checkpoint", str(stopped), "--checkpoint", "3", "--resume", expect=5)

    assert ended.err.splitlines()[-1].startswith("digideep: error: ")
    assert "0, 2, 4" in ended.err


def test_a_resume_that_fails_leaves_the_session_as_it_was(command: Run, stopped: Path) -> None:
    before = read(stopped / "summary.json"), read(stopped / "repeal.json"), (stopped / "varlog.jsonl").read_text()

    command("--load-checkpoint", str(stopped), "--checkpoint", "3", "--resume", expect=5)

    after = read(stopped / "summary.json"), read(stopped / "repeal.json"), (stopped / "varlog.jsonl").read_text()
    assert after == before


def test_leftovers_of_a_kill_are_swept_by_the_next_start(command: Run, stopped: Path) -> None:
    for name in (".tmp-5-abc", ".trash-1-abc"):
        (stopped / "checkpoints" / name).mkdir()

    command("--load-checkpoint", str(stopped), "--resume")

    assert [p.name for p in (stopped / "checkpoints").iterdir() if p.name.startswith((".tmp", ".trash"))] == []


@pytest.mark.parametrize("log", ["varlog.jsonl", "prolog.jsonl", "monlog.jsonl", "monitor/train/0.monitor.csv"])
def test_a_torn_last_line_is_no_problem(command: Run, toy: Toy, stopped: Path, log: str) -> None:
    if (stopped / log).exists():
        with open(stopped / log, "ab") as file:
            file.write(b'{"meta": {"epoch": 9, "fra')

    command("--load-checkpoint", str(stopped), "--resume")

    straight = command(*toy("straight", *QUICK)).session
    assert differences(straight, stopped) == []


def test_a_log_that_was_cut_too_short_ends_nothing(command: Run, stopped: Path) -> None:
    with open(stopped / "varlog.jsonl", "r+b") as file:
        file.truncate(40)

    command("--load-checkpoint", str(stopped), "--resume")

    assert read(stopped / "summary.json")["state"] == "done"
