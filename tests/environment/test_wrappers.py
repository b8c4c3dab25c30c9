"""Wrappers from `/env/wrappers`, around single environments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from digideep.environment.config import EnvConfig
from digideep.environment.examine import state_difference
from digideep.environment.make import make_env
from digideep.environment.trial import trial_spec
from digideep.environment.wrappers.config import (
    AtariPreprocessingConfig,
    ClipRewardConfig,
    FrameStackConfig,
    SignRewardConfig,
    WrapperConfig,
)
from digideep.environment.wrappers.frame_stack import FrameStack
from digideep.environment.wrappers.reward import ClipReward, SignReward
from digideep.errors import ConfigError, DigideepError, EnvironmentFailure, SpaceError, TrustError
from digideep.params import cartpole_ppo
from digideep.params.overrides import validate
from digideep.pipeline.failure import play_env
from digideep.utility.node import node

USERS = """
import dataclasses
import os
import gymnasium
from digideep.environment.wrappers.config import WrapperConfig
from digideep.utility.node import Config, setting

@dataclasses.dataclass(frozen=True)
class TenfoldConfig(WrapperConfig):
    builds = "users_wrappers:Tenfold"
    factor: float = setting(10.0, "of rewards")

class Tenfold(gymnasium.Wrapper):
    def __init__(self, env, config):
        super().__init__(env)
        self.config, self.steps = config, 0
    def step(self, action):
        self.steps += 1
        observation, reward, *rest = self.env.step(action)
        return observation, reward * self.config.factor, *rest

@dataclasses.dataclass(frozen=True)
class DeadlyConfig(WrapperConfig):
    builds = "users_wrappers:Deadly"

class Deadly(gymnasium.Wrapper):
    def __init__(self, env, config):
        os._exit(3)

@dataclasses.dataclass(frozen=True)
class NothingConfig(WrapperConfig):
    builds = "users_wrappers:TenfoldConfig"
