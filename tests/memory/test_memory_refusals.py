"""Memories for which there is no room are refused from the command line at once, and nothing is left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended

Run = Callable[..., Ended]

REFUSED = {
    "capacity=127": "/memory/train/capacity: expected at least one chunk, 128 transitions, found 127; raise it",
    "capacity=0": "capacity: expected a finite number at least 1 and at most 1000000000000, found 0",
    "capacity=9000000000000": "at most 1000000000000, found 9000000000000",
    "capacity=900000000000": "/memory/train/capacity: expected at most the memory of this machine",
    "capacity=1.5": "capacity: expected integer, found number 1.5",
    "on_disk=/no/such/place": "/memory/train/on_disk: expected true, false or a directory, found '/no/such/place'",
    'on_disk=""': "on_disk: expected true, false or a directory, found ''",
    "on_disk=3": "/memory/train/on_disk: expected true, false or a directory, found '3'",
    "on_damage=ignore": "on_damage: expected one of 'stop', 'drop', found string 'ignore'",
}


@pytest.mark.parametrize("assignment", REFUSED)
def test_G_a_memory_that_cannot_be_is_refused_in_one_line(command: Run, tmp_path: Path, assignment: str) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()

    ended = command(
        "--params", "digideep.testing.toy_q", "--session-path", str(sessions), "--set", assignment, expect=2
    )

    (error,) = ended.err.splitlines()
    assert error.startswith("digideep: error: ") and REFUSED[assignment] in error
    assert ended.out == [] and list(sessions.iterdir()) == []


def test_G_such_a_refusal_comes_before_torch(tmp_path: Path) -> None:
    argv = ["--params", "digideep.testing.toy_q", "--session-path", str(tmp_path / "sessions"), "--set", "capacity=5"]
    program = f"import sys; from digideep.main import main; print(main({json.dumps(argv)}), 'torch' in sys.modules)"

    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert ended.stdout == "2 False\n"
    assert list(tmp_path.iterdir()) == []


def test_G_a_resume_with_a_memory_that_cannot_be_leaves_the_session_as_it_was(command: Run, tmp_path: Path) -> None:
    sets = ["number_epochs=2", "max_exec_iter=1", "test_activate=false", "num_workers=0"]
    argv = ["--params", "digideep.testing.toy_q", "--session-path", str(tmp_path), "--set", *sets]
    session = command(*argv, expect=75).session
    before = {path: path.read_bytes() for path in session.rglob("*") if path.is_file() and path.name != "running.lock"}

    ended = command(
        "--load-checkpoint", str(session), "--resume", "--set", "/memory/train/capacity=900000000000", expect=2
    )

    assert "/memory/train/capacity: expected at most" in ended.err.splitlines()[-1]
    after = {path: path.read_bytes() for path in session.rglob("*") if path.is_file() and path.name != "running.lock"}
    assert after == before
