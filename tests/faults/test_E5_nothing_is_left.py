"""No process, shared memory, semaphore or temporary file is left after any exit; every test here has a fixture look.

The environments of these runs start processes of their own, which have to be gone too.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failing_parts import NAME
from fakes import Ended, Program, wait_until
from signalling import hang_in

PATHS = {"PYTHONPATH": str(Path(__file__).resolve().parent)}
LITTER = 'play_env_kwargs={"call": "reset", "fault": "litter", "at": 0}'
SMALL = (f"model_name={NAME}", "num_workers=1", "num_envs=2", "epoch_size=1", "number_epochs=2", "test_win_size=2")


def littering(**kwargs: Any) -> list[str]:
    given = {"call": "reset", "fault": "litter", "at": 0, **kwargs}
    text = ", ".join(
        f'"{key}": "{value}"' if isinstance(value, str) else f'"{key}": {value}' for key, value in given.items()
    )
    return [*SMALL, f"env_kwargs={{{text}}}", LITTER]


@pytest.mark.parametrize(
    ("moments", "settings", "code"),
    [
        ({}, (), 0),
        ({}, ("max_exec_iter=1",), 75),
        ({"learnt 1": ["SIGTERM"]}, (), 143),
        ({"learnt 1": ["SIGINT"]}, (), 130),
        ({"learnt 1": ["SIGHUP"]}, (), 129),
        ({"learnt 1": ["SIGUSR1"]}, ("on_sigusr1=stop",), 75),
        ({"learnt 1": ["SIGKILL"]}, (), -signal.SIGKILL),
        ({"test 1": ["SIGKILL"]}, (), -signal.SIGKILL),
        ({"cycle 1": ["SIGINT", "SIGINT"]}, (), 130),
    ],
    ids=["goal", "budget", "TERM", "INT", "HUP", "USR1", "KILL", "KILL in a test", "INT twice"],
)
def test_E5_nothing_is_left_of_a_run(
    digideep: Callable[..., Ended],
    toy: Callable[..., list[str]],
    moments: dict[str, list[str]],
    settings: tuple[str, ...],
    code: int,
) -> None:
    ended = digideep(*toy("one", *littering(), *settings), expect=code, moments=moments, env=PATHS)

    assert ended.session.exists()


@pytest.mark.parametrize(
    ("kwargs", "code"),
    [
        ({"call": "step", "fault": "raise", "at": 2}, 7),
        ({"call": "step", "fault": "exit", "at": 1}, 7),
        ({"call": "step", "fault": "nan", "at": 2}, 8),
        ({"call": "init", "fault": "raise"}, 7),
    ],
    ids=["raises", "dies", "NaN", "cannot be made"],
)
def test_E5_nothing_is_left_of_a_run_whose_environment_fails(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], kwargs: dict[str, Any], code: int
) -> None:
    ended = digideep(*toy("one", *littering(**kwargs)), expect=code, env=PATHS)

    assert ended.session.exists()


def test_E5_nothing_is_left_of_a_hang_a_play_and_wrong_input(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], tmp_path: Path
) -> None:
    once = str(tmp_path / "once")
    hang = littering(call="step", fault="hang", at=2, once=once)

    ended = digideep(*toy("hang", *hang, "step_timeout_s=2"), env=PATHS)
    done = str(ended.session)
    digideep("--load-checkpoint", done, "--resume", expect=3, env=PATHS)
    digideep("--load-checkpoint", done, "--play", "--episodes", "2", env=PATHS)
    digideep("--load-checkpoint", done, "--resume", "--set", "/env/model_name=Nothing-v0", expect=2, env=PATHS)

    assert Path(once).exists()


def test_E5_nothing_is_left_of_a_dry_run_that_hangs_and_is_stopped(
    start: Callable[..., Program], toy: Callable[..., list[str]], tmp_path: Path
) -> None:
    flag = tmp_path / "hangs"
    before = functools.partial(hang_in, "digideep.agent.ppo.agent:PPOAgent.update", flag=str(flag), call=2)
    program = start(*toy("dry", "grace_s=1"), "--dry-run", before=before)
    wait_until(flag.exists)

    program.send(signal.SIGTERM)
    ended = program.end()

    assert (ended.code, ended.out) == (143, ["session: none (dry run)"])
    assert ended.err.splitlines()[-1].endswith("stopped inside a cycle: a dry run keeps nothing")
