"""What code of the user raises is told with its file and line, and is no fault of digideep."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import Ended, read

import digideep
from digideep.errors import DigideepError, UserCodeError

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

QUICK = ["number_epochs=1", "test_win_size=1"]
HOOK = """
import sys, torch; from digideep.utility.tree import split

def fails(runner):
    return torch.zeros(2) @ torch.zeros(3)

def makes_twice(runner):
    print("called", runner.epoch, file=sys.stderr)
    raise FileExistsError(17, "File exists", "there")

def passes_on(runner):
    split(3, where="")
"""
NETWORK = """
import os, pathlib
from dataclasses import dataclass
from torch import nn
from digideep.model.observations import FlatObservations
from digideep.utility.node import Config, setting

@dataclass(frozen=True)
class NetConfig(Config):
    builds = "user_network:Net"
    is_whole: bool = setting(True, "whether it can be made")

class Net(nn.Module):
    def __init__(self, config, *, observations, outputs):
        super().__init__()
        if not config.is_whole:
            raise KeyError("part")

    def forward(self, observations):
        return self.missing(observations)

@dataclass(frozen=True)
class LateConfig(Config):
    builds = "user_network:Late"

class Late(nn.Module):
    def __init__(self, config, *, observations, outputs):
        super().__init__()
        self.flat = FlatObservations(observations)
        self.linear = nn.Linear(self.flat.size, outputs)
        self.value = nn.Linear(self.flat.size, 1)
        self.calls = 0

    def forward(self, observations):
        self.calls += 1
        place = os.environ.get("USER_NETWORK_FAILS")
        if place and self.calls > 3:
            pathlib.Path(place, "note").write_text("of another program")
            raise ValueError("late")
        seen = self.flat(observations)
        return self.linear(seen), self.value(seen)[:, 0]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "user_hook.py").write_text(HOOK)
    (tmp_path / "user_network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("user_hook", "user_network"):
        sys.modules.pop(name, None)


def test_a_function_of_each_epoch_that_raises_is_told_with_its_line(command: Run, toy: Toy, tmp_path: Path) -> None:
    ended = command(*toy("one", *QUICK, "/runner/on_epoch=user_hook:fails"), expect=2)

    session = ended.session
    error = ended.err.splitlines()[-1]
    assert error.startswith(
        f"digideep: error: {tmp_path}/user_hook.py:5: expected code that runs, found RuntimeError: "
    )
    assert error.endswith(f"; correct it there; the traceback is in {session}/report.log")
    assert "Traceback" not in ended.err and "in fails" in (session / "report.log").read_text()
    summary = read(session / "summary.json")
    assert (summary["state"], summary["exit_code"]) == ("failed", 2)
    assert summary["reason"].startswith(f"{tmp_path}/user_hook.py:5: ")


def test_what_digideep_raises_in_a_function_of_the_user_is_told_as_its_own(command: Run, toy: Toy) -> None:
    ended = command(*toy("one", *QUICK, "/runner/on_epoch=user_hook:passes_on"), "--dry-run", expect=1)

    assert "run: expected no fault of digideep itself, found AttributeError: " in ended.err


def test_a_dry_run_prints_the_traceback_that_no_file_keeps(command: Run, toy: Toy) -> None:
    ended = command(*toy("none", *QUICK, "/runner/on_epoch=user_hook:fails"), "--dry-run", expect=2)

    *traceback, error = ended.err.splitlines()
    assert "Traceback (most recent call last):" in traceback
    assert any("in fails" in line for line in traceback)
    assert error.endswith("; the traceback is above")
    assert "report.log" not in ended.err


def test_a_fault_of_digideep_in_a_dry_run_prints_its_traceback_too(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The change breaks what digideep's own code does with it.
    monkeypatch.setattr("digideep.pipeline.runner.seed_everything", None)

    ended = command(*toy("none", *QUICK), "--dry-run", expect=1)

    *traceback, error = ended.err.splitlines()
    assert any("self.config.seed" in line for line in traceback)
    assert error.startswith("digideep: error: run: expected no fault of digideep itself, found TypeError: ")
    assert error.endswith("; please report it; the traceback is above")


def test_a_network_that_cannot_be_made_is_told_with_its_line_and_the_traceback_stays(
    command: Run, toy: Toy, tmp_path: Path
) -> None:
    model = '/agents/agent/model={"type": "user_network:NetConfig", "is_whole": false}'

    ended = command(*toy("one", *QUICK, model), expect=2)

    report = tmp_path / "one" / "report.log"
    found = f"expected code that runs, found KeyError: 'part'; correct it there; the traceback is in {report}"
    assert ended.err.splitlines()[-1] == f"digideep: error: {tmp_path}/user_network.py:17: {found}"
    assert ended.session == tmp_path / "one" and "raise KeyError" in report.read_text()


def test_a_play_that_fails_in_code_of_the_user_keeps_what_others_put_beside_it(
    command: Run, toy: Toy, tmp_path: Path
) -> None:
    model = '/agents/agent/model={"type": "user_network:LateConfig"}'
    session = command(*toy("one", *QUICK, model)).session
    place = tmp_path / "made" / "here"

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USER_NETWORK_FAILS", str(place))
        ended = command(
            "--load-checkpoint", str(session), "--play", "--episodes", "9", "--output", str(place), expect=2
        )

    assert "user_network.py:" in ended.err and "found ValueError: late" in ended.err
    assert (place / "note").read_text() == "of another program"
    assert "raise ValueError" in (place / "report.log").read_text()


@pytest.mark.parametrize("error", ["OSError(28, 'No space left on device')", "OutOfMemoryError('2 GiB')"])
def test_what_the_machine_lacks_is_no_mistake_in_code_of_the_user(
    command: Run, toy: Toy, tmp_path: Path, error: str
) -> None:
    (tmp_path / "user_hook.py").write_text(
        f"class OutOfMemoryError(RuntimeError):\n    pass\ndef fails(runner):\n    raise {error}\n"
    )

    ended = command(*toy("one", *QUICK, "/runner/on_epoch=user_hook:fails"), expect=1)

    assert "expected code that runs" not in ended.err and "correct it there" not in ended.err


def test_a_forward_that_raises_in_the_trial_is_told_with_its_line(command: Run, toy: Toy, tmp_path: Path) -> None:
    model = '/agents/agent/model={"type": "user_network:NetConfig"}'

    error = command(*toy("one", *QUICK, model), expect=2).err.splitlines()[-1]

    assert "/agents/agent/model: expected forward to take observations of shapes" in error
    assert error.endswith(f"has no attribute 'missing' at {tmp_path}/user_network.py:20; correct the network")


def test_from_python_the_error_of_the_user_is_the_cause(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"user_hook.py:5: ") as caught:
        digideep.run(toy("one")[1], set={"/runner/on_epoch": "user_hook:fails"}, dry_run=True)

    assert isinstance(caught.value.__cause__, RuntimeError)
    assert isinstance(caught.value, DigideepError)


def test_a_file_that_exists_for_code_of_the_user_is_no_race_of_two_starts(command: Run, toy: Toy) -> None:
    argv = toy("one", "number_epochs=2", "test_win_size=1", "/runner/on_epoch=user_hook:makes_twice")

    ended = command(*argv, "--autoresume", expect=2)

    assert "user_hook.py:9: expected code that runs, found FileExistsError: " in ended.err.splitlines()[-1]
    assert ended.err.count("called") == 1


def test_a_check_of_resuming_keeps_the_log_that_it_names(
    command: Run, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    argv = [toy("one")[1], "--check-resume", "1", "--set", "test_win_size=1", "/runner/on_epoch=user_hook:fails"]

    error = command("--params", *argv, expect=2).err.splitlines()[-1]

    beginning, _, report = error.rpartition("; the traceback is in ")
    assert beginning.startswith(f"digideep: error: --check-resume: {tmp_path}/user_hook.py:5: ")
    assert "in fails" in Path(report).read_text()