"""


class Script(gymnasium.Env[Any, Any]):
    """Shows 0, 1, 2, ... and gives the rewards it was made with."""

    observation_space = spaces.Box(-1.0, 100.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, rewards: list[float]) -> None:
        self.rewards, self.t = rewards, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.full(2, self.t, np.float32), self.rewards[self.t - 1], False, False, {}


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "users_wrappers.py").write_text(USERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "users_wrappers"
    sys.modules.pop("users_wrappers", None)


def test_a_stack_holds_the_last_observations_and_begins_full_of_the_first() -> None:
    env = FrameStack(Script([0.0] * 9), FrameStackConfig(n=3))

    first, _ = env.reset()
    shown = [env.step(0)[0] for _ in range(4)]

    assert env.observation_space.shape == (3, 2)
    assert first.tolist() == [[0, 0]] * 3
    assert [stack[:, 0].tolist() for stack in shown] == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert env.reset()[0].tolist() == [[0, 0]] * 3


def test_what_somebody_does_to_a_stack_changes_no_later_one() -> None:
    env = FrameStack(Script([0.0] * 9), FrameStackConfig(n=2))
    env.reset()[0].fill(7)
    second = env.step(0)[0]
    found = second[:, 0].tolist()
    second.fill(7)

    assert found == [0, 1]
    assert env.step(0)[0][:, 0].tolist() == [1, 2]


def test_only_a_box_can_be_stacked() -> None:
    env = Script([])
    env.observation_space = spaces.Dict({"a": spaces.Discrete(2)})  # type: ignore[assignment]

    with pytest.raises(SpaceError, match="FrameStack: expected observations that are one Box"):
        FrameStack(env, FrameStackConfig())


def test_rewards_are_cut_or_reduced_to_their_sign_and_what_is_none_stays_none() -> None:
    rewards = [-3.0, -0.5, 0.0, 0.25, 9.0, float("nan"), float("inf")]
    clipped = ClipReward(Script(rewards), ClipRewardConfig(low=-1.0, high=0.5))
    signed = SignReward(Script(rewards), SignRewardConfig())
    clipped.reset()
    signed.reset()

    assert str([clipped.step(0)[1] for _ in rewards]) == "[-1.0, -0.5, 0.0, 0.25, 0.5, nan, 0.5]"
    assert str([signed.step(0)[1] for _ in rewards]) == "[-1.0, -1.0, 0.0, 1.0, 1.0, nan, 1.0]"


def test_wrappers_stand_in_the_order_of_their_list_innermost_first() -> None:
    nodes = (node(ClipRewardConfig), node(FrameStackConfig, n=2), node(SignRewardConfig))

    env: Any = make_env(EnvConfig("CartPole-v1", wrappers=nodes))

    assert [type(layer).__name__ for layer in (env, env.env, env.env.env)] == ["SignReward", "FrameStack", "ClipReward"]
    assert env.observation_space.shape == (2, 4)


def test_wrapped_environments_are_restored_to_the_bit_with_the_bounds_of_now() -> None:
    nodes = (node(FrameStackConfig, n=3), node(ClipRewardConfig, low=-2.0, high=0.5))

    assert state_difference(lambda: make_env(EnvConfig("Pendulum-v1", wrappers=nodes)), steps=20) == ""

    from digideep.environment.state import capture, restore

    old = make_env(EnvConfig("Pendulum-v1", wrappers=nodes))
    old.reset(seed=1)
    new = make_env(EnvConfig("Pendulum-v1", wrappers=(nodes[0], node(ClipRewardConfig, low=-0.01, high=0.5))))
    state = capture(old)
    assert state is not None
    restore(new, state)

    assert new.step(np.array([2.0], np.float32))[1] == -0.01


def test_a_wrapper_of_the_user_is_built_from_its_configuration(users: str) -> None:
    wrappers = ({"type": f"{users}:TenfoldConfig", "factor": 3.0},)

    env = make_env(EnvConfig("CartPole-v1", wrappers=wrappers), allowed=("digideep", users))
    env.reset(seed=1)

    assert env.step(0)[1] == 3.0
    make = lambda: make_env(EnvConfig("CartPole-v1", wrappers=wrappers), allowed=("digideep", users))  # noqa: E731
    assert state_difference(make, steps=10) == ""


def test_a_module_that_nobody_vouched_for_is_not_imported(users: str) -> None:
    with pytest.raises(TrustError, match="/env/wrappers/0/type: expected a module that is trusted"):
        make_env(EnvConfig("CartPole-v1", wrappers=({"type": f"{users}:TenfoldConfig"},)))

    assert users not in sys.modules


@pytest.mark.parametrize(
    ("wrapper", "found"),
    [
        ({"type": "digideep.model.config:MLPConfig"}, "/env/wrappers/0/type: expected a WrapperConfig"),
        ({"type": "digideep.environment.wrappers.config:FrameStackConfig", "m": 1}, "unknown key 'm'"),
        (
            {"type": "digideep.environment.wrappers.config:FrameStackConfig", "n": 0},
            "/env/wrappers/0/n: expected a finite number at least 1",
        ),
        ({"type": "digideep.environment.wrappers.config:ClipRewardConfig", "low": 2.0}, "expected more than low"),
        ({"n": 1}, "/env/wrappers/0: expected a node with the key 'type'"),
    ],
    ids=["other", "unknown", "range", "bounds", "none"],
)
def test_a_wrong_wrapper_is_refused_where_the_parameters_are_checked(wrapper: dict[str, Any], found: str) -> None:
    tree = cartpole_ppo.gen_params({**cartpole_ppo.cpanel, "wrappers": [wrapper]})

    with pytest.raises(ConfigError, match=found):
        validate(tree)


def test_a_wrapper_that_builds_none_is_refused(users: str) -> None:
    allowed = ("digideep", users)

    with pytest.raises(ConfigError, match=r"expected the class of a gymnasium.Wrapper, found users_wrappers"):
        make_env(EnvConfig("CartPole-v1", wrappers=({"type": f"{users}:NothingConfig"},)), allowed=allowed)
    with pytest.raises(ConfigError, match="expected a class that says what it builds"):
        make_env(EnvConfig("CartPole-v1", wrappers=(node(WrapperConfig),)), allowed=allowed)


def test_the_fields_that_a_wrapper_leaves_out_are_filled_in() -> None:
    stack = {"type": "digideep.environment.wrappers.config:FrameStackConfig"}
    tree = cartpole_ppo.gen_params({**cartpole_ppo.cpanel, "wrappers": [stack], "play_wrappers": [stack]})

    found = validate(tree)["env"]

    assert found["wrappers"] == [{**stack, "n": 4}]
    assert found["play_wrappers"] == [{**stack, "n": 4}]


def test_a_wrapper_that_cannot_stand_where_it_does_is_named_by_the_list_it_is_from() -> None:
    wrong = (node(FrameStackConfig, n=2), node(AtariPreprocessingConfig))

    for config, path in (
        (EnvConfig(wrappers=wrong), "/env/wrappers/1/type"),
        (EnvConfig(wrappers=wrong, play_wrappers=wrong), "/env/play_wrappers/1/type"),
        (EnvConfig(wrappers=wrong[1:], play_wrappers=wrong[1:]), "/env/play_wrappers/0"),
    ):
        with pytest.raises(DigideepError, match=f"^{path}: expected "):
            make_env(config)


def test_tests_and_plays_have_wrappers_of_their_own_where_they_are_given() -> None:
    wrappers, others = [node(SignRewardConfig)], [node(ClipRewardConfig)]

    assert play_env({"env": {"wrappers": wrappers, "play_wrappers": None}})["wrappers"] == wrappers
    assert play_env({"env": {"wrappers": wrappers, "play_wrappers": others}})["wrappers"] == others
    assert play_env({"env": {"wrappers": wrappers, "play_wrappers": []}})["wrappers"] == []


def test_a_wrapper_that_ends_its_process_ends_a_worker_where_there_is_to_be_one(users: str) -> None:
    config = EnvConfig("CartPole-v1", wrappers=({"type": f"{users}:DeadlyConfig"},))

    with pytest.raises(EnvironmentFailure, match="exit code 3"):
        trial_spec(config, in_worker=True, step_timeout_s=30.0, allowed=("digideep", users))
