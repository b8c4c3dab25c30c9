"""An environment that calls sys.exit() or interrupts: a failure of the environment, never the end of the program."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from fakes_vec import ALLOWED, Follower, explorer

from digideep.environment.config import EnvConfig
from digideep.environment.make import make_env, reported
from digideep.environment.state import capture
from digideep.errors import EnvironmentFailure, WorkerError


def run(num_workers: int, **kwargs: Any) -> int:
    """Sample three chunks, close, and return the real transitions in them."""
    frames = 0
    made = explorer(num_workers=num_workers, kwargs={"lengths": [3], **kwargs})
    with contextlib.closing(made):
        made.set_actors({"agent": Follower()})
        for _ in range(3):
            frames += made.update().meta.env_steps
    return frames


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("fault", "place"), [("leave step", "episode 1, step 2"), ("leave reset", "episode 5, step 0")]
)
def test_exit_in_a_step_or_reset_is_a_failure_of_the_environment(num_workers: int, fault: str, place: str) -> None:
    faults = {"fault": fault, "fault_at": 5, "lengths": [3] if fault == "leave step" else [1]}

    with pytest.raises(EnvironmentFailure, match=rf"{place}\): SystemExit: 0") as raised:
        run(num_workers, **faults)

    assert not isinstance(raised.value, WorkerError)
    assert raised.value.crash["phase"] == fault.removeprefix("leave ")  # type: ignore[attr-defined]
    assert "sys.exit(0)" in raised.value.traceback_text  # type: ignore[attr-defined]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_exit_while_it_is_made_is_a_failure_of_the_environment(num_workers: int) -> None:
    with pytest.raises(EnvironmentFailure, match="raised SystemExit: 0"):
        run(num_workers, fault="leave init")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_exit_while_a_state_is_restored_is_a_failure_of_the_environment(num_workers: int) -> None:
    kwargs = {"fault": "leave set_state", "fault_at": 99}
    made = explorer(kwargs=kwargs)
    made.reset()
    state = made.state_dict()
    made.close()
    again = explorer(kwargs=kwargs, num_workers=num_workers)

    with contextlib.closing(again), pytest.raises(EnvironmentFailure, match="set_state raised SystemExit: 0"):
        again.load_state_dict(state)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_exit_while_it_is_closed_keeps_nobody_from_going_on(num_workers: int) -> None:
    frames = run(num_workers, fault="leave close", fault_at=99)

    assert frames == run(num_workers)


def test_exit_while_a_state_is_captured_is_a_failure_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(EnvConfig(model_name="Script-v0", from_module="fakes_vec"), allowed=ALLOWED)

    def leave() -> None:
        raise SystemExit(0)

    monkeypatch.setattr(env.unwrapped, "get_state", leave)

    with pytest.raises(EnvironmentFailure, match="get_state raised SystemExit: 0"):
        capture(env)


def test_exit_in_a_command_is_reported_in_one_line() -> None:
    with pytest.raises(EnvironmentFailure, match="environment Made-v0 raised SystemExit: 3"), reported("Made-v0"):
        raise SystemExit(3)


@pytest.fixture
def _handled() -> Iterator[None]:
    """Handle SIGINT as the program does, so that Ctrl-C raises nothing."""
    former = signal.signal(signal.SIGINT, lambda number, frame: None)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("_handled")
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("fault", "place"), [("interrupt step", "episode 1, step 2"), ("interrupt reset", "episode 5, step 0")]
)
def test_an_interrupt_that_an_environment_raises_is_its_failure(num_workers: int, fault: str, place: str) -> None:
    faults = {"fault": fault, "fault_at": 5, "lengths": [3] if fault == "interrupt step" else [1]}

    with pytest.raises(EnvironmentFailure, match=rf"{place}\): KeyboardInterrupt") as raised:
        run(num_workers, **faults)

    assert raised.value.crash["phase"] == fault.removeprefix("interrupt ")  # type: ignore[attr-defined]
    assert "raise KeyboardInterrupt" in raised.value.traceback_text  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_handled")
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_interrupt_while_it_is_made_is_its_failure(num_workers: int) -> None:
    with pytest.raises(EnvironmentFailure, match="raised KeyboardInterrupt"):
        run(num_workers, fault="interrupt init")


def test_ctrl_c_where_python_raises_it_is_let_out() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(0, fault="interrupt step", fault_at=5)
