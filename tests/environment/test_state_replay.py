from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from digideep.environment.config import EnvConfig
from digideep.environment.examine import seed_difference, state_difference
from digideep.environment.make import make_env
from digideep.environment.state import capture, obstacle, restore
from digideep.environment.state_plain import NotPlainError
from digideep.environment.state_replay import ReplayRecorder, record_for_replay
from digideep.environment.state_simulators import Adapter
from digideep.errors import CheckpointError, NotReproducibleError
from digideep.utility.codec import decode, encode
from digideep.utility.seeding import generator_state

Env = gymnasium.Env[Any, Any]


class Hidden(gymnasium.Env[Any, Any]):
    """A walk with noise whose position stands where no attribute shows it."""

    observation_space = spaces.Dict({"position": spaces.Box(-np.inf, np.inf, (2,), np.float64)})
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.handle = (x for x in [self.np_random.normal(size=2)])
        self.position = next(self.handle)
        return {"position": self.position.copy()}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position = self.position + action + self.np_random.normal(size=2)
        return {"position": self.position.copy()}, 0.0, bool(self.np_random.random() < 0.1), False, {}


def recorded() -> Env:
    return wrappers.FrameStackObservation(wrappers.TimeLimit(ReplayRecorder(Hidden()), 20), 2)


def state_of(env: Env) -> dict[str, Any]:
    state = capture(env)
    assert state is not None
    return decode(*encode(state))


def test_an_episode_is_walked_again_to_the_same_bits() -> None:
    assert state_difference(recorded) == ""


def test_without_the_recorder_there_is_no_state() -> None:
    assert obstacle(Hidden()).startswith("Hidden has no state to save")


def test_a_recorder_stands_inside_the_other_wrappers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digideep.environment.state_replay.REPLAYED", {Hidden.__module__: None})

    wrapped = record_for_replay(wrappers.TimeLimit(wrappers.OrderEnforcing(Hidden()), 9))

    assert str(wrapped) == "<TimeLimit<OrderEnforcing<ReplayRecorder<Hidden instance>>>>"
    assert str(record_for_replay(Hidden())) == "<ReplayRecorder<Hidden instance>>"


def test_actions_are_copied_since_the_caller_writes_the_next_one_there() -> None:
    env, fresh = ReplayRecorder(Hidden()), ReplayRecorder(Hidden())
    env.reset(seed=1)
    buffer = np.zeros(2, np.float32)
    for i in range(4):
        buffer[:] = i
        env.step(buffer)

    restore(fresh, state_of(env))

    assert fresh.unwrapped.position.tolist() == env.unwrapped.position.tolist()  # type: ignore[attr-defined]


def test_equal_runs_have_equal_states_whatever_an_environment_drew_before_its_seed() -> None:
    env, other = ReplayRecorder(Hidden()), ReplayRecorder(Hidden())
    env.unwrapped.np_random.random()

    env.reset(seed=1)
    other.reset(seed=1)

    np.testing.assert_equal(state_of(env), state_of(other))


def test_a_walk_that_ends_elsewhere_is_an_error() -> None:
    class Drifting(Hidden):
        moves = 0.0

        def step(self, action: Any) -> Any:
            type(self).moves += 1.0
            return super().step(action + self.moves)

    env = ReplayRecorder(Drifting())
    env.reset(seed=1)
    env.step(np.zeros(2))

    with pytest.raises(NotReproducibleError, match="stand after 1 repeated steps where it stood, found it elsewhere"):
        restore(ReplayRecorder(Drifting()), state_of(env))


def test_a_walk_that_draws_differently_is_an_error() -> None:
    class Thirsty(Hidden):
        drinks = 0

        def step(self, action: Any) -> Any:
            type(self).drinks += 1
            result = super().step(action)
            self.np_random.random(self.drinks)
            return result

    env = ReplayRecorder(Thirsty())
    env.reset(seed=1)
    env.step(np.zeros(2))

    with pytest.raises(NotReproducibleError):
        restore(ReplayRecorder(Thirsty()), state_of(env))


