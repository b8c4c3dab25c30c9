"""The wrappers of the configuration around vector environments: numpy, or built in, with what single ones give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes_native import ALLOWED, COUNTING, copied, env_config, explorer, started

from digideep.environment.vec.native import NativeVecEnv
from digideep.environment.vec.native_atari import atari_options, with_ale, with_envpool
from digideep.environment.wrappers.config import (
    AtariPreprocessingConfig,
    ClipRewardConfig,
    FrameStackConfig,
    MaskObservationConfig,
    SignRewardConfig,
    WrapperConfig,
)
from digideep.errors import SpaceError, UsageError
from digideep.testing import CountingActor
from digideep.utility.node import node

ATARI = AtariPreprocessingConfig(noop_max=7, frame_skip=2, screen_size=42, terminal_on_life_loss=True, stickiness=0.25)


class Stacked(CountingActor):
    """Reads the newest of stacked observations."""

    def act(self, observations: Any, *args: Any, **kwargs: Any) -> Any:
        shown = observations["observation"]
        return super().act({"observation": shown[:, -1] if shown.ndim == 3 else shown}, *args, **kwargs)


@pytest.mark.parametrize(
    "wrappers",
    [
        [node(ClipRewardConfig, low=0.5, high=3.0)],
        [node(SignRewardConfig)],
        [node(FrameStackConfig, n=3)],
        [node(MaskObservationConfig, keep=[1, 0])],
        [node(FrameStackConfig, n=1), node(ClipRewardConfig, low=-2.0, high=2.5), node(SignRewardConfig)],
    ],
    ids=["clip", "sign", "stack", "mask", "several"],
)
def test_wrappers_give_the_bits_that_they_give_around_single_environments(wrappers: list[dict[str, Any]]) -> None:
    found: dict[str, Any] = {}
    for backend in ("single", "native"):
        sampler = explorer(
            "NativeCounting-v0",
            backend=backend,
            kwargs={"lengths": [1, 4, 2], "ends": "alternate"},
            env={"wrappers": tuple(wrappers)},
        )
        sampler.set_actors({"agent": Stacked(strict=False)})
        found[backend] = [copied(sampler.update()) for _ in range(3)], sampler.episodes(), sampler.spec
        sampler.close()

    assert found["native"][1:] == found["single"][1:]
    for chunk, expected in zip(found["native"][0], found["single"][0], strict=True):
        for key in expected:
            np.testing.assert_array_equal(chunk[key], expected[key], err_msg=key)


def test_stacked_frames_are_part_of_the_state() -> None:
    fields: Any = {"wrappers": (node(FrameStackConfig, n=3), node(ClipRewardConfig))}
    vec = started(COUNTING, kwargs={"lengths": [2], "check_actions": False}, **fields)
    vec.step(0)
    vec.step(1)  # the episodes are over now
    states = vec.states()
    vec.step(2)
    assert vec.slab is not None
    expected = vec.slab.observations["observation"][3].copy()
    vec.close()
    other = started(COUNTING, kwargs={"lengths": [2], "check_actions": False}, **fields)

    assert other.load_states(states) == {}
    other.step(2)
    assert other.slab is not None
    found = other.slab.observations["observation"][3]
    other.close()

    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found[0, :, 0], [3, 3, 3])  # the first observation of an episode fills all places


def test_states_of_other_wrappers_are_refused() -> None:
    stack = node(FrameStackConfig, n=3)
    vec = started(COUNTING, wrappers=(stack,))
    states = vec.states()
    vec.close()
    plain = started(COUNTING)
    fewer = started(COUNTING, wrappers=(node(FrameStackConfig, n=2),))

    told = [vec.load_states(states)[0] for vec in (plain, fewer)]
    for vec in (plain, fewer):
        vec.close()

    assert "expected the layers [], found ['_Stack']" in told[0]
    assert "FrameStack: expected frames (3, 2, 2) of float32, found another" in told[1]


def test_a_wrapper_without_a_vector_form_is_named() -> None:
    wrappers = (node(OwnConfig),)

    with pytest.raises(UsageError, match="found that OwnConfig has no form for vector environments; use 'single'"):
        NativeVecEnv(env_config(COUNTING, wrappers=wrappers), num_envs=2, allowed=(*ALLOWED, __name__))


def test_what_cannot_be_stacked_is_one_line_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []
    monkeypatch.setattr("gymnasium.vector.SyncVectorEnv.close", lambda self: closed.append(self))

    with pytest.raises(SpaceError) as caught:
        NativeVecEnv(env_config("NativeNested-v0", wrappers=(node(FrameStackConfig),)), num_envs=2, allowed=ALLOWED)

    assert len(closed) == 1  # before `caught` lets go of it
    assert str(caught.value).startswith("FrameStack: expected observations that are one Box, found Dict")


class OwnConfig(WrapperConfig):
    """A user's."""


@pytest.mark.parametrize(
    ("configs", "stacks", "stack", "clips", "rest"),
    [
        ([ATARI], True, None, False, 0),
        ([ATARI, FrameStackConfig(n=4)], True, 4, False, 0),
        ([ATARI, FrameStackConfig(n=4), ClipRewardConfig()], False, None, False, 2),
        ([ATARI, ClipRewardConfig(), FrameStackConfig(n=4)], False, None, True, 1),
        ([ATARI, ClipRewardConfig(), FrameStackConfig(n=2)], True, 2, True, 0),
        ([ATARI, FrameStackConfig(n=2), SignRewardConfig(), FrameStackConfig(n=3)], True, 2, True, 1),
        ([ATARI, ClipRewardConfig(low=-2.0, high=2.0), FrameStackConfig(n=2)], True, None, False, 2),
    ],
)
def test_what_atari_environments_have_built_in_is_taken_from_the_wrappers(
    configs: list[WrapperConfig], stacks: bool, stack: int | None, clips: bool, rest: int
) -> None:
    options = atari_options(configs, stacks=stacks)

    assert options is not None
    assert (options.preprocessing, options.stack, options.clips, len(options.rest)) == (ATARI, stack, clips, rest)
    ale, pool = with_ale(options, num_threads=3), with_envpool(options)
    assert (ale["stack_num"], ale["reward_clipping"]) == (1, clips)
    assert (pool["stack_num"], pool["reward_clip"]) == (stack or 1, clips)
    assert (ale["noop_max"], ale["frameskip"], ale["img_height"], ale["img_width"]) == (7, 2, 42, 42)
    assert (ale["episodic_life"], ale["repeat_action_probability"], ale["num_threads"]) == (True, 0.25, 3)
    assert (pool["noop_max"], pool["frame_skip"], pool["img_height"], pool["img_width"]) == (7, 2, 42, 42)
    assert (pool["episodic_life"], pool["repeat_action_probability"]) == (True, 0.25)
    assert ale["use_fire_reset"] is pool["use_fire_reset"] is False


def test_without_preprocessing_nothing_is_built_in() -> None:
    assert atari_options([FrameStackConfig()], stacks=True) is None
    assert atari_options([], stacks=True) is None
