"""Our Atari environment against that of ale-py inside Gymnasium's preprocessing, and what is its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing

from digideep.environment.atari import AtariEnv
from digideep.environment.config import EnvConfig
from digideep.environment.examine import seed_difference, state_difference
from digideep.environment.make import make_env
from digideep.environment.state import obstacle
from digideep.environment.vec.origin import WORDS, read_origin, write_origin
from digideep.environment.wrappers.config import AtariPreprocessingConfig, FrameStackConfig
from digideep.errors import CheckpointError, ConfigError, DigideepError, UsageError
from digideep.utility.node import node


def made(game: str, *wrappers: Any, kwargs: dict[str, Any] | None = None, **fields: Any) -> gymnasium.Env[Any, Any]:
    nodes = (node(AtariPreprocessingConfig, **fields), *wrappers)
    return make_env(EnvConfig(f"ALE/{game}-v5", env_kwargs=kwargs or {}, wrappers=nodes))


def bare(game: str = "Breakout", **fields: Any) -> AtariEnv:
    env = made(game, **fields).unwrapped
    assert isinstance(env, AtariEnv)
    return env


def standard(game: str, **fields: Any) -> gymnasium.Env[Any, Any]:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    inner = gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
    return AtariPreprocessing(inner, **fields)


def same_seed(seed: int) -> int:
    """Return the seed that gives our generator the state which ale-py's environment derives from `seed`."""
    return int(np.random.SeedSequence(seed).generate_state(2)[0])


@pytest.mark.parametrize(
    ("game", "fields"),
    [
        ("Pong", {"noop_max": 30}),
        ("Breakout", {"noop_max": 0, "terminal_on_life_loss": True}),
        ("Seaquest", {"noop_max": 5, "frame_skip": 3, "screen_size": 64, "terminal_on_life_loss": True}),
        ("SpaceInvaders", {"noop_max": 5, "frame_skip": 1, "screen_size": 50}),
    ],
)
def test_pictures_rewards_and_ends_are_those_of_the_standard_preprocessing(game: str, fields: dict[str, Any]) -> None:
    ours, theirs = made(game, **fields), standard(game, **fields)
    rng = np.random.default_rng(0)

    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    for seed in (1, 2):
        assert np.array_equal(ours.reset(seed=same_seed(seed))[0], theirs.reset(seed=seed)[0])
        for _ in range(120):
            action = int(rng.integers(ours.action_space.n))  # type: ignore[attr-defined]
            found, expected = ours.step(action), theirs.step(action)
            assert np.array_equal(found[0], expected[0])
            assert found[1:4] == expected[1:4]
            if found[2]:
                break


def test_a_game_begins_as_the_first_one_did_whatever_was_played_before() -> None:
    env = bare("Tennis", noop_max=0)
    first, _ = env.reset(seed=1)
    walked = [env.step(t % 18)[0] for t in range(60)]

    again, _ = env.reset()

    assert np.array_equal(first, again)
    assert all(np.array_equal(env.step(t % 18)[0], walked[t]) for t in range(60))


def test_a_seed_repeats_an_episode() -> None:
    assert seed_difference(lambda: made("Breakout", stickiness=0.25, terminal_on_life_loss=True)) == ""


@pytest.mark.parametrize("fields", [{"stickiness": 0.25}, {"terminal_on_life_loss": True}], ids=str)
def test_a_state_is_restored_to_the_bit(fields: dict[str, Any]) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return made("Breakout", node(FrameStackConfig, n=2), **fields)

    assert obstacle(make()) == ""
    assert state_difference(make, steps=40) == ""


