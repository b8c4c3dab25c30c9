"""An environment that does not come back is noticed after `step_timeout_s`, with its stack, wherever it lives."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from failing_parts import ALLOWED, NAME, explorer
from fakes import Ended, checkpoints, manifest, read, wait_until

from digideep.environment.config import EnvConfig
from digideep.environment.crash import read_crash, replay_crash, write_crash
from digideep.environment.recovery import Supervision
from digideep.environment.vec.hang import HangWatch
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.restart import RestartBudget
from digideep.environment.vec.serial import SerialVecEnv
from digideep.errors import EnvironmentFailure, WorkerError

PATHS = {"PYTHONPATH": str(Path(__file__).resolve().parent)}


def once() -> Supervision:
    """Return a supervision that replaces no worker."""
    return Supervision(RestartBudget(0))


LIMIT_S = 1.0


def late(error: EnvironmentFailure) -> bool:
    return f"expected an answer within {LIMIT_S:g} s (step_timeout_s), found none" in str(error)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("call", ["step", "reset", "state", "init"])
def test_E3_a_call_that_hangs_is_noticed_with_its_stack(call: str, num_workers: int) -> None:
    kwargs = {"call": call, "fault": "hang", "at": 1 if call == "reset" else 3}
    began = time.monotonic()

    with pytest.raises(EnvironmentFailure) as raised:
        made = explorer(num_envs=1, num_workers=num_workers, step_timeout_s=LIMIT_S, kwargs=kwargs, supervision=once())
        with contextlib.closing(made):
            made.update()
            made.state_dict()

    error = raised.value
    assert late(error)
    assert isinstance(error, WorkerError) == (num_workers == 1)
    assert NAME in str(error)
    assert "time.sleep(600)" in error.traceback_text or "_fail" in error.traceback_text  # type: ignore[attr-defined]
    assert time.monotonic() - began < 15.0


@pytest.mark.parametrize("num_workers", [0, 1])
def test_E3_a_test_that_hangs_is_noticed(num_workers: int) -> None:
    made = explorer(
        mode="test", num_envs=1, num_workers=num_workers, step_timeout_s=LIMIT_S, kwargs={"fault": "hang"},
        supervision=once(),
    )  # fmt: skip

    with contextlib.closing(made), pytest.raises(EnvironmentFailure) as raised:
        made.evaluate()

    assert late(raised.value)
    assert raised.value.crash["ending"] == "hang"  # type: ignore[attr-defined]
    assert raised.value.crash["step"] == 3  # type: ignore[attr-defined]


def test_E3_a_replay_of_a_hang_comes_back_too(tmp_path: Path) -> None:
    kwargs = {"fault": "hang"}
    made = explorer(num_envs=1, step_timeout_s=LIMIT_S, kwargs=kwargs)
    with contextlib.closing(made), pytest.raises(EnvironmentFailure) as raised:
        made.update()
    crash = raised.value.crash  # type: ignore[attr-defined]
    write_crash(tmp_path, EnvConfig(model_name=NAME, env_kwargs=kwargs), error=raised.value, **crash)

    with pytest.raises(EnvironmentFailure, match=f"step: expected an answer within {LIMIT_S:g} s"):
        replay_crash(read_crash(tmp_path), allowed=ALLOWED)


def test_E3_a_worker_whose_large_answer_waits_behind_one_that_hangs_is_not_taken_for_another_hang() -> None:
    made = explorer(num_envs=2, num_workers=2, step_timeout_s=LIMIT_S, kwargs={"ballast": 4 << 20})
    with contextlib.closing(made):
        made.update()
        vec = made._vec
        assert isinstance(vec, ProcessVecEnv)
        first, second = (child.pid for child in vec._workers.children)
        os.kill(first, signal.SIGSTOP)

        vec.states()

        assert made.restarts == 1
        assert vec._workers.children[1].pid == second


def test_E3_environments_whose_close_hangs_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    made = explorer(step_timeout_s=LIMIT_S, kwargs={"call": "close", "fault": "hang"})
    made.update()

    made.close()

    (record,) = [record for record in caplog.records if "close(): expected an answer" in record.getMessage()]
    assert "the environments after it are not closed" in record.getMessage()
    assert "time.sleep(600)" in record.__dict__["details"]


def test_E3_an_environment_that_takes_its_time_is_left_alone() -> None:
    watch = HangWatch(0.5)
    try:
        for _ in range(16):
            watch.begin()
            threading.Event().wait(0.05)
            watch.end()
        threading.Event().wait(0.8)  # nobody is called
    finally:
        watch.close()


@contextlib.contextmanager
def interrupted(watch: HangWatch, function: str) -> Iterator[list[str]]:
    """Have the signal of a late call arrive where the next function of this name is entered; list what was hit."""
    hit: list[str] = []

    def enter(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == function and not hit:
            hit.append(f"{Path(frame.f_code.co_filename).name}:{function}")
            watch._late_call = watch._calls
            handler = signal.getsignal(signal.SIGUSR2)
            assert callable(handler)
            handler(signal.SIGUSR2, frame)

    sys.setprofile(enter)
    try:
        yield hit
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("function", ["__exit__", "end"])
def test_E3_a_call_that_comes_back_as_it_is_interrupted_has_come_back(function: str) -> None:
    watch = HangWatch(60.0)
    with contextlib.closing(watch):
        with interrupted(watch, function) as hit, watch.guard(lambda: "inside", limit_s=30.0):
            during = watch.where()

        assert hit == [f"hang.py:{function}"]
        assert (during, watch.where(), watch._allowed_s, watch._is_inside) == ("inside", "environment", 60.0, False)


def test_E3_an_interrupt_while_another_error_is_told_is_an_error_of_the_environment() -> None:
    made = explorer(num_envs=1, step_timeout_s=60.0, kwargs={"fault": "raise"})
    with contextlib.closing(made):
        vec = made._vec
        assert isinstance(vec, SerialVecEnv)
        with pytest.raises(EnvironmentFailure, match="expected an answer within 60 s") as raised:
            with interrupted(vec._watch, "_forgive") as hit:
                made.update()

    assert hit == ["stepper.py:_forgive"]
    assert NAME in str(raised.value)


def test_E3_the_signal_is_given_back_when_nobody_watches_any_more() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    first, second = HangWatch(1.0), HangWatch(1.0)
    during = signal.getsignal(signal.SIGUSR2)
    first.close()
    second.close()

    assert during != before
    assert signal.getsignal(signal.SIGUSR2) == before


def test_E3_environments_of_another_thread_can_be_made_and_stepped() -> None:
    found: list[Any] = []

    def act() -> None:
        vec = SerialVecEnv(EnvConfig(model_name=NAME), num_envs=1, allowed=ALLOWED)
        found.append(vec.spec.id)
        vec.close()

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()

    assert found == [NAME]


def test_E3_a_run_that_hangs_in_this_process_saves_what_it_has_and_ends_with_7(
    digideep: Callable[..., Ended], resume: Callable[..., Ended], toy: Callable[..., list[str]], tmp_path: Path
) -> None:
    once = tmp_path / "once"
    hang = f'env_kwargs={{"fault": "hang", "call": "reset", "at": 8, "once": "{once}"}}'

    ended = digideep(
        *toy(
            "hang", f"model_name={NAME}", "step_timeout_s=1", "save_interval=0", "test_activate=false",
            "play_env_kwargs={}", hang,
        ),
        expect=7, env=PATHS,
    )  # fmt: skip

    report = (ended.session / "report.log").read_text()
    assert ended.err.splitlines()[-1].startswith(f"digideep: error: environment 0 ({NAME}, worker 0, seed ")
    assert (
        "expected an answer within 1 s (step_timeout_s), found none; its stack is in the log; a larger step_timeout_s "
        "gives it more time, 'python -m digideep.environment.play --replay "
    ) in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err
    assert "time.sleep(600)" in report
    # Its ninth episode begins after 48 steps, in the third chunk of 16.
    assert checkpoints(ended.session) == [0, 2]
    assert manifest(ended.session)["exactness"] == "none (environment)"

    again = resume(ended.session, env=PATHS)
    assert again.saved[-1] == "checkpoint-8"


def test_E3_a_run_that_cannot_be_interrupted_ends_all_the_same(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]]
) -> None:
    ended = digideep(
        *toy(
            "stuck", f"model_name={NAME}", "step_timeout_s=1", "test_activate=false", "play_env_kwargs={}",
            'env_kwargs={"fault": "swallow", "at": 4}',
        ),
        expect=7, env=PATHS,
    )  # fmt: skip

    (line,) = [line for line in ended.err.splitlines() if line.startswith("digideep: error: ")]
    assert "found none; it cannot be interrupted, so this process ends" in line
    assert "_swallow" in (ended.session / "report.log").read_text()
    assert read(ended.session / "summary.json")["exit_code"] == 7


@pytest.mark.parametrize("num_workers", [0, 1])
def test_E3_a_constructor_that_hangs_ends_before_there_is_a_session(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], num_workers: int, tmp_path: Path
) -> None:
    began = time.monotonic()

    ended = digideep(
        *toy(
            "init", f"model_name={NAME}", f"num_workers={num_workers}", "step_timeout_s=1",
            'env_kwargs={"call": "init", "fault": "hang"}',
        ),
        expect=7, env=PATHS,
    )  # fmt: skip

    assert time.monotonic() - began < 20.0
    assert ended.out == []
    assert len(ended.err.splitlines()) == 1
    assert "expected an answer within 1 s (step_timeout_s), found none" in ended.err
    assert not (tmp_path / "init").exists()


def test_E3_a_constructor_that_kills_its_process_kills_a_worker_only(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]]
) -> None:
    ended = digideep(
        *toy(
            "segv", f"model_name={NAME}", "num_workers=1", "test_activate=false",
            'env_kwargs={"call": "init", "fault": "segv"}',
        ),
        expect=7, env=PATHS,
    )  # fmt: skip

    assert "died of signal 11 (SIGSEGV)" in ended.err.splitlines()[-1]
    crash = read_crash(ended.session)
    assert (crash.phase, crash.ending) == ("init", "death")


def test_E3_sigterm_in_a_hung_environment_ends_within_the_grace_period(
    start: Callable[..., Any], toy: Callable[..., list[str]], tmp_path: Path
) -> None:
    mark = tmp_path / "hangs"
    program = start(
        *toy(
            "term", f"model_name={NAME}", "num_workers=1", "grace_s=2", "test_activate=false", "play_env_kwargs={}",
            f'env_kwargs={{"fault": "hang", "once": "{mark}"}}',
        ),
        env=PATHS,
    )  # fmt: skip
    wait_until(mark.exists)

    program.send(signal.SIGTERM)
    sent = time.monotonic()
    ended = program.end()

    assert ended.code == 143
    assert time.monotonic() - sent < 10.0
    assert "stopped inside a cycle: checkpoint-0 stands" in ended.err.splitlines()[-1]
