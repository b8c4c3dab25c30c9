"""`digideep.run` does from Python what the command line does, and gives the session back."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import TOY, Ended, checkpoints, differences, read

import digideep
from digideep.errors import CheckpointError, ConfigError, SessionDoneError, UsageError

Run = Callable[..., Ended]
QUICK = {"number_epochs": 2, "test_win_size": 1}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr(sys, "argv", ["a notebook", "--nonsense"])

    def call(*args: Any, **options: Any) -> Any:
        return digideep.run(*args, session_path=str(tmp_path), log_level="fatal", **options)

    return call


def test_a_run_prints_nothing_reads_no_arguments_and_equals_the_command(
    run: Callable[..., Any], command: Run, toy: Callable[..., list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    session = run(TOY, QUICK)
    printed = capfd.readouterr()
    other = command(*toy("other", "number_epochs=2", "test_win_size=1")).session

    assert (printed.out, printed.err) == ("", "")
    assert session.summary.state == "done"
    assert differences(session.paths.root, other) == []


def test_a_dry_run_gives_the_figures_of_a_session(run: Callable[..., Any]) -> None:
    kept, dry = run(TOY, QUICK).summary, run(TOY, QUICK, dry_run=True).summary

    told = ("state", "exit_code", "reason", "epoch", "frame", "episode", "last_test", "env_errors", "exactness")
    assert {name: getattr(dry, name) for name in told} == {name: getattr(kept, name) for name in told}
    assert dry.best_test == {**kept.best_test, "checkpoint": None}
    assert (dry.checkpoints, dry.frames_per_s > 0) == ([], True)


def test_keywords_are_the_long_options(run: Callable[..., Any]) -> None:
    session = run(TOY, QUICK, repeal={"/runner/max_iter": 1}, session_name="named", msg="hello")
    assert (session.paths.root.name, session.summary.exit_code) == ("named", 75)

    again = digideep.run(
        load_checkpoint=str(session.paths.root), resume=True, set={"/runner/max_iter": 0}, log_level="fatal"
    )

    assert again.summary.state == "done"
    assert read(session.paths.meta)["message"] == "hello"


@pytest.mark.parametrize(
    ("arguments", "options", "error", "code"),
    [
        ((TOY, {"lrr": 1.0}), {}, ConfigError, 2),
        ((TOY,), {"resume": True}, UsageError, 2),
        ((TOY,), {"sesion_name": "x"}, UsageError, 2),
        (("nowhere",), {}, UsageError, 2),
    ],
)
def test_errors_are_raised_with_their_exit_code(
    run: Callable[..., Any], tmp_path: Path, arguments: Any, options: Any, error: type[Exception], code: int
) -> None:
    with pytest.raises(error) as caught:
        run(*arguments, **options)

    assert caught.value.exit_code == code  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_a_done_session_and_a_missing_checkpoint_are_errors_too(run: Callable[..., Any]) -> None:
    path = str(run(TOY, QUICK).paths.root)

    with pytest.raises(SessionDoneError):
        digideep.run(load_checkpoint=path, resume=True, log_level="fatal")
    with pytest.raises(CheckpointError):
        digideep.run(load_checkpoint=path, checkpoint=3, resume=True, log_level="fatal")


def test_handlers_of_the_caller_are_back_afterwards(run: Callable[..., Any]) -> None:
    def mine(number: int, frame: object) -> None:
        raise AssertionError

    former = signal.signal(signal.SIGUSR1, mine)
    threads = threading.active_count()
    try:
        run(TOY, QUICK)
        assert signal.getsignal(signal.SIGUSR1) is mine
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert threading.active_count() == threads


def test_handlers_are_back_after_an_error_too(run: Callable[..., Any]) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]

    with pytest.raises(ConfigError):
        run(TOY, {"lrr": 1.0})

    assert [signal.getsignal(n) for n in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before


def test_a_thread_may_run_it(run: Callable[..., Any]) -> None:
    done: list[Any] = []

    thread = threading.Thread(target=lambda: done.append(run(TOY, QUICK)))
    thread.start()
    thread.join()

    assert done[0].summary.state == "done"


def test_many_runs_in_one_process_leave_no_threads_or_descriptors(run: Callable[..., Any]) -> None:
    run(TOY, QUICK)
    threads, descriptors = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(3):
        run(TOY, QUICK)

    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


def test_two_runs_with_one_seed_are_equal_and_another_seed_differs(run: Callable[..., Any]) -> None:
    first, second, third = (run(TOY, {**QUICK, "seed": seed}).paths.root for seed in (3, 3, 4))

    assert differences(first, second) == []
    assert "tensors" in differences(first, third)


def test_the_session_that_comes_back_is_one_to_read(run: Callable[..., Any]) -> None:
    from digideep.post import load

    session = run(TOY, QUICK)
    loader = load(session.paths.root)

    assert checkpoints(session.paths.root) == [0, 2, 4]
    assert loader.summary["state"] == "done"
    assert "train/return" in str(list(loader.varlog()))
