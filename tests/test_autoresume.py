"""The same command again goes on with the same session."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import TOY, Ended, Program, checkpoints, read, rows, wait_until

from digideep.pipeline.runner import Runner

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


def test_without_a_checkpoint_it_starts_anew_and_says_so(command: Run, argv: list[str]) -> None:
    made = command("--params", TOY, *argv[3:5], "--session-name", "named", *SETS, "--create-session-only")

    ended = command(*argv, *SETS, "--session-name", "named")

    assert (ended.session, ended.out[1]) == (made.session, "autoresume: restarted, no checkpoint yet")
    assert read(ended.session / "summary.json")["state"] == "done"


def test_what_a_kill_left_of_a_session_being_made_is_made_again(command: Run, argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "named" / "modules").mkdir(parents=True)
    (tmp_path / "named" / "running.lock").touch()

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
    assert " --resume --set /agents/agent/lr=0.002 --set /runner/seed=5" in ended.err
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


def _wait_for_stderr(tmp_path: Path, word: str) -> None:
    wait_until(lambda: any(word in path.read_text() for path in tmp_path.glob("stderr-*")))


def test_a_signal_ends_the_wait_for_a_session_at_once(
    start: Callable[..., Program], argv: list[str], tmp_path: Path
) -> None:
    sets = ["--session-name", "busy", "--set", "number_epochs=100000", "test_activate=false"]
    holder = start(*argv, *sets)
    holder.wait_for("saved ")
    waiting = start(*argv[:-1], "60", *sets)
    _wait_for_stderr(tmp_path, f"waits for process {holder.pid} on host ")
    began = time.monotonic()

    waiting.send(signal.SIGTERM)
    ended = waiting.end()

    assert (ended.code, ended.out) == (143, [])
    assert time.monotonic() - began < 5.0
    assert "SIGTERM ended the wait" in ended.err and "Traceback" not in ended.err


def test_a_wait_ends_when_the_session_is_free(start: Callable[..., Program], argv: list[str], tmp_path: Path) -> None:
    sets = ["--session-name", "busy", "--set", "number_epochs=100000", "test_activate=false"]
    holder = start(*argv, *sets)
    holder.wait_for("saved ")
    waiting = start(*argv[:-1], "60", *sets)
    _wait_for_stderr(tmp_path, f"waits for process {holder.pid} on host ")

    holder.send(signal.SIGKILL)
    waiting.wait_for("autoresume: resumed checkpoint-")
    waiting.send(signal.SIGTERM)
    ended = waiting.end()

    assert ended.code == 143
    assert read(ended.session / "running.lock")["generation"] == 2


def test_a_requeue_on_another_node_takes_over_from_a_dead_one(command: Run, argv: list[str]) -> None:
    session = command(*argv, *SETS, "max_exec_iter=1", "--session-name", "named", expect=75).session
    dead = {"host": "node17", "boot_id": "another", "pid": 1, "started": "2026-01-01T00:00:00Z", "generation": 7}
    (session / "running.lock").write_text(json.dumps(dead) + "\n")

    command(*argv, *SETS, "max_exec_iter=1", "--session-name", "named", expect=75)

    lock = read(session / "running.lock")
    assert (lock["host"], lock["generation"]) == (os.uname().nodename, 8)


def test_a_run_whose_session_was_taken_over_writes_nothing_more(
    start: Callable[..., Program], toy: Callable[..., list[str]]
) -> None:
    program = start(*toy("lost", "number_epochs=100000", "test_activate=false", "save_interval=0"))
    program.wait_for("saved ")
    session = Path(program.out[0].removeprefix("session: "))
    other = {"host": "node18", "boot_id": "another", "pid": 4, "started": "2026-01-01T00:00:00Z", "generation": 9}
    (session / "running.lock").write_text(json.dumps(other) + "\n")

    program.send(signal.SIGUSR1)
    ended = program.end()

    assert ended.code == 4
    assert "taken over by process 4 on host node18" in ended.err.splitlines()[-1]
    assert checkpoints(session) == [0]
    assert read(session / "summary.json")["state"] == "running"  # it is the other's to say


def test_code_that_no_requeue_could_trust_is_refused_at_the_start(
    command: Run, argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/none")

    ended = command(*argv, *SETS, "--session-name", "named", expect=6)

    assert ended.out == []
    assert "--trust-session" in ended.err


def test_an_error_of_a_session_that_has_begun_is_told_and_nothing_goes_on(
    command: Run, argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    really, begun = Runner.train_cycle, list[int]()

    def fail(self: Runner) -> None:
        begun.append(self.state.cycle)
        really(self)
        if self.state.cycle == 2:
            raise MemoryError

    monkeypatch.setattr(Runner, "train_cycle", fail)

    ended = command(*argv, expect=2)

    assert begun == [0, 1]
    assert ended.out[1] == "autoresume: new"


def test_what_another_start_removes_at_the_same_moment_is_made_anew(
    command: Run, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digideep.autoresume._FOUNDING_S", 0.0)
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "running.lock").touch()
    remove = shutil.rmtree

    def faster(path: Path, *rest: Any, **options: Any) -> None:
        remove(path)
        if path == tmp_path / "named":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    monkeypatch.setattr("digideep.autoresume.shutil.rmtree", faster)

    ended = command(*argv, *SETS, "--session-name", "named")

    assert ended.out[:2] == [f"session: {tmp_path}/named", "autoresume: new"]
