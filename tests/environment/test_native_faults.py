"""What a vector environment does wrong: told in one line, forgiven where that was asked for, never swallowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes_native import ALLOWED, FaultyVectorEnv, copied, env_config, explorer, started

from digideep.environment.vec.base import Forgiven
from digideep.environment.vec.native import NativeVecEnv
from digideep.errors import EnvironmentFailure, NonFiniteError
from digideep.testing import CountingActor
from digideep.types import Progress

WHERE = "environments 0 to 2 (NativeFaulty-v0, native, seed 7, step 3 of all): "


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("step", "KeyError: 'torque'"),
        ("shape", "observation '/observations/observation': expected shape (3, 2) of float32, found (3, 3) of float32"),
        ("dtype", "observation '/observations/observation': expected shape (3, 2) of float32, found (3, 2) of float64"),
        ("type", "observation '/observations/observation': expected a numpy array (3, 2) of float32, found list of 3"),
        ("rewards", "rewards: expected an array (3,) of numbers, found list of 3"),
        ("flag", "terminated: expected an array (3,) of bool, found an array (3,) of float64"),
        ("flags", "truncated: expected an array (3,) of bool, found an array (4,) of bool"),
        ("info", "info: expected a dict, found NoneType None"),
    ],
)
def test_a_step_that_goes_wrong_says_where_and_what(fault: str, told: str) -> None:
    vec = started("NativeFaulty-v0", kwargs={"fault": fault})

    vec.step(0)
    vec.step(1)
    with pytest.raises(EnvironmentFailure) as caught:
        vec.step(2)
    vec.close()

    assert str(caught.value).startswith(WHERE + told)
    assert "\n" not in str(caught.value)
    assert "Traceback" in caught.value.traceback_text  # type: ignore[attr-defined]
    assert "cannot be walked to again" in caught.value.crash_note  # type: ignore[attr-defined]


def test_an_end_in_the_step_that_resets_is_refused() -> None:
    vec = started("NativeFaulty-v0", kwargs={"fault": "end", "lengths": [2]})

    vec.step(0)
    vec.step(1)
    with pytest.raises(EnvironmentFailure, match="environment 0: expected no end in the step that resets, found one"):
        vec.step(2)
    vec.close()


@pytest.mark.parametrize("fault", ["reset", "reset answer"])
def test_a_reset_that_goes_wrong_says_so(fault: str) -> None:
    told = {"reset": "ValueError: the world is not there", "reset answer": "reset: expected \\(observations, infos\\)"}

    with pytest.raises(EnvironmentFailure, match=told[fault]):
        started("NativeFaulty-v0", kwargs={"fault": fault})


def test_one_that_cannot_be_made_or_closed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(EnvironmentFailure, match=r"making it with .*raised ValueError: no such file: world\.xml"):
        NativeVecEnv(env_config("NativeFaulty-v0", kwargs={"fault": "init"}), num_envs=2, allowed=ALLOWED)

    vec = started("NativeFaulty-v0", kwargs={"fault": "close"})
    vec.close()
    vec.close()
    assert "NativeFaulty-v0: close() raised ValueError: cannot close" in caplog.text


def test_one_that_does_not_come_back_is_left() -> None:
    vec = started("NativeFaulty-v0", kwargs={"fault": "hang", "fault_at": 1}, step_timeout_s=0.2)

    with pytest.raises(EnvironmentFailure, match=r"expected an answer within 0\.2 s") as caught:
        vec.step(0)
    vec.close()

    assert caught.value.ending == "hang"  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", ["nan", "inf reward", "large reward"])
def test_numbers_that_are_none_end_the_chunk_and_name_the_environment(fault: str) -> None:
    sampler = explorer("NativeFaulty-v0", kwargs={"fault": fault})
    sampler.set_actors({"agent": CountingActor(strict=False)})

    with pytest.raises(
        NonFiniteError, match=r"environment 0 \(NativeFaulty-v0, worker 0, seed \d+, episode 0, step 3\)"
    ):
        sampler.update()
    sampler.close()


@pytest.mark.parametrize(
    ("fault", "forgiving"),
    [("step", "on_env_error"), ("shape", "on_env_error"), ("nan", "on_nonfinite"), ("large reward", "on_nonfinite")],
)
def test_what_is_forgiven_ends_all_episodes_and_counts_once(fault: str, forgiving: str) -> None:
    fields: Any = {forgiving: "reset", "env_error_budget": 10}
    sampler = explorer("NativeFaulty-v0", kwargs={"fault": fault, "lengths": [50]}, **fields)
    sampler.set_actors({"agent": CountingActor(strict=False)})
    sampler.set_progress(Progress(frame=1, epoch=1, fraction=0.5))
    before = FaultyVectorEnv.made

    arrays = copied(sampler.update())
    errors = sampler.env_errors
    episodes = sampler.episodes()
    sampler.close()

    assert FaultyVectorEnv.made - before == 2  # each new one fails in its third step too
    assert errors == 2
    assert episodes == []
    np.testing.assert_array_equal(arrays["/masks"], np.tile([0, 1, 1, 0, 1, 1, 0], (3, 1)))
    np.testing.assert_array_equal(arrays["/rewards"][0], [1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(arrays["/observations/observation"][:, 3, 0], 0.0)


def test_a_budget_that_is_spent_ends_the_run() -> None:
    kwargs = {"fault": "step", "fault_at": 1}
    sampler = explorer("NativeFaulty-v0", kwargs=kwargs, on_env_error="reset", env_error_budget=2)
    sampler.set_actors({"agent": CountingActor(strict=False)})

    with pytest.raises(EnvironmentFailure, match="env_error_budget 2 is spent"):
        sampler.update()
    sampler.close()


def test_one_that_cannot_be_made_anew_is_a_fault_again() -> None:
    vec = started("NativeFaulty-v0", kwargs={"fault": "step", "fault_at": 1}, forgiven=Forgiven(errors=True))
    vec.step(0)
    first = vec.take_faults()
    vec._config.env_kwargs["fault"] = "init"

    vec.rebuild([0])
    again = vec.take_faults()
    vec.close()

    assert [(fault.env, fault.is_lost) for fault in first] == [(0, False), (1, True), (2, True)]
    assert [(fault.env, fault.is_lost) for fault in again] == [(0, False), (1, True), (2, True)]
    assert "no such file: world.xml" in str(again[0].error)
