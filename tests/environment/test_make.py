from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import digideep.testing  # noqa: F401  what it registers stays, and what a test registers goes
from digideep.environment.config import EnvConfig
from digideep.environment.make import describe_env, make_env, prepare
from digideep.environment.state_replay import ReplayRecorder
from digideep.errors import DigideepError, EnvironmentFailure, SpaceError, TrustError, UsageError

MODULE = """
import warnings
import gymnasium
from gymnasium import spaces

class Mine(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)
    def __init__(self, size=1, *, fail=None, text=False):
        if fail == "raise":
            raise ValueError("no such level\\nas 9")
        if fail == "import":
            import not_there
        if fail == "type":
            len(5)
        if text:
            self.observation_space = spaces.Text(5)
        warnings.warn("mine is slow")
        self.size = size
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def close(self):
        closed.append(self.size)

class Needy(Mine):
    def __init__(self, level):
        super().__init__()

closed = []
for version in (1, 3):
    gymnasium.register(f"Mine-v{version}", Mine, max_episode_steps=50)
gymnasium.register("Needy-v0", Needy)
"""


@pytest.fixture
def my_envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A user's module that registers environments, for as long as a test runs."""
    (tmp_path / "my_envs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("digideep.environment.make._told", set())
    before = set(gymnasium.registry)
    yield "my_envs"
    for name in set(gymnasium.registry) - before:
        del gymnasium.registry[name]
    sys.modules.pop("my_envs", None)


def test_an_environment_has_its_registered_time_limit_unless_another_is_given() -> None:
    assert describe_env(EnvConfig("CartPole-v1")).max_episode_steps == 500
    assert describe_env(EnvConfig("CartPole-v1", max_episode_steps=7)).max_episode_steps == 7


def test_a_time_limit_truncates_and_does_not_terminate() -> None:
    env = make_env(EnvConfig("Pendulum-v1", max_episode_steps=3))
    env.reset(seed=0)

    flags = [env.step([0.0])[2:4] for _ in range(3)]

    assert flags == [(False, False), (False, False), (False, True)]


def test_keyword_arguments_reach_the_environment() -> None:
    env = make_env(EnvConfig("Pendulum-v1", env_kwargs={"g": 1.5}))

    assert env.unwrapped.g == 1.5  # type: ignore[attr-defined]


def test_a_module_named_for_it_registers_the_environment(my_envs: str) -> None:
    env = make_env(EnvConfig("Mine-v3", from_module=my_envs, env_kwargs={"size": 4}), allowed=("digideep", my_envs))

    assert env.unwrapped.size == 4  # type: ignore[attr-defined]


def test_a_module_in_the_id_registers_the_environment(my_envs: str) -> None:
    spec = describe_env(EnvConfig(f"{my_envs}:Mine-v3"), allowed=("digideep", my_envs))

    assert (spec.id, spec.max_episode_steps) == ("my_envs:Mine-v3", 50)


@pytest.mark.parametrize(
    "config", [EnvConfig("my_envs:Mine-v3"), EnvConfig("Mine-v3", from_module="my_envs"), EnvConfig("os:Mine-v3")]
)
def test_a_module_that_nobody_vouched_for_is_not_imported(my_envs: str, config: EnvConfig) -> None:
    with pytest.raises(TrustError, match=r"env/(model_name|from_module): expected a module that is trusted"):
        make_env(config)

    assert my_envs not in sys.modules


def test_describing_an_environment_closes_it(my_envs: str) -> None:
    describe_env(EnvConfig("my_envs:Mine-v3", env_kwargs={"size": 6}), allowed=(my_envs,))

    assert sys.modules[my_envs].closed == [6]


def test_an_environment_whose_space_is_refused_is_closed_too(my_envs: str) -> None:
    with pytest.raises(SpaceError, match=r"my_envs:Mine-v3: observation space: .*Text"):
        describe_env(EnvConfig("my_envs:Mine-v3", env_kwargs={"text": True}), allowed=(my_envs,))

    assert sys.modules[my_envs].closed == [1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "found that no environment 'CartPol-v1' is registered; did you mean 'CartPole-v1'?"),
        (
            "Qqqqqqqqq-v7",
            "no environment 'Qqqqqqqqq-v7' is registered; 'python -m digideep.environment.play --list-inc",
        ),
        ("LunarLander-v2", "found 'LunarLander-v2', which is an old version that is gone; use 'LunarLander-v3'"),
        ("Taxi-v3", "found 'Taxi-v3', which is an old version that is gone; use 'Taxi-v4'"),
        ("Hopper-v2", "found 'Hopper-v2', which is an old version that is gone; use 'Hopper-v5'"),
        ("Pusher-v4", "found 'Pusher-v4', which is an old version that is gone; use 'Pusher-v5'"),
        ("CartPole-v9", "found 'CartPole-v9', which is not registered; use 'CartPole-v1'"),
        ("Cart Pole", "expected an id such as 'CartPole-v1', found 'Cart Pole'"),
        ("", "expected an id such as 'CartPole-v1', found ''"),
        ("Cart\nPole\x1b-v1", "found 'Cart Pole -v1'"),
        ("no_such_module:Mine-v1", "found no 'no_such_module'"),
        (":Mine-v1", "found ''"),
    ],
)
def test_an_id_that_is_none_is_a_usage_error_in_one_line(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_env(EnvConfig(name), allowed=("digideep", "no_such_module"))

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def made(my_envs: str, name: str, **kwargs: Any) -> str:
    with pytest.raises(DigideepError) as caught:
        make_env(EnvConfig(f"{my_envs}:{name}", env_kwargs=kwargs), allowed=(my_envs,))
    return f"{caught.value.exit_code}: {caught.value}"


def test_an_argument_that_the_environment_does_not_take_is_a_usage_error(my_envs: str) -> None:
    assert made(my_envs, "Mine-v3", siz=3) == (
        "2: /env/env_kwargs: expected arguments that it takes, found that Mine-v3 takes no argument 'siz'; "
        "did you mean 'size'?"
    )
    assert made(my_envs, "Needy-v0").startswith(
        "2: /env/env_kwargs: expected every argument that it needs, found that Needy-v0 says: "
    )
    assert made(my_envs, "Mine-v3", max_episode_steps=3) == (
        "2: /env/env_kwargs: expected arguments of the environment, found 'max_episode_steps'; "
        "use /env/max_episode_steps"
    )


def test_an_environment_that_raises_when_made_is_a_failure_in_one_line(my_envs: str) -> None:
    assert made(my_envs, "Mine-v3", fail="raise") == (
        "7: environment Mine-v3: making it with env_kwargs {'fail': 'raise'} raised ValueError: no such level as 9"
    )
    assert made(my_envs, "Mine-v3", fail="type").startswith("7: environment Mine-v3: making it")


def test_an_environment_that_lacks_a_module_names_it(my_envs: str) -> None:
    assert made(my_envs, "Mine-v3", fail="import") == (
        "2: /env/model_name: expected all that it imports, found that 'Mine-v3' needs the module 'not_there'; "
        "install it"
    )


def test_warnings_of_environments_go_to_the_log_once(my_envs: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            make_env(EnvConfig("my_envs:Mine-v1"), allowed=(my_envs,))

    assert [record.message for record in caplog.records] == [
        "environment: The environment Mine-v1 is out of date. You should consider upgrading to version `v3`.",
        "environment: mine is slow",
    ]


def test_an_id_without_a_version_is_the_newest_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        registered = prepare(EnvConfig("CartPole"))

    assert registered.id == "CartPole-v1"
    assert "'CartPole' has no version, taking 'CartPole-v1'" in caplog.text


def test_only_environments_that_need_it_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make_env(EnvConfig("CartPole-v1"))
    monkeypatch.setattr("digideep.environment.state_replay.REPLAYED", {"gymnasium.envs.classic_control.": None})
    recorded = make_env(EnvConfig("CartPole-v1"))

    assert "ReplayRecorder" not in str(plain)
    assert str(recorded) == "<TimeLimit<OrderEnforcing<ReplayRecorder<CartPoleEnv<CartPole-v1>>>>>"
    assert isinstance(recorded.env.env, ReplayRecorder)  # type: ignore[attr-defined]


def test_a_failure_is_not_taken_for_a_usage_error(my_envs: str) -> None:
    with pytest.raises(EnvironmentFailure):
        make_env(EnvConfig("digideep.testing:Faulty-v0", env_kwargs={"fault": "init"}))


def test_making_an_environment_imports_no_torch() -> None:
    code = (
        "import sys; from digideep.environment.make import make_env; from digideep.environment.config import EnvConfig;"
        "make_env(EnvConfig('digideep.testing:Toy-v0')).reset(seed=0); print('torch' in sys.modules)"
    )

    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert printed.strip() == "False"
