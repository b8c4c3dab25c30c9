"""Observations of which a part is hidden, around single environments and around vector ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes_native import COUNTING, started
from gymnasium import spaces

from digideep.environment.config import EnvConfig
from digideep.environment.make import make_env
from digideep.environment.vec.native import NativeVecEnv
from digideep.environment.wrappers.config import MaskObservationConfig
from digideep.environment.wrappers.observation import shown_space
from digideep.errors import ConfigError, SpaceError
from digideep.utility.node import node


def wrappers(*keep: int) -> tuple[dict[str, Any], ...]:
    return (node(MaskObservationConfig, keep=list(keep)),)


def test_the_elements_that_are_kept_are_shown_in_their_order_with_their_bounds() -> None:
    whole = make_env(EnvConfig("CartPole-v1"))
    part = make_env(EnvConfig("CartPole-v1", wrappers=wrappers(2, 0)))

    seen, _ = whole.reset(seed=3)
    shown, _ = part.reset(seed=3)

    space = part.observation_space
    assert isinstance(space, spaces.Box) and isinstance(whole.observation_space, spaces.Box)
    np.testing.assert_array_equal(space.high, whole.observation_space.high[[2, 0]])
    for _ in range(5):
        np.testing.assert_array_equal(shown, seen[[2, 0]])
        assert space.contains(shown)
        seen, shown = whole.step(1)[0], part.step(1)[0]


def test_the_vector_form_of_a_cart_pole_is_still_exact_and_shows_no_velocity() -> None:
    whole = started("CartPole-v1", kwargs={})
    part = started("CartPole-v1", kwargs={}, wrappers=wrappers(0, 2))
    assert whole.slab is not None and part.slab is not None

    for vec in (whole, part):
        vec.step(0)
    states = part.states()
    part.step(1)
    expected = part.slab.observations["observation"][2].copy()
    other = started("CartPole-v1", kwargs={}, wrappers=wrappers(0, 2))
    assert other.load_states(states) == {}
    other.step(1)

    assert part.obstacle == ""
    np.testing.assert_array_equal(
        part.slab.observations["observation"][1], whole.slab.observations["observation"][1][:, [0, 2]]
    )
    assert other.slab is not None
    np.testing.assert_array_equal(other.slab.observations["observation"][2], expected)
    for vec in (whole, part, other):
        vec.close()


def test_what_cannot_be_kept_is_one_line() -> None:
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)

    with pytest.raises(SpaceError, match="MaskObservation: expected places below 2, found 4; change keep"):
        shown_space(box, MaskObservationConfig(keep=(0, 4)))
    with pytest.raises(SpaceError, match="expected observations that are one flat Box, found Discrete"):
        shown_space(spaces.Discrete(3), MaskObservationConfig())
    with pytest.raises(ConfigError, match=r"MaskObservationConfig/keep: expected at least one place, found \[\]"):
        MaskObservationConfig(keep=())
    with pytest.raises(SpaceError, match="expected places below 2, found 7"):
        NativeVecEnv(EnvConfig(COUNTING, wrappers=wrappers(7)), num_envs=2)
