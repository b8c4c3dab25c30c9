from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from digideep.environment.config import EnvConfig
from digideep.environment.examine import state_difference
from digideep.environment.make import make_env
from digideep.environment.state import capture, mismatch, obstacle, restore
from digideep.errors import CheckpointError, EnvironmentFailure
from digideep.testing import ChainEnv, ToyEnv
from digideep.utility.codec import decode, encode
from digideep.utility.differences import first_difference
from digideep.utility.seeding import generator_state

Env = gymnasium.Env[Any, Any]


def cartpole(**fields: Any) -> Env:
    return make_env(EnvConfig("CartPole-v1", **fields))


def pendulum() -> Env:
    return make_env(EnvConfig("Pendulum-v1", max_episode_steps=12))


@pytest.mark.parametrize(
    ("name", "kwargs", "limit"),
    [
        ("CartPole-v1", {}, None),
        ("CartPole-v0", {}, 20),
        ("Pendulum-v1", {"g": 3.0}, 30),
        ("Acrobot-v1", {}, 30),
        ("MountainCar-v0", {}, 30),
        ("MountainCarContinuous-v0", {}, 30),
        ("FrozenLake-v1", {"map_name": "8x8"}, None),
        ("CliffWalking-v1", {"is_slippery": True}, 30),
        ("Taxi-v4", {"fickle_passenger": True, "is_rainy": True}, 30),
        ("Blackjack-v1", {}, None),
        ("digideep.testing:Toy-v0", {"continuous": True}, None),
        ("digideep.testing:Identity-v0", {"kind": "box"}, None),
        ("digideep.testing:Bandit-v0", {}, None),
        ("digideep.testing:Chain-v0", {}, None),
        ("digideep.testing:OneState-v0", {}, None),
    ],
)
def test_a_restored_environment_goes_on_to_the_same_bits(name: str, kwargs: dict[str, Any], limit: int | None) -> None:
    config = EnvConfig(name, env_kwargs=kwargs, max_episode_steps=limit)

    assert state_difference(lambda: make_env(config)) == ""