def test_a_record_of_no_episode_is_refused() -> None:
    with pytest.raises(CheckpointError, match="expected the record of an episode, found none"):
        restore(ReplayRecorder(Hidden()), state_of(ReplayRecorder(Hidden())))


def test_an_episode_without_end_has_no_state_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digideep.environment.state_replay.MAX_STEPS", 3)
    env = ReplayRecorder(Hidden())
    env.reset(seed=1)

    found = []
    for _ in range(5):
        found.append(capture(env) is not None)
        env.step(np.zeros(2))

    assert found == [True, True, True, True, False]
    assert obstacle(env) == "Hidden has no state to save: the episode is longer than the 3 steps that are replayed"
    env.reset()
    assert obstacle(env) == ""


def test_options_of_a_reset_are_not_replayed_but_told() -> None:
    env = ReplayRecorder(Hidden())
    env.reset(seed=1, options={"x": 1})

    assert (capture(env), obstacle(env)) == (None, "Hidden has no state to save: its episode was reset with options")


BOX2D = [
    EnvConfig("LunarLander-v3"),
    EnvConfig("LunarLander-v3", env_kwargs={"continuous": True, "enable_wind": True}),
    EnvConfig("BipedalWalker-v3"),
    pytest.param(EnvConfig("BipedalWalkerHardcore-v3"), marks=pytest.mark.nightly),
    pytest.param(EnvConfig("CarRacing-v3", max_episode_steps=60), marks=pytest.mark.nightly),
    pytest.param(EnvConfig("CarRacing-v3", env_kwargs={"continuous": False}), marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("config", BOX2D, ids=lambda config: f"{config.model_name}{config.env_kwargs}")
def test_box2d_is_exact_by_replay(config: EnvConfig) -> None:
    assert seed_difference(lambda: make_env(config)) == ""
    assert state_difference(lambda: make_env(config), steps=20) == ""


class Written(Hidden):
    """A walk that can be written down while it is on one side."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, _, _, info = super().step(action)
        return observation, float(self.position.sum()), False, False, info


def written(env: Written) -> dict[str, Any]:
    if env.position[0] < 0.0:
        raise NotPlainError("position: it is on the other side")
    return {"position": env.position.copy()}


def write(env: Written, state: Mapping[str, Any]) -> None:
    env.position = state["position"]


def either() -> ReplayRecorder:
    return ReplayRecorder(Written(), Adapter(written, write))


def test_what_can_be_written_down_is_not_walked_again() -> None:
    env, fresh = either(), either()
    env.reset(seed=1)
    kinds = []
    for t in range(40):
        env.step(np.full(2, (-1.0) ** (t // 8), np.float32))
        state = state_of(env)
        restore(fresh, state)
        kinds.append("data" in state["layers"][0]["own"])
        there: Any = fresh.unwrapped
        assert there.position.tolist() == env.unwrapped.position.tolist()  # type: ignore[attr-defined]
        assert generator_state(there.np_random) == generator_state(env.unwrapped.np_random)

    assert set(kinds) == {True, False}


def test_a_state_is_written_down_once() -> None:
    asked: list[Any] = []
    env = ReplayRecorder(Written(), Adapter(lambda env: asked.append(env) or written(env), write))
    env.reset(seed=1)
    env.unwrapped.position = np.ones(2)  # type: ignore[attr-defined]

    capture(env)

    assert len(asked) == 1


def test_after_data_nobody_knows_how_the_episode_began_until_the_next_one() -> None:
    env, fresh = either(), either()
    env.reset(seed=1)
    base: Any = fresh.unwrapped
    env.unwrapped.position = np.ones(2)  # type: ignore[attr-defined]
    restore(fresh, state_of(env))

    base.position = -np.ones(2)
    before = obstacle(fresh)
    fresh.reset(seed=2)

    assert before == ("Written has no state to save: nobody knows how its episode began, and it cannot be written down")
    assert obstacle(fresh) == ""
