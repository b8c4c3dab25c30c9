"""Checkpoints that are damaged: fallen back from with a warning, never silently, never to nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, differences, read

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