WRAPPED: dict[str, Callable[[], Env]] = {
    "statistics": lambda: wrappers.RecordEpisodeStatistics(cartpole()),
    "normalised": lambda: wrappers.NormalizeReward(wrappers.NormalizeObservation(pendulum())),
    "stacked": lambda: wrappers.FrameStackObservation(cartpole(), 4),
    "stacked by zeros": lambda: wrappers.FrameStackObservation(cartpole(), 3, padding_type="zero"),
    "delayed": lambda: wrappers.DelayObservation(cartpole(), 2),
    "time aware": lambda: wrappers.TimeAwareObservation(cartpole(max_episode_steps=15)),
    "rescaled": lambda: wrappers.ClipAction(
        wrappers.RescaleAction(pendulum(), np.float32(-1.0), np.float32(1.0))  # type: ignore[arg-type]
    ),
    "sticky": lambda: wrappers.StickyAction(cartpole(), 0.5),
    "repeated": lambda: wrappers.RepeatAction(cartpole(), 2),
    "transformed": lambda: wrappers.TransformReward(
        wrappers.TransformObservation(cartpole(), lambda o: o * 2, spaces.Box(-np.inf, np.inf, (4,), np.float32)),
        lambda r: r / 2,
    ),
    "converted": lambda: wrappers.DtypeObservation(wrappers.FlattenObservation(cartpole()), np.float64),
    "checked": lambda: wrappers.PassiveEnvChecker(cartpole()),
    "maximum of two frames": lambda: wrappers.MaxAndSkipObservation(pendulum(), 2),
    "all of it": lambda: wrappers.NormalizeReward(
        wrappers.FrameStackObservation(
            wrappers.NormalizeObservation(wrappers.RecordEpisodeStatistics(wrappers.StickyAction(cartpole(), 0.3))), 2
        )
    ),
    "around one with a state of its own": lambda: wrappers.FrameStackObservation(ToyEnv(), 3),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_go_on_to_the_same_bits(name: str) -> None:
    assert state_difference(WRAPPED[name]) == ""


def test_a_state_survives_the_codec_and_a_fresh_process(tmp_path: Path) -> None:
    make = (
        "from digideep.environment.config import EnvConfig\n"
        "from digideep.environment.make import make_env\n"
        "from gymnasium import wrappers\n"
        "env = make_env(EnvConfig('Taxi-v4', env_kwargs={'is_rainy': True}))\n"
        "env = wrappers.FrameStackObservation(wrappers.RecordEpisodeStatistics(env), 2)\n"
    )
    env = wrappers.FrameStackObservation(
        wrappers.RecordEpisodeStatistics(make_env(EnvConfig("Taxi-v4", env_kwargs={"is_rainy": True}))), 2
    )
    env.reset(seed=3)
    for action in (0, 1, 2, 3, 4):
        env.step(action)
    encoded = encode(capture(env), inline=True)
    (tmp_path / "state.json").write_text(json.dumps(encoded.json))
    steps = "[[env.step(a % 6)[0].tolist(), float(env.step(a % 4)[1])] for a in range(30)]"
    code = (
        f"{make}import json\nfrom digideep.environment.state import restore\n"
        "from digideep.utility.codec import decode\n"
        "restore(env, decode(json.load(open('state.json')), {}))\n"
        f"print(json.dumps({steps}))"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout
    expected = [[env.step(a % 6)[0].tolist(), float(env.step(a % 4)[1])] for a in range(30)]

    assert json.loads(printed) == expected


def test_a_state_is_not_touched_by_later_steps() -> None:
    env = WRAPPED["all of it"]()
    env.reset(seed=0)
    env.step(0)
    state = capture(env)
    kept = decode(*encode(state))

    for _ in range(5):
        env.step(1)

    assert first_difference(kept, state) == ""


def test_saving_changes_nothing() -> None:
    disturbed, plain = cartpole(), cartpole()
    disturbed.reset(seed=0)
    plain.reset(seed=0)

    for _ in range(5):
        capture(disturbed)
        obstacle(disturbed)
        assert first_difference(disturbed.step(1)[:2], plain.step(1)[:2]) == ""


class Frozen(gymnasium.Env[Any, Any]):
    """An environment that keeps its state to itself."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.count % 2, 0.0, self.count == 3, False, {}


class Mine(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A user's wrapper with plain attributes."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.scale, self.seen = 2.0, [np.float32(1.0)]
        self.rng = np.random.default_rng(3)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.seen.append(self.rng.random(dtype=np.float32) * self.scale)
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(self.seen[-1]) + len(self.seen), terminated, truncated, info


class Random(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A user's wrapper that draws from the action space."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.action_space = spaces.Discrete(2, seed=4)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return self.env.step(self.action_space.sample())


class Handle(Mine):
    """A user's wrapper that holds on to something."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.file = Path("somewhere")


class Slotted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A user's wrapper whose attributes nobody lists."""

    __slots__ = ("hidden",)


class Speaking(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A user's wrapper that speaks for what it wraps."""

    def get_state(self) -> dict[str, Any]:
        return {"count": self.env.unwrapped.count}  # type: ignore[attr-defined]

    def set_state(self, state: dict[str, Any]) -> None:
        self.env.unwrapped.count = state["count"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrapper", [Mine, Random])
def test_a_wrapper_of_the_users_is_saved_by_its_plain_attributes(wrapper: Callable[[Env], Env]) -> None:
    assert state_difference(lambda: wrapper(cartpole())) == ""


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Frozen, "Frozen has no state to save: Frozen has no get_state() and set_state(state)"),
        (lambda: Mine(Frozen()), "Frozen has no state to save: Frozen has no get_state() and set_state(state)"),
        (
            lambda: Handle(cartpole()),
            "CartPole-v1 has no state to save: the wrapper Handle.file: a pathlib.PosixPath is not plain data, "
            "and it has no get_state() and set_state(state)",
        ),
        (
            lambda: Slotted(cartpole()),
            "CartPole-v1 has no state to save: the wrapper Slotted has __slots__, "
            "and no get_state() and set_state(state)",
        ),
    ],
)
def test_what_cannot_be_saved_to_the_same_bits_is_not_saved_and_says_why(make: Callable[[], Env], reason: str) -> None:
    env = make()

    before_reset = obstacle(env)
    env.reset(seed=0)

    assert (before_reset, obstacle(env), capture(env)) == (reason, reason, None)


def test_a_subclass_of_a_known_environment_is_not_taken_for_it() -> None:
    from gymnasium.envs.classic_control import CartPoleEnv

    class Windy(CartPoleEnv):
        pass

    assert obstacle(Windy()) == "Windy has no state to save: Windy has no get_state() and set_state(state)"


def test_a_wrapper_speaks_for_an_environment_of_which_nothing_is_known() -> None:
    make = lambda: wrappers.TimeLimit(Speaking(Frozen()), 50)  # noqa: E731

    assert obstacle(make()) == ""
    assert state_difference(make) == ""


def test_the_generator_is_saved_for_those_who_forget_it() -> None:
    class Forgetful(ChainEnv):
        def step(self, action: int) -> Any:
            observation, _, terminated, truncated, info = super().step(action)
            return observation, float(self.np_random.random()), terminated, truncated, info

    assert state_difference(Forgetful) == ""


def test_a_state_that_is_not_plain_is_an_error_that_names_the_place() -> None:
    class Odd(ToyEnv):
        def get_state(self) -> dict[str, Any]:
            return {"inside": [0, {"file": Path("x")}]}

    env = Odd()
    env.reset(seed=0)

    with pytest.raises(EnvironmentFailure, match=r"Odd: get_state\(\)/inside/1/file: a pathlib.PosixPath is not plain"):
        capture(env)


def test_an_exception_of_the_users_is_named() -> None:
    class Broken(ToyEnv):
        def get_state(self) -> dict[str, Any]:
            raise KeyError("gone")

        def set_state(self, state: dict[str, Any]) -> None:
            raise KeyError("also gone")

    env, whole = Broken(), ToyEnv()
    env.reset(seed=0)
    whole.reset(seed=0)
    state = capture(whole)
    assert state is not None
    state["id"] = state["layers"][0]["name"] = "Broken"

    with pytest.raises(EnvironmentFailure, match="environment Broken: get_state raised KeyError: 'gone'"):
        capture(env)
    with pytest.raises(EnvironmentFailure, match="environment Broken: set_state raised KeyError: 'also gone'"):
        restore(Broken(), state)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda: make_env(EnvConfig("CartPole-v0")), "expected the state of CartPole-v0, found that of CartPole-v1"),
        (lambda: cartpole(max_episode_steps=9), r"was made with \{'max_episode_steps': '\[500\]'\}, and now with"),
        (lambda: cartpole(env_kwargs={"sutton_barto_reward": True}), "and now with {'sutton_barto_reward': 'True'"),
        (lambda: wrappers.RecordEpisodeStatistics(cartpole()), "expected the layers .'RecordEpisodeStatistics', "),
    ],
)
def test_a_state_of_another_environment_or_other_arguments_is_refused(other: Callable[[], Env], reason: str) -> None:
    env = cartpole()
    env.reset(seed=0)
    state = capture(env)
    assert state is not None

    with pytest.raises(CheckpointError, match=reason):
        restore(other(), state)
    assert mismatch(other(), state) != ""
    assert mismatch(cartpole(), state) == ""


def test_restoring_ends_where_the_generator_stood() -> None:
    env, fresh = ToyEnv(), ToyEnv()
    env.reset(seed=5)
    env.step(0)
    state = capture(env)
    assert state is not None

    restore(fresh, state)

    assert generator_state(fresh.np_random) == generator_state(env.np_random)


def test_a_state_that_holds_itself_is_an_error_that_says_so() -> None:
    class Endless(ToyEnv):
        def get_state(self) -> dict[str, Any]:
            state: dict[str, Any] = {}
            state["again"] = state
            return state

    env = Endless()
    env.reset(seed=0)

    with pytest.raises(EnvironmentFailure, match="more than 40 nested levels"):
        capture(env)