def until_over(env: gymnasium.Env[Any, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    for _ in range(3000):
        result = env.step(1)
        if result[2] or result[3]:
            return result  # type: ignore[return-value]
    raise AssertionError("the game has an end")


def test_a_lost_life_ends_the_episode_and_the_game_goes_on_without_a_frame() -> None:
    env = bare(terminal_on_life_loss=True, noop_max=0)
    env.reset(seed=1)

    _, _, terminated, truncated, info = until_over(env)
    before = env._ale.getFrameNumber()
    _, begun = env.reset()

    assert (terminated, truncated) == (True, False)
    assert (info, begun) == ({"lives": 4}, {"lives": 4})
    assert env._ale.getFrameNumber() == before
    assert env.step(0)[4] == {"lives": 4}


def test_a_seed_begins_a_new_game_even_after_a_lost_life() -> None:
    env = bare(terminal_on_life_loss=True, noop_max=0)
    first, _ = env.reset(seed=1)
    until_over(env)

    again, info = env.reset(seed=1)

    assert np.array_equal(first, again)
    assert info == {"lives": 5}


def test_the_score_is_that_of_the_whole_game_and_told_where_it_ends() -> None:
    env = bare(terminal_on_life_loss=True, noop_max=0)
    env.reset(seed=1)
    total, infos = 0.0, []
    for _ in range(5):
        for _ in range(3000):
            _, reward, terminated, _, info = env.step(1)
            total += reward
            if terminated:
                break
        infos.append(info)
        env.reset()

    assert [info.get("metrics") for info in infos] == [None, None, None, None, {"score": total}]
    assert [info["lives"] for info in infos] == [4, 3, 2, 1, 0]


def test_a_game_is_truncated_after_so_many_frames() -> None:
    env = made("Pong", kwargs={"max_num_frames_per_episode": 20}, noop_max=0)
    env.reset(seed=1)

    flags = [env.step(0)[2:4] for _ in range(5)]

    assert flags == [(False, False)] * 4 + [(False, True)]


class Recorder:
    """Stands before the emulator and keeps the actions it is given."""

    def __init__(self, ale: Any) -> None:
        self._ale = ale
        self.taken: list[int] = []

    def act(self, action: Any) -> Any:
        self.taken.append(action.value)
        return self._ale.act(action)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ale, name)


def frames(env: AtariEnv, *, steps: int) -> list[int]:
    env.reset(seed=3)
    recorder = Recorder(env._ale)
    env._ale = recorder
    for t in range(steps):
        env.step(2 + t % 2)
    return recorder.taken


def test_every_frame_of_a_step_takes_its_action_without_stickiness() -> None:
    assert frames(bare("Pong"), steps=3) == [3, 3, 3, 3, 4, 4, 4, 4, 3, 3, 3, 3]


def test_a_sticky_frame_repeats_the_action_of_the_one_before() -> None:
    taken = frames(bare("Pong", stickiness=0.25, frame_skip=1), steps=800)
    asked = [3 + t % 2 for t in range(800)]

    sticks = [found != wanted for found, wanted in zip(taken, asked, strict=True)]
    allowed = [
        before == found or found == wanted
        for before, found, wanted in zip(taken[:-1], taken[1:], asked[1:], strict=True)
    ]

    assert all(allowed)
    # A frame differs from what was asked with p / (1 + p): it sticks to the other action, which stood before.
    assert 0.16 < np.mean(sticks) < 0.24
    assert frames(bare("Pong", stickiness=1.0), steps=2) == [0] * 8


def test_the_action_that_sticks_is_in_the_state_and_forgotten_with_the_game() -> None:
    loose, sticky = bare("Pong", frame_skip=1), bare("Pong", stickiness=1.0, frame_skip=1)
    loose.reset(seed=1)
    sticky.reset(seed=1)
    loose.step(2)
    sticky.set_state(loose.get_state())
    recorder = Recorder(sticky._ale)
    sticky._ale = recorder

    sticky.step(3)
    sticky.reset(seed=1)
    recorder.taken.clear()
    sticky.step(3)
    after_reset = list(recorder.taken)
    sticky.set_state(loose.get_state())
    sticky.step(3)

    assert after_reset == [0]
    assert recorder.taken == [0, 3]


def test_states_of_another_form_are_refused() -> None:
    env = bare("Pong")
    env.reset(seed=1)

    with pytest.raises(CheckpointError, match="expected that of an Atari game"):
        env.set_state({**env.get_state(), "screens": np.zeros((2, 3, 3), np.uint8)})


def test_where_an_episode_went_on_with_a_game_nobody_knows_how_it_began() -> None:
    env = bare(terminal_on_life_loss=True, noop_max=0)
    words = np.zeros(WORDS, np.uint64)
    env.reset(seed=1)
    write_origin(words, env, seed=-1)
    known = read_origin(words)

    until_over(env)
    write_origin(words, env, seed=-1)

    assert known is not None
    assert read_origin(words) is None


ATARI, STACK = node(AtariPreprocessingConfig), node(FrameStackConfig)


@pytest.mark.parametrize(
    ("make", "kind", "found"),
    [
        (lambda: made("Pong", kwargs={"frameskip": 2}), UsageError, "set 'frame_skip' in /env/wrappers"),
        (lambda: made("Pong", kwargs={"repeat_action_probability": 0.1}), UsageError, "set 'stickiness'"),
        (lambda: made("Pong", kwargs={"noop_max": 1}), UsageError, "set 'noop_max'"),
        (lambda: made("Pong", kwargs={"obs_type": "ram"}), UsageError, "shows grey pictures"),
        (lambda: made("Pong", kwargs={"nodes": 1}), UsageError, "takes no argument 'nodes'; did you mean 'mode'"),
        (lambda: made("Pong", kwargs={"game": "breakout"}), UsageError, "set model_name instead"),
        (lambda: made("Pong", kwargs={"mode": 99}), UsageError, "a mode that pong has, found 99; write one of 0, 1"),
        (lambda: made("Pong", kwargs={"mode": "hard"}), UsageError, "an integer from 0 as 'mode', found 'hard'"),
        (lambda: made("Pong", kwargs={"difficulty": 7}), UsageError, "a difficulty that pong has, found 7; write one"),
        (lambda: made("Pong", kwargs={"full_action_space": "no"}), UsageError, "true or false as 'full_action_space'"),
        (
            lambda: made("Pong", kwargs={"max_num_frames_per_episode": -3}),
            UsageError,
            "an integer from 0 as 'max_num_frames_per_episode', found -3",
        ),
        (
            lambda: made("Pong", ATARI),
            ConfigError,
            "/env/wrappers/1/type: expected Atari.* as the innermost",
        ),
        (lambda: make_env(EnvConfig("CartPole-v1", wrappers=(ATARI,))), UsageError, "found 'CartPole-v1'; leave"),
    ],
    ids="frameskip sticky noop ram unknown game mode type difficulty actions frames twice cartpole".split(),
)
def test_what_the_preprocessing_cannot_take_is_told_in_one_line(
    make: Callable[[], Any], kind: type[DigideepError], found: str
) -> None:
    with pytest.raises(kind, match=found) as caught:
        make()

    assert "\n" not in str(caught.value)


def test_a_picture_in_colours_can_be_drawn() -> None:
    env = make_env(EnvConfig("ALE/Pong-v5", wrappers=(ATARI, STACK)), render_mode="rgb_array")
    env.reset(seed=1)

    picture: Any = env.render()

    assert picture.shape == (210, 160, 3)
    assert env.unwrapped.get_action_meanings()[:2] == ["NOOP", "FIRE"]  # type: ignore[attr-defined]
