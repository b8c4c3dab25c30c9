"""An error of an environment is one line on the terminal, with the explorer it happened in and what can be done."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from failing_parts import NAME, explorer
from fakes import Ended, read

from digideep.environment.crash import read_crash
from digideep.environment.recovery import ErrorCount, Supervision
from digideep.environment.vec.restart import RestartBudget
from digideep.errors import EnvironmentFailure

Run = Callable[..., Ended]
Arguments = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent))


@pytest.mark.parametrize(
    ("fault", "code", "advice"),
    [
        ("raise", 7, "KeyError: 'torque'; --set on_env_error=reset goes on without the episode"),
        ("nan", 8, "(first bad index 1); --set on_nonfinite=reset goes on without the episode"),
    ],
)
def test_the_last_line_says_what_can_be_done(command: Run, toy: Arguments, fault: str, code: int, advice: str) -> None:
    sets = [f"model_name={NAME}", f'env_kwargs={{"fault": "{fault}"}}', "play_env_kwargs={}"]

    ended = command(*toy("advised", *sets), expect=code)

    last = ended.err.splitlines()[-1]
    assert last.endswith(f"{advice}, 'python -m digideep.environment.play --replay {ended.session}' walks there again")
    assert read(ended.session / "summary.json")["reason"] == last.removeprefix("digideep: error: ")


def test_what_nothing_forgives_is_not_said_to_be_forgivable(command: Run, toy: Arguments) -> None:
    sets = [f"model_name={NAME}", 'env_kwargs={"call": "state", "fault": "raise"}', "play_env_kwargs={}"]

    ended = command(*toy("stateless", *sets), expect=7)

    last = ended.err.splitlines()[-1]
    assert "get_state raised KeyError" in last and "on_env_error" not in last


def test_an_error_in_a_test_says_so_and_the_replay_has_the_environment_of_tests(command: Run, toy: Arguments) -> None:
    sets = [f"model_name={NAME}", "env_kwargs={}", 'play_env_kwargs={"fault": "raise"}']

    ended = command(*toy("tested", *sets), expect=7)

    assert f"digideep: error: explorer/test: environment 0 ({NAME}, worker 0, seed " in ended.err.splitlines()[-1]
    crash = read_crash(ended.session)
    assert (crash.mode, crash.env["env_kwargs"]) == ("test", {"fault": "raise"})


@pytest.mark.parametrize("num_workers", [0, 1])
def test_training_and_tests_have_one_budget(num_workers: int, caplog: pytest.LogCaptureFixture) -> None:
    shared = Supervision(RestartBudget(0), errors=ErrorCount())
    fields = {"on_env_error": "reset", "env_error_budget": 3, "num_envs": 1, "num_workers": num_workers}
    kwargs = {"fault": "raise", "at": 4}
    train = explorer(**fields, supervision=shared, n_steps=10, kwargs=kwargs)
    test = explorer(**fields, supervision=shared, mode="test", kwargs=kwargs)

    with contextlib.closing(train), contextlib.closing(test):
        with caplog.at_level(logging.WARNING):
            train.update()
            with pytest.raises(EnvironmentFailure) as raised:
                test.evaluate()
        state = train.state_dict()

    assert (train.env_errors, test.env_errors) == (2, 1)
    assert (state["env_errors"], state["session_errors"]) == (2, 3)
    assert str(raised.value).startswith(f"explorer/test: environment 0 ({NAME}, worker 0, ")
    assert "env_error_budget 3 is spent; the first of this process was: explorer/test: " in str(raised.value)
    told = [record.getMessage() for record in caplog.records if "its episode is dropped" in record.getMessage()]
    assert [line.rpartition(", ")[2] for line in told] == ["error 1 of 3", "error 2 of 3", "error 3 of 3"]
    assert [line.startswith("explorer/test: environment 0 (") for line in told] == [False, False, True]


def test_the_count_of_all_explorers_comes_back_with_the_checkpoint() -> None:
    shared = Supervision(RestartBudget(0), errors=ErrorCount())
    fields = {"on_env_error": "reset", "env_error_budget": 3, "num_envs": 1, "supervision": shared}
    made = explorer(**fields, n_steps=8, kwargs={"fault": "raise", "at": 4})

    with contextlib.closing(made):
        made.load_state_dict({**made.state_dict(), "env_errors": 1, "session_errors": 3})
        with pytest.raises(EnvironmentFailure, match="env_error_budget 3 is spent"):
            made.update()


@pytest.mark.parametrize("fault", ["segv", "hang"])
def test_the_stack_of_a_lost_worker_stays_off_the_terminal(
    digideep: Run, toy: Arguments, fault: str, tmp_path: Path
) -> None:
    kwargs = f'env_kwargs={{"fault": "{fault}", "once": "{tmp_path / "once"}"}}'
    sets = [f"model_name={NAME}", kwargs, "play_env_kwargs={}", "num_workers=1", "step_timeout_s=2", "number_epochs=1"]

    ended = digideep(*toy("lost", *sets), env={"PYTHONPATH": str(Path(__file__).resolve().parent)})

    report = (ended.session / "report.log").read_text()
    assert "failing_parts.py" in report and "most recent call first" in report
    assert "most recent call first" not in ended.err and "failing_parts.py" not in ended.err
    assert ended.err.count("it is replaced (1 of 3 in 10 minutes)") == 1


def test_workers_without_an_environment_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        made = explorer(num_envs=1, num_workers=3)
    made.close()

    assert [record.getMessage() for record in caplog.records if record.getMessage().startswith("num_workers")] == [
        "num_workers: 3 asked for, 1 taken, since there are 1 environments"
    ]
    assert made.num_workers == 1


def test_a_test_that_is_given_up_takes_nothing_of_the_budget() -> None:
    shared = Supervision(RestartBudget(0), errors=ErrorCount())
    fields = {"on_env_error": "reset", "num_envs": 1, "supervision": shared}
    made = explorer(**fields, mode="test", kwargs={"fault": "raise", "at": 4})

    with contextlib.closing(made):
        episodes = made.evaluate(should_stop=lambda: made.env_errors > 0)

    assert (episodes, made.env_errors, made._recovery.errors.total) == ([], 1, 0)
