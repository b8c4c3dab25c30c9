"""The same command again goes on with the same session."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import TOY, Ended, Program, checkpoints, differences, read, rows

Run = Callable[..., Ended]

SETS = ["--set", "test_win_size=1", "number_epochs=3"]


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    return ["--autoresume", "--params", TOY, "--session-path", str(tmp_path), "--lock-wait", "0"]


def test_a_new_session_is_told_as_new_and_named_after_what_was_asked_for(command: Run, argv: list[str]) -> None:
    first = command(*argv, *SETS, "keep_last=9")

    assert first.out[1] == "autoresume: new"
    name, _, fingerprint = first.session.name.rpartition("-")
    assert (name, len(fingerprint), set(fingerprint) <= set("0123456789abcdef")) == ("toy_params", 12, True)
    assert command(*argv, *SETS, "keep_last=8").session != first.session


def test_the_same_command_resumes_and_finally_is_done(
    command: Run, digideep: Run, argv: list[str], tmp_path: Path
) -> None:
    sets = ["--set", "test_win_size=1"]
    first = digideep(*argv, *sets, moments={"learnt 3": ["SIGTERM"]}, expect=143)
    second = digideep(*argv, *sets, moments={"cycle 6": ["SIGKILL"]}, expect=-9)
    third = digideep(*argv, *sets)
    fourth = digideep(*argv, *sets)

    assert [ended.out[1] for ended in (first, second, third, fourth)] == [
        "autoresume: new", "autoresume: resumed checkpoint-3", "autoresume: resumed checkpoint-4", "autoresume: done",
    ]  # fmt: skip
    assert [ended.session for ended in (second, third, fourth)] == [first.session] * 3
    assert fourth.out == [f"session: {first.session}", "autoresume: done"]
    straight = command("--params", TOY, "--session-path", str(tmp_path), "--session-name", "straight", *sets)
    assert differences(straight.session, first.session) == []


def test_without_a_checkpoint_it_starts_anew_and_says_so(command: Run, argv: list[str]) -> None:
    made = command("--params", TOY, *argv[3:5], "--session-name", "named", *SETS, "--create-session-only")

    ended = command(*argv, *SETS, "--session-name", "named")

    assert (ended.session, ended.out[1]) == (made.session, "autoresume: restarted, no checkpoint yet")
    assert read(ended.session / "summary.json")["state"] == "done"


def test_what_a_kill_left_of_a_session_being_made_is_made_again(command: Run, argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "named" / "modules").mkdir(parents=True)

    ended = command(*argv, *SETS, "--session-name", "named")

    assert ended.out[:2] == [f"session: {tmp_path}/named", "autoresume: new"]


def test_a_session_in_use_is_exit_4_after_the_wait(
    command: Run, start: Callable[..., Program], argv: list[str]
) -> None:
    sets = ["--session-name", "busy", "--set", "number_epochs=100000", "test_activate=false"]
    program = start(*argv, *sets)
    program.wait_for("saved ")

    ended = command(*argv, *sets, expect=4)

    assert ended.out == []
    assert str(program.pid) in ended.err


def test_another_control_panel_is_refused_with_both_values(command: Run, argv: list[str]) -> None:
    command(*argv, *SETS, "lr=0.001", "seed=1", "--session-name", "named")

    ended = command(*argv, *SETS, "lr=0.002", "seed=5", "--session-name", "named", expect=2)

    assert ended.out == []
    assert "lr: 0.001 there, 0.002 given" in ended.err
    assert "seed: 1 there, 5 given" in ended.err
    assert ended.err.count("\n") == 1


def test_a_raised_goal_reopens_and_the_same_change_is_not_applied_again(command: Run, argv: list[str]) -> None:
    named = [*argv, "--set", "test_win_size=1", "--session-name", "named"]
    command(*named)

    raised = command(*named, "--repeal", '{"/runner/n_epochs": 5}')
    again = command(*named, "--repeal", '{"/runner/n_epochs": 5}')

    assert (raised.out[1], again.out[1]) == ("autoresume: resumed checkpoint-8", "autoresume: done")
    assert [e["path"] for e in read(raised.session / "repeal.json")] == ["/engine/chosen", "/runner/n_epochs"]
    assert rows(raised.session / "varlog.jsonl")[-1]["meta"]["epoch"] == 5


def test_a_change_that_was_given_first_is_not_given_twice(command: Run, argv: list[str]) -> None:
    named = [*argv, *SETS, "--session-name", "named", "--repeal", '{"/runner/max_iter": 1}']

    first, second, third = command(*named, expect=75), command(*named, expect=75), command(*named)

    assert [ended.out[1].split()[1] for ended in (first, second, third)] == ["new", "resumed", "resumed"]
    assert [e["path"] for e in read(first.session / "repeal.json")] == ["/runner/max_iter", "/engine/chosen"]


def test_all_damaged_is_exit_5(command: Run, argv: list[str]) -> None:
    session = command(*argv, *SETS, "max_exec_iter=1", "--session-name", "named", expect=75).session
    for number in checkpoints(session):
        (session / "checkpoints" / f"checkpoint-{number}" / "state.json").write_text("{}")

    ended = command(*argv, *SETS, "max_exec_iter=1", "--session-name", "named", expect=5)

    assert ended.saved == []


def test_checkpoints_that_were_removed_by_hand_are_no_reason_to_begin_again(command: Run, argv: list[str]) -> None:
    named = [*argv, *SETS, "max_exec_iter=1", "--session-name", "named"]
    session = command(*named, expect=75).session
    shutil.rmtree(session / "checkpoints")

    ended = command(*named, expect=5)

    assert "named" in ended.err.splitlines()[-1]
    assert not (session / "checkpoints").exists()


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"])
def test_a_batch_job_keeps_no_sessions_on_tmp(command: Run, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "17")
    monkeypatch.delenv("DIGIDEEP_SESSIONS")
    monkeypatch.setattr("tempfile.tempdir", "/tmp")

    ended = command("--autoresume", "--params", TOY, "--session-path", "/tmp/digideep_no_such_place", expect=2)

    assert ended.err.startswith("digideep: error: --autoresume: ")
    assert not Path("/tmp/digideep_no_such_place").exists()


def test_a_job_on_a_lasting_disk_is_welcome(command: Run, argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setattr("digideep.autoresume.is_volatile", lambda root: False)

    assert command(*argv, *SETS).out[1] == "autoresume: new"
