"""B8: users can check whether their own parameters resume to the same bits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes import TOY, Ended

from digideep import check_resume
from digideep.check_resume import first_difference
from digideep.pipeline.cli import parse
from digideep.pipeline.signals import StopRequest

Run = Callable[..., Ended]

HOOK = """from pathlib import Path
def note(runner):
    with Path("seen.txt").open("a") as file:
        file.write(str(runner.params["agents"]["agent"]["lr"]) + chr(10))
"""


@pytest.fixture(autouse=True)
def _scratch(_nothing_is_left: None, tmp_path: Path) -> Iterator[None]:
    """Keep the temporary sessions of checks where the test can see them."""
    (tmp_path / "scratch").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
        yield


def test_B8_equal_bits_are_exit_0_and_both_sessions_are_removed(command: Run, tmp_path: Path) -> None:
    ended = command("--params", TOY, "--check-resume", "1", "--set", "test_win_size=1", "stop_return=-1e9")

    assert ended.out == ["session: none (check)"]
    assert list((tmp_path / "scratch").iterdir()) == []
    assert list(tmp_path.iterdir()) == [tmp_path / "scratch"]


def test_B8_changes_by_path_are_what_is_checked(command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hook.py").write_text(HOOK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    argv = ["--params", TOY, "--check-resume", "1", "--set", "test_win_size=1", "/agents/agent/lr=0.002"]

    command(*argv, "/runner/on_epoch=hook:note")

    assert (tmp_path / "seen.txt").read_text().split() == ["0.002"] * 4


def test_B8_another_noise_each_time_is_exit_8_and_named(command: Run, tmp_path: Path) -> None:
    argv = ["--params", TOY, "--check-resume", "1", "--set", "test_win_size=1"]

    ended = command(*argv, "model_name=digideep.testing:Faulty-v0", 'env_kwargs={"fault": "urandom"}', expect=8)

    (kept,) = (tmp_path / "scratch").iterdir()
    error = ended.err.splitlines()[-1]
    assert "found the first difference in " in error
    assert str(kept / "interrupted") in error and str(kept / "straight") in error
    assert (kept / "interrupted" / "meta.json").exists() and (kept / "straight" / "meta.json").exists()


def test_B8_an_environment_without_state_is_exit_8_and_named(command: Run, tmp_path: Path) -> None:
    ended = command("--params", TOY, "--check-resume", "--set", "model_name=toy_parts:ToyStateless-v0", expect=8)

    assert "ToyStateless-v0 has no state to save" in ended.err.splitlines()[-1]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_B8_a_failing_run_keeps_its_exit_code_and_message(command: Run, tmp_path: Path) -> None:
    argv = ["--params", TOY, "--check-resume", "1", "--set", "model_name=digideep.testing:Faulty-v0"]

    ended = command(*argv, 'env_kwargs={"fault": "step", "at": 3}', expect=7)

    assert "this environment fails when it is stepped" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("option", ["--play", "--autoresume", "--dry-run", "--create-session-only"])
def test_B8_it_goes_with_plain_training_only(command: Run, option: str) -> None:
    assert option in command("--params", TOY, "--check-resume", option, expect=2).err


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"a": 1, "b": [1, 2.0]}, {"a": 1, "b": [1, 2.0]}, ""),
        ({"a": 1}, {"a": 1.0}, "x/a"),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "x/a/b"),
        ({"a": 1}, {}, "x"),
        ({}, {"a": 1}, "x"),
        ({"a": [1, 2]}, {"a": [1]}, "x/a"),
        ({"a": float("nan")}, {"a": float("nan")}, ""),
        ({"a": np.zeros(2)}, {"a": -np.zeros(2)}, "x/a"),
        ({"a": np.zeros(2)}, {"a": np.zeros(2, np.float32)}, "x/a"),
        ({"a": np.array([np.nan])}, {"a": np.array([np.nan])}, ""),
    ],
)
def test_B8_the_first_difference_is_named_by_its_path(one: object, other: object, expected: str) -> None:
    found = first_difference(one, other, path="x")

    assert re.split("[: ]", found)[0] == expected


def test_B8_a_signal_ends_the_check_and_leaves_nothing(start: Callable[..., object], tmp_path: Path) -> None:
    program = start("--params", TOY, "--check-resume", "400", env={**os.environ, "TMPDIR": str(tmp_path / "scratch")})
    program.wait_for("session: none (check)")  # type: ignore[attr-defined]

    program.send(signal.SIGTERM)  # type: ignore[attr-defined]
    ended = program.end()  # type: ignore[attr-defined]

    assert ended.code == 143
    assert ended.err.splitlines()[-1].startswith("digideep: error: --check-resume: ")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_B8_a_check_whose_time_is_over_ends_its_run_and_removes_its_sessions(tmp_path: Path) -> None:
    requests = StopRequest()
    directory = tmp_path / "scratch" / "digideep-check-x"
    directory.mkdir()
    runs = check_resume._Runs(directory, requests)
    runs._process = subprocess.Popen(["sleep", "60"], text=True)

    assert requests.on_deadline is not None
    requests.on_deadline(143)

    assert runs._process.returncode == -signal.SIGKILL
    assert not directory.exists()


def test_B8_a_check_waits_longer_than_the_grace_period_of_its_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    requests, given = StopRequest(), []

    def train(runs: check_resume._Runs, arguments: list[str], *, expected: int) -> None:
        given.append(requests.grace_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(check_resume._Runs, "train", train)
    options = parse(["--params", TOY, "--check-resume", "1", "--set", "/runner/grace_s=40"])

    with pytest.raises(KeyboardInterrupt):
        check_resume.check_resume(options, requests)

    assert given == [43.0]
    assert requests.on_deadline is None
    assert list((tmp_path / "scratch").iterdir()) == []
