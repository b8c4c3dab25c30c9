from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from digideep.environment.spaces import ActionReader, action_slots, sample_action
from digideep.environment.wrappers.action import Transform, spec_for_agent, to_environment
from digideep.errors import SpaceError
from digideep.spec import ArraySpec, EnvSpec
from digideep.utility.seeding import generator

BOX = ArraySpec("box", (2,), "float32", (-2.0, 0.0), (2.0, 10.0))
HALF_OPEN = ArraySpec("box", (1,), "float32", (0.0,), (float("inf"),))
COMMON_HIGH = ArraySpec("box", (3,), "float32", (-1.0, 0.0, 0.0), (1.0,))


def test_clip_cuts_at_the_bounds_and_leaves_the_raw_sample_alone() -> None:
    raw = np.array([[-3.0, 5.0], [1.5, 11.0], [2.5, -0.5]], np.float32)
    kept = raw.copy()

    actions = to_environment(raw, BOX, "clip")

    np.testing.assert_array_equal(actions, np.array([[-2.0, 5.0], [1.5, 10.0], [2.0, 0.0]], np.float32))
    np.testing.assert_array_equal(raw, kept)
    assert actions.dtype == np.float32


def test_rescale_maps_minus_one_to_the_lower_and_one_to_the_upper_bound() -> None:
    raw = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [0.5, -0.5]], np.float32)

    actions = to_environment(raw, BOX, "rescale")

    expected = np.array([[-2.0, 0.0], [0.0, 5.0], [2.0, 10.0], [1.0, 2.5]], np.float32)
    np.testing.assert_array_equal(actions, expected)


def test_rescale_cuts_at_minus_one_and_one_first() -> None:
    raw = np.array([[-7.0, 7.0]], np.float32)

    assert to_environment(raw, BOX, "rescale").tolist() == [[-2.0, 10.0]]


def test_what_the_agent_is_told_is_what_rescale_maps_from() -> None:
    # A normaliser that declared [0, 1] but mapped from [-1, 1] gave half of the actions only.
    told = spec_for_agent({"": BOX}, "rescale")[""]
    ends = np.array([np.broadcast_to(told.low, 2), np.broadcast_to(told.high, 2)], np.float32)

    assert (told.low, told.high) == ((-1.0,), (1.0,))
    assert to_environment(ends, BOX, "rescale").tolist() == [[-2.0, 0.0], [2.0, 10.0]]


def test_rescale_never_steps_over_a_bound_by_rounding() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        low, high = sorted(rng.normal(0.0, 10.0 ** rng.integers(-3, 4), 2).astype(np.float32).tolist())
        spec = ArraySpec("box", (1,), "float32", (low,), (high,))

        actions = to_environment(np.array([[-1.0], [1.0], [0.999999]], np.float32), spec, "rescale")

        assert (actions >= np.float32(low)).all() and (actions <= np.float32(high)).all()


def test_rescale_reaches_between_bounds_that_lie_further_apart_than_a_float_reaches() -> None:
    spec = ArraySpec("box", (2,), "float32", (-3e38, -1.0), (3e38, 1.0))
    raw = np.array([[-1.0, -1.0], [0.0, 0.0], [0.5, 0.5], [1.0, 1.0]], dtype=np.float32)

    scaled = to_environment(raw, spec, "rescale")

    np.testing.assert_allclose(scaled, np.float32([[-3e38, -1.0], [0.0, 0.0], [1.5e38, 0.5], [3e38, 1.0]]))


def test_F3_bounds_beyond_what_a_sample_can_be_give_no_infinite_action() -> None:
    spec = ArraySpec("box", (2,), "float32", (-1e308, -1.0), (1e308, 1e39))
    raw = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]], dtype=np.float32)
    largest = np.finfo(np.float32).max

    scaled, cut = (to_environment(raw, spec, transform) for transform in ("rescale", "clip"))

    np.testing.assert_allclose(scaled, np.float32([[-largest, -1.0], [0.0, largest / 2], [largest, largest]]))
    np.testing.assert_array_equal(cut, raw)


@pytest.mark.parametrize("transform", ["clip", "rescale"])
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-0.3, 0.3, (2,), np.float64),
        spaces.Box(np.array([0.1, -0.7]), np.array([0.3, 0.7]), dtype=np.float64),
        spaces.Box(0, 100_000_007, (2,), np.int64),
        spaces.Box(-100_000_007, 0, (2,), np.int32),
        spaces.Box(-0.3, 0.3, (2,), np.float16),
    ],
    ids=str,
)
def test_F3_bounds_that_32_bits_cannot_hold_are_kept_too(space: spaces.Box, transform: Transform) -> None:
    reader = ActionReader(space, EnvSpec("x", {}, action_slots(space, id="x")), transform)

    for raw in (-1e9, -1.0, 1.0, 1e9):
        assert space.contains(reader.read({"": np.full((1, 2), raw, np.float32)}, 0)), raw


def test_random_actions_between_the_largest_bounds_are_finite_numbers() -> None:
    for dtype in (np.float32, np.float64):
        space = spaces.Box(-np.finfo(dtype).max, np.finfo(dtype).max, (4,), dtype)

        (sample,) = sample_action(action_slots(space, id="x"), generator(1, "x")).values()

        assert np.isfinite(sample).all()
        assert len(np.unique(sample)) > 1


def test_none_changes_nothing_and_copies() -> None:
    raw = np.array([[-3.0, 50.0]], np.float32)

    actions = to_environment(raw, BOX, "none")
    actions[0, 0] = 0.0

    assert raw.tolist() == [[-3.0, 50.0]]


def test_a_bound_that_all_elements_share_goes_with_one_that_they_do_not() -> None:
    raw = np.array([[-5.0, -5.0, 5.0]], np.float32)

    assert to_environment(raw, COMMON_HIGH, "clip").tolist() == [[-1.0, 0.0, 1.0]]
    assert to_environment(raw, COMMON_HIGH, "rescale").tolist() == [[-1.0, 0.0, 1.0]]


def test_a_discrete_action_begins_where_the_environment_begins() -> None:
    spec = ArraySpec("discrete", (), "int64", n=(3,), start=-1)

    assert to_environment(np.array([0, 1, 2]), spec, "clip").tolist() == [-1, 0, 1]


def test_rescale_of_an_unbounded_box_is_refused_and_names_it() -> None:
    with pytest.raises(SpaceError, match=r"expected finite bounds for 'rescale'.*inf.*'arm'; use 'clip'"):
        spec_for_agent({"arm": HALF_OPEN}, "rescale")


def test_other_kinds_are_told_as_they_are() -> None:
    specs = {"a": ArraySpec("discrete", (), "int64", n=(3,)), "b": HALF_OPEN}

    assert spec_for_agent(specs, "clip") == specs
    assert spec_for_agent({"a": specs["a"]}, "rescale") == {"a": specs["a"]}
