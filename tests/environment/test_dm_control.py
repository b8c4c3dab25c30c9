"""The suite of dm_control: spaces, seeds, states and pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Ended

from digideep.environment.config import EnvConfig
from digideep.environment.examine import seed_difference, state_difference
from digideep.environment.make import describe_env, make_env
from digideep.environment.state import capture, obstacle, restore
from digideep.environment.vec.origin import WORDS, read_origin, write_origin
from digideep.errors import CheckpointError
from digideep.utility.codec import decode, encode

pytest.importorskip("shimmy")
pytest.importorskip("dm_control")


def made(name: str) -> Any:
    return make_env(EnvConfig(f"dm_control/{name}-v0"))


def test_observations_are_slots_and_actions_have_the_type_of_the_environment() -> None:
    spec = describe_env(EnvConfig("dm_control/reacher-easy-v0"))

    assert {slot: (one.shape, one.dtype) for slot, one in spec.observations.items()} == {
        "position": ((2,), "float32"),
        "to_target": ((2,), "float32"),
        "velocity": ((2,), "float32"),
    }
    assert (spec.actions[""].shape, spec.actions[""].low, spec.actions[""].high) == ((2,), (-1.0,), (1.0,))


@pytest.mark.parametrize("name", ["cartpole-swingup", "reacher-easy", "humanoid-stand"])
def test_a_world_of_the_suite_goes_on_to_the_same_bits(name: str) -> None:
    assert seed_difference(lambda: made(name), steps=50) == ""
    assert state_difference(lambda: made(name), steps=20) == ""


@pytest.mark.nightly
def test_every_world_of_the_suite_goes_on_to_the_same_bits() -> None:
    from dm_control import suite

    wrong = {}
    # Nothing bounds the actions of lqr, and random ones end in an error of the simulator.
    for domain, task in (pair for pair in suite.ALL_TASKS if pair[0] != "lqr"):
        name = f"{domain}-{task}"
        reason = obstacle(made(name)) or state_difference(lambda name=name: made(name), steps=20)
        if reason:
            wrong[name] = reason

    assert wrong == {}


def test_the_end_of_an_episode_is_in_the_state() -> None:
    env, fresh = made("cartpole-balance"), made("cartpole-balance")
    env.reset(seed=1)
    env.unwrapped._env._step_count = 998
    zero = np.zeros(1)
    env.step(zero)
    restore(fresh, decode(*encode(capture(env))))

    ends = [one.step(zero)[2:4] for one in (env, fresh)]

    assert ends == [(False, True), (False, True)]


def test_targets_that_a_task_moves_in_its_model_come_back() -> None:
    env, fresh = made("reacher-easy"), made("reacher-easy")
    env.reset(seed=7)
    restore(fresh, decode(*encode(capture(env))))

    places = [one.unwrapped._env.physics.named.model.geom_pos["target"].tolist() for one in (env, fresh)]

    assert places[0] == places[1]


def test_a_state_of_another_task_is_refused() -> None:
    env, other = made("cartpole-swingup"), made("walker-walk")
    env.reset(seed=1)
    other.reset(seed=1)
    state: Any = capture(env)
    theirs: Any = capture(other)
    state["layers"][-1]["simulator"] = theirs["layers"][-1]["simulator"]

    with pytest.raises(CheckpointError):
        restore(made("cartpole-swingup"), state)


def test_an_episode_without_a_seed_cannot_be_begun_again() -> None:
    env = made("cartpole-balance")
    env.reset(seed=1)
    words = np.zeros(WORDS, np.uint64)

    write_origin(words, env.unwrapped, seed=-1)

    assert read_origin(words) is None


@pytest.mark.nightly
def test_a_training_on_the_suite_resumes_to_the_bit(digideep: Callable[..., Ended], tmp_path: Path) -> None:
    ended = digideep(
        "--params", "digideep.params.pendulum_ppo", "--session-path", str(tmp_path), "--check-resume", "1", "--set",
        "model_name=dm_control/cartpole-swingup-v0", "num_envs=2", "num_workers=1", "n_steps=16", "minibatch_size=16",
        "epoch_size=2", "test_activate=false",
    )  # fmt: skip

    assert ended.code == 0
