"""A run that was interrupted and resumed ends with the bits of one that never stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import TOY, Ended, Program, check_logs_continue, differences, last_checkpoint, monitor_rows, read, state

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

INTERRUPTIONS = {
    "SIGTERM inside an epoch": ({"learnt 3": ["SIGTERM"]}, 143),
    "SIGINT inside an epoch": ({"cycle 4": ["SIGINT"]}, 130),
    "SIGUSR1 and later kill -9": ({"learnt 3": ["SIGUSR1"], "cycle 4": ["SIGKILL"]}, -9),
    "kill -9 inside an epoch": ({"cycle 4": ["SIGKILL"]}, -9),
    "kill -9 in the first epoch": ({"cycle 2": ["SIGKILL"]}, -9),
    "kill -9 in a test": ({"test 2": ["SIGKILL"]}, -9),
    "SIGTERM in a test": ({"test 2": ["SIGTERM"]}, 143),
    "SIGTERM at the end of an epoch": ({"learnt 4": ["SIGTERM"]}, 143),
    "SIGUSR1 in the last test": ({"test 4": ["SIGUSR1"]}, 0),
    "kill -9 before the last save": ({"save 8": ["SIGKILL"]}, -9),
}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that was never interrupted."""
    directory = tmp_path_factory.mktemp("straight")
    ended = Program("--params", TOY, "--session-path", str(directory), cwd=directory).end()
    assert ended.code == 0, ended.err
    return ended.session


@pytest.mark.parametrize("name", INTERRUPTIONS)
def test_an_interrupted_run_ends_as_if_undisturbed(
    digideep: Run, resume: Run, toy: Toy, straight: Path, name: str
) -> None:
    moments, code = INTERRUPTIONS[name]

    session = digideep(*toy("interrupted"), moments=moments, expect=code).session
    if code != 0:
        resume(session)

    assert differences(straight, session) == []
    check_logs_continue(session)


def test_workers_change_nothing_whether_interrupted_or_not(
    digideep: Run, resume: Run, toy: Toy, straight: Path
) -> None:
    session = digideep(*toy("workers", "num_workers=2"), moments={"learnt 3": ["SIGTERM"]}, expect=143).session
    resume(session, moments={"learnt 5": ["SIGUSR1"], "cycle 6": ["SIGKILL"]}, expect=-9)
    resume(session, "--set", "/explorer/train/num_workers=1", moments={"cycle 7": ["SIGKILL"]}, expect=-9)
    resume(session)

    assert set(differences(straight, session)) <= {"monitor"}
    # Episodes go to the file of the worker that played them: together they are the same, in the order of their end.
    for mode in ("train", "test"):
        rows = [
            sorted(line for file, lines in monitor_rows(path).items() if f"/{mode}/" in file for line in lines[1:])
            for path in (straight, session)
        ]
        assert rows[0] == rows[1]
    check_logs_continue(session)


def test_five_interruptions_change_nothing(digideep: Run, resume: Run, toy: Toy, straight: Path) -> None:
    session = digideep(*toy("five"), moments={"learnt 1": ["SIGTERM"]}, expect=143).session
    resume(session, moments={"learnt 3": ["SIGUSR1"], "cycle 4": ["SIGKILL"]}, expect=-9)
    resume(session, moments={"test 2": ["SIGINT"]}, expect=130)
    resume(session, moments={"learnt 6": ["SIGTERM"]}, expect=143)
    resume(session, moments={"cycle 8": ["SIGKILL"]}, expect=-9)
    resume(session)

    assert differences(straight, session) == []
    check_logs_continue(session)


def test_an_epoch_budget_and_a_resume_change_nothing(digideep: Run, resume: Run, toy: Toy, straight: Path) -> None:
    first = digideep(*toy("budget", "max_exec_iter=2"), expect=75)
    second = resume(first.session)

    assert first.saved == ["checkpoint-0", "checkpoint-2", "checkpoint-4", "checkpoint-4"]
    assert second.saved == ["checkpoint-6", "checkpoint-8", "checkpoint-8"]
    assert differences(straight, first.session) == []


@pytest.mark.parametrize("moment", ["learnt 8", "test 4"])
def test_a_stop_after_the_last_cycle_comes_after_the_test_and_changes_nothing(
    digideep: Run, toy: Toy, straight: Path, moment: str
) -> None:
    session = digideep(*toy("settled"), moments={moment: ["SIGTERM"]}, expect=0).session

    assert state(session)["runner"]["pending"] is False
    assert differences(straight, session) == []


@pytest.mark.parametrize("moment", ["learnt 4", "test 2"])
def test_a_stop_at_the_end_of_an_epoch_comes_after_the_test_and_changes_nothing(
    digideep: Run, resume: Run, toy: Toy, straight: Path, moment: str
) -> None:
    session = digideep(*toy("boundary"), moments={moment: ["SIGTERM"]}, expect=143).session
    assert state(session)["runner"]["pending"] is False

    resume(session)

    assert differences(straight, session) == []


@pytest.mark.parametrize("moment", ["learnt 8", "test 4"])
def test_a_stop_without_time_for_the_test_leaves_only_that_to_do(
    digideep: Run, resume: Run, toy: Toy, straight: Path, moment: str
) -> None:
    # The first Ctrl-C has no deadline, so that only the test is hurried.
    session = digideep(*toy("last", "grace_s=0.0001"), moments={moment: ["SIGINT"]}, expect=130).session
    assert state(session)["runner"]["pending"] is True

    ended = resume(session)

    # The number is written once: what test, log and progress add is not in it, all that was learnt is.
    assert set(ended.saved) == {"checkpoint-8"}
    found = differences(straight, session)
    later = {"state/runner", "state/monitor", "state/explorer.train", "manifest epoch", "manifest components"}
    assert set(found) <= {"state", *later}
    assert last_checkpoint(straight)["tensors"] == last_checkpoint(session)["tensors"]
    assert read(session / "summary.json")["state"] == "done"
    check_logs_continue(session)


@pytest.mark.parametrize("preset", ["pendulum_ppo", "cartpole_ppo"])
def test_presets_resume_to_the_same_bits_by_real_processes(tmp_path: Path, preset: str) -> None:
    sets = ["number_epochs=4", "total_frames=0", "stop_return=null", "n_steps=32", "epoch_size=2", "test_win_size=2"]
    workers = {"pendulum_ppo": "num_workers=2", "cartpole_ppo": "num_workers=0"}[preset]
    program = [sys.executable, "-m", "digideep.main", "--log-level", "error"]
    fresh = [*program, "--params", f"digideep.params.{preset}", "--session-path", str(tmp_path)]

    def run(*command: str) -> int:
        return subprocess.run(command, stdout=subprocess.DEVNULL, cwd=tmp_path, check=False).returncode

    codes = [
        run(*fresh, "--session-name", "straight", "--set", *sets),
        run(*fresh, "--session-name", "stopped", "--set", *sets, workers, "max_exec_iter=2"),
        run(*program, "--load-checkpoint", str(tmp_path / "stopped"), "--resume"),
    ]

    assert codes == [0, 75, 0]
    assert set(differences(tmp_path / "straight", tmp_path / "stopped")) <= {"monitor"}
    check_logs_continue(tmp_path / "stopped")
