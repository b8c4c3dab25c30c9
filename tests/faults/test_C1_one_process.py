"""Of all processes that want a session only one has it; the others end with 4 within a second."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cold import LIMIT_S, Cold
from fakes import Ended, Program, checkpoints
from ledger import Tally

from digideep.errors import SessionLockedError
from digideep.pipeline.locks import SessionLock

Start = Callable[..., Program]
Toy = Callable[..., list[str]]
ENDLESS = ["number_epochs=100000", "test_activate=false", "save_interval=0"]
STARTERS = 20


def test_C1_one_of_20_starters_at_a_barrier_gets_the_session(tmp_path: Path, tally: Tally) -> None:
    session = tmp_path / "session_x"
    session.mkdir()
    program = str(Path(__file__).with_name("lock_starters.py"))
    command = [sys.executable, program, str(session), str(STARTERS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as forks:
        assert forks.stdin is not None and forks.stdout is not None
        ready = [forks.stdout.readline() for _ in range(STARTERS)]

        forks.stdin.write("x")
        forks.stdin.flush()
        answers = [forks.stdout.readline() for _ in range(STARTERS)]
        forks.stdin.close()

    tally["starts at once"] += STARTERS
    assert ready == ["ready\n"] * STARTERS
    assert answers.count("got it\n") == 1
    assert sum("found it open in process " in answer for answer in answers) == STARTERS - 1


def test_C1_one_of_20_resumes_at_once_trains_and_the_others_end_with_4(
    start: Start, digideep: Callable[..., Ended], toy: Toy, tally: Tally
) -> None:
    session = digideep(*toy("wanted", *ENDLESS, "max_exec_iter=1"), expect=75).session
    argv = ["--load-checkpoint", str(session), "--resume", "--set", "/runner/max_iter=0"]

    programs = [start(*argv) for _ in range(STARTERS)]
    ended = [program for program in programs if _has_ended(program)]
    (winner,) = [program for program in programs if program not in ended]
    others = [program.end() for program in ended]
    winner.send(15)

    tally["starts at once"] += STARTERS
    assert [other.code for other in others] == [4] * (STARTERS - 1)
    assert all(other.out == [] and other.err.count("\n") == 1 for other in others)
    assert winner.end().code == 143
    assert checkpoints(session)[-1] > 2


def _has_ended(program: Program) -> bool:
    """Wait for the first line of a program: the one that has the session says so, the others end without any."""
    try:
        program.wait_for("session: ")
    except AssertionError:
        return True
    return False


def test_C1_a_second_process_ends_with_4_before_it_imports_torch(start: Start, cold: Cold, tmp_path: Path) -> None:
    preset = ["--params", "digideep.params.cartpole_ppo", "--session-path", str(tmp_path)]
    program = start(*preset, "--set", "total_frames=0", *ENDLESS)
    session = Path(program.wait_for("session: ").removeprefix("session: "))
    program.wait_for("saved ")
    (tmp_path / "cold").mkdir()
    environment = {name: os.environ[name] for name in ("XDG_STATE_HOME", "DIGIDEEP_SESSIONS")}

    answer = cold.ask("main", "--load-checkpoint", str(session), "--resume", cwd=tmp_path / "cold", env=environment)

    assert (answer.code, answer.out) == (4, "")
    assert "torch" not in answer.heavy
    assert f"found it open in process {program.pid} on host " in answer.error
    assert answer.seconds < LIMIT_S


def test_C1_a_lock_file_that_was_deleted_lets_nobody_in(start: Start, digideep: Callable[..., Ended], toy: Toy) -> None:
    program = start(*toy("busy", *ENDLESS))
    session = Path(program.wait_for("session: ").removeprefix("session: "))
    program.wait_for("saved ")
    (session / "running.lock").unlink()

    digideep("--load-checkpoint", str(session), "--resume", expect=4)


def test_C1_a_session_that_was_replaced_while_it_was_opened_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, real = tmp_path / "session_x", os.open
    session.mkdir()
    moved: list[bool] = []

    def open_and_lose(path: object, flags: int, *more: int, **options: int) -> int:
        descriptor = real(path, flags, *more, **options)  # type: ignore[call-overload]
        if path == "running.lock" and not moved:
            # Between the open and the lock somebody puts another directory there, as a synchronising tool does.
            moved.append(True)
            shutil.move(session, tmp_path / "moved")
            session.mkdir()
        return int(descriptor)

    monkeypatch.setattr("digideep.pipeline.locks.os.open", open_and_lose)
    with SessionLock(session), pytest.raises(SessionLockedError), SessionLock(session):
        pass

    assert (session / "running.lock").read_text() != ""
    assert (tmp_path / "moved" / "running.lock").read_text() == ""
