"""States of MuJoCo's worlds by the simulator's own means: nothing is walked again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digideep.environment.config import EnvConfig
from digideep.environment.examine import seed_difference, state_difference
from digideep.environment.make import make_env
from digideep.environment.state import capture, obstacle, restore
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.serial import SerialVecEnv
from digideep.environment.vec.slab import RESET
from digideep.errors import CheckpointError
from digideep.utility.codec import decode, encode

WORLDS = [
    "Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum",
    "Pusher", "Reacher", "Swimmer", "Walker2d",
]  # fmt: skip
SOME = ("Ant", "Humanoid", "Pusher", "Reacher")


def states_equal(name: str, *, steps: int = 20, **kwargs: Any) -> bool:
    return state_difference(lambda: make_env(EnvConfig(name, env_kwargs=kwargs)), steps=steps) == ""


@pytest.mark.parametrize("name", SOME)
def test_mujoco_goes_on_to_the_same_bits_and_rewards(name: str) -> None:
    assert states_equal(f"{name}-v5")


@pytest.mark.nightly
@pytest.mark.parametrize("name", WORLDS)
def test_every_world_of_mujoco_goes_on_to_the_same_bits_and_rewards(name: str) -> None:
    assert seed_difference(lambda: make_env(EnvConfig(f"{name}-v5"))) == ""
    assert states_equal(f"{name}-v5", steps=200)
    assert name == "Pusher" or states_equal(f"{name}-v4", steps=50)


@pytest.mark.parametrize("name", ["Ant-v5", "Humanoid-v5"])
def test_without_what_is_derived_the_next_reward_would_be_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digideep.environment.state_simulators._DERIVED", [])

    assert not states_equal(name)


def test_the_goal_of_a_reacher_is_in_its_state() -> None:
    env, fresh = make_env(EnvConfig("Reacher-v5")), make_env(EnvConfig("Reacher-v5"))
    env.reset(seed=3)
    state = capture(env)
    assert state is not None

    restore(fresh, decode(*encode(state)))

    assert fresh.unwrapped.goal.tolist() == env.unwrapped.goal.tolist()  # type: ignore[attr-defined]


def test_the_state_of_a_long_episode_is_no_larger_than_that_of_a_short_one() -> None:
    env = make_env(EnvConfig("HalfCheetah-v5"))
    env.reset(seed=0)
    sizes = []
    for _ in range(2):
        for _ in range(50):
            env.step(np.ones(6, np.float32))
        sizes.append(len(repr(capture(env)).replace(" ", "")) // 1000)

    assert "ReplayRecorder" not in str(env)
    assert abs(sizes[0] - sizes[1]) <= 1
    assert obstacle(env) == ""


def test_a_state_of_another_body_is_refused() -> None:
    env, other = make_env(EnvConfig("Hopper-v5")), make_env(EnvConfig("Walker2d-v5"))
    env.reset(seed=0)
    other.reset(seed=0)
    state, theirs = capture(env), capture(other)
    assert state is not None and theirs is not None
    state["layers"][-1]["simulator"] = theirs["layers"][-1]["simulator"]

    with pytest.raises(CheckpointError, match="expected what fits HopperEnv of Hopper-v5"):
        restore(make_env(EnvConfig("Hopper-v5")), state)


def stepped(vec: Any, *, t: int) -> dict[str, Any]:
    slab = vec.slab
    slab.actions[""][t] = np.linspace(-1.0, 1.0, slab.actions[""][t].size).reshape(slab.actions[""][t].shape)
    vec.step(t)
    return {"rewards": slab.rewards[t].copy(), "observations": slab.observations["observation"][t + 1].copy()}


def test_workers_take_over_what_one_process_has_saved() -> None:
    config = EnvConfig("Ant-v5")
    here = SerialVecEnv(config, num_envs=2)
    slab = here.attach(8)
    slab.modes[:] = RESET
    slab.next_seeds[:] = [3, 4]
    here.reset(0)
    slab.modes[:] = 0
    for t in range(4):
        stepped(here, t=t)
    states = decode(*encode(here.states()))
    expected = stepped(here, t=4)
    here.close()

    there = ProcessVecEnv(config, num_envs=2, num_workers=2)
    there.attach(8)
    unable = there.load_states(states)
    found = stepped(there, t=4)
    there.close()

    assert unable == {}
    for key, array in expected.items():
        assert found[key].tobytes() == array.tobytes(), key


@pytest.mark.parametrize("name", WORLDS)
def test_models_that_come_with_gymnasium_warn_of_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("digideep.environment.make._told", set())

    make_env(EnvConfig(f"{name}-v5")).close()

    assert caplog.messages == []


def test_a_simulation_that_breaks_down_is_told_in_the_log_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("digideep.environment.make._told", set())
    env = make_env(EnvConfig("Hopper-v5"))
    env.reset(seed=0)
    base: Any = env.unwrapped

    for _ in range(2):
        base.data.qvel[:] = 1e12
        env.step(np.zeros(3, np.float32))

    told = [record.message for record in caplog.records if "simulation is unstable" in record.message]
    assert len(told) == 1
    assert told[0].startswith("environment: Nan, Inf or huge value in")
    assert os.listdir(tmp_path) == []
    assert capfd.readouterr().out == ""
