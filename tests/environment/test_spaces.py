from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from digideep.environment.spaces import ActionReader, ObservationWriter, action_slots, env_spec, sample_action
from digideep.errors import EnvironmentFailure, SpaceError
from digideep.spec import ArraySpec, EnvSpec
from digideep.utility.seeding import generator

NESTED = spaces.Dict(
    {
        "position": spaces.Box(-1.0, 1.0, (3,), np.float64),
        "camera": spaces.Dict({"right": spaces.Box(0, 255, (4, 4), np.uint8), "left": spaces.Discrete(5, start=10)}),
        "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([3, 4]))),
    }
)


class Shown(gymnasium.Env[Any, Any]):
    """An environment that has two spaces and nothing else."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action


def spec_of(observation: spaces.Space[Any], action: spaces.Space[Any] | None = None) -> EnvSpec:
    return env_spec(Shown(observation, spaces.Discrete(2) if action is None else action), id="Shown-v0")


def rows_of(spec: EnvSpec, *, num_envs: int = 2) -> dict[str, np.ndarray[Any, Any]]:
    return {slot: np.zeros((num_envs, *one.shape), one.dtype) for slot, one in spec.observations.items()}


def written(space: spaces.Space[Any], observation: Any) -> dict[str, np.ndarray[Any, Any]]:
    spec = spec_of(space)
    rows = rows_of(spec)
    ObservationWriter(space, spec).write(observation, rows, 1)
    return rows


def test_a_single_box_is_the_slot_observation_and_a_single_action_has_no_name() -> None:
    spec = spec_of(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(0.0, np.array([1.0, 2.0]), (2,), np.float64))

    assert spec.observations == {"observation": ArraySpec("box", (3,), "float32", (-1.0,), (1.0,))}
    assert spec.actions == {"": ArraySpec("box", (2,), "float32", (0.0,), (1.0, 2.0))}


def test_nested_spaces_become_slots_in_the_order_of_the_space() -> None:
    spec = spec_of(NESTED)

    assert list(spec.observations) == ["camera/left", "camera/right", "pair/0", "pair/1", "position"]
    assert spec.observations["position"].dtype == "float32"
    assert spec.observations["camera/right"] == ArraySpec("box", (4, 4), "uint8", (0.0,), (255.0,))
    assert spec.observations["camera/left"] == ArraySpec("discrete", (), "int64", n=(5,), start=10)
    assert spec.observations["pair/0"] == ArraySpec("multi_binary", (2,), "int8")
    assert spec.observations["pair/1"] == ArraySpec("multi_discrete", (2,), "int64", n=(3, 4))


def test_the_time_limit_is_part_of_the_spec() -> None:
    env = gymnasium.make("CartPole-v1", max_episode_steps=77)

    assert env_spec(env, id="CartPole-v1").max_episode_steps == 77


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (spaces.Text(5), "Text"),
        (spaces.Sequence(spaces.Discrete(2)), "Sequence"),
        (spaces.Graph(spaces.Discrete(2), None), "Graph"),
        (spaces.OneOf([spaces.Discrete(2)]), "OneOf"),
        (spaces.Dict({"a": spaces.Text(5)}), "Text.* in 'a'"),
        (spaces.Dict({}), "empty space"),
        (spaces.Tuple((spaces.Dict({}),)), "empty space"),
        (spaces.Dict({"a/b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}), "the name 'a/b'"),
        (spaces.MultiDiscrete([2, 2], start=[0, 1]), "one start"),
    ],
)
def test_a_space_that_fits_in_no_slot_is_refused_by_name(space: spaces.Space[Any], named: str) -> None:
    with pytest.raises(SpaceError, match=named):
        spec_of(space)
    with pytest.raises(SpaceError, match="Shown-v0: action space"):
        action_slots(space, id="Shown-v0")


def test_a_box_is_written_into_its_row_only() -> None:
    rows = written(spaces.Box(-1.0, 1.0, (2,), np.float32), np.array([0.5, -0.5], np.float32))

    assert rows["observation"].tolist() == [[0.0, 0.0], [0.5, -0.5]]


def test_double_precision_is_written_as_single() -> None:
    rows = written(spaces.Box(-1.0, 1.0, (1,), np.float64), np.array([0.1], np.float64))

    assert rows["observation"].dtype == np.float32
    assert rows["observation"][1, 0] == np.float32(0.1)


def test_a_nested_observation_is_written_slot_by_slot() -> None:
    observation = {
        "position": np.array([0.1, 0.2, 0.3]),
        "camera": {"right": np.full((4, 4), 7, np.uint8), "left": np.int64(12)},
        "pair": (np.array([1, 0], np.int8), np.array([2, 3])),
    }

    rows = written(NESTED, observation)

    assert rows["camera/left"].tolist() == [0, 2]
    assert rows["camera/right"][1].tolist() == [[7] * 4] * 4
    assert rows["pair/0"].tolist() == [[0, 0], [1, 0]]
    assert rows["pair/1"].tolist() == [[0, 0], [2, 3]]
    np.testing.assert_array_equal(rows["position"][1], np.array([0.1, 0.2, 0.3], np.float32))


@pytest.mark.parametrize("value", [3, np.int32(3), np.array(3)])
def test_a_discrete_observation_may_be_any_integer(value: object) -> None:
    assert written(spaces.Discrete(3, start=1), value)["observation"].tolist() == [0, 2]


def test_a_multi_discrete_observation_is_counted_from_zero() -> None:
    space = spaces.MultiDiscrete([3, 3], start=[5, 5])

    assert written(space, np.array([5, 7]))["observation"].tolist() == [[0, 0], [0, 2]]


def test_a_scalar_box_takes_a_number() -> None:
    space = spaces.Box(0.0, 1.0, (), np.float32)

    assert written(space, np.float32(0.5))["observation"].tolist() == [0.0, 0.5]
    assert written(space, 0.25)["observation"].tolist() == [0.0, 0.25]


BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
PAIR = spaces.Dict({"a": BOX, "b": spaces.Discrete(2)})


@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (BOX, np.zeros(3, np.float32), r"'/observations/observation': expected shape \(2,\) of float32, found \(3,\)"),
        (BOX, np.zeros((1, 2), np.float32), r"found \(1, 2\) of float32"),
        (BOX, np.zeros(2, np.float64), r"of float32, found \(2,\) of float64"),
        (BOX, [0.0, 0.0], r"expected a numpy array \(2,\) of float32, found list of 2"),
        (BOX, None, "found None"),
        (BOX, (np.zeros(2, np.float32), {}), "found tuple of 2"),
        (PAIR, np.zeros(2, np.float32), "expected a dict, found ndarray"),
        (PAIR, {"a": np.zeros(2, np.float32)}, r"expected the keys \['a', 'b'\], found \['a'\]"),
        (PAIR, {"a": np.zeros(3, np.float32), "b": 0}, r"'/observations/a': expected shape \(2,\)"),
        (PAIR, {"a": np.zeros(2, np.float32), "b": 2}, "'/observations/b': expected an integer from 0 to 1, found 2"),
        (PAIR, {"a": np.zeros(2, np.float32), "b": 0.0}, "'/observations/b': expected an integer, found float 0.0"),
        (spaces.Tuple((BOX, BOX)), (np.zeros(2, np.float32),), "expected a tuple of 2, found tuple of 1"),
        (spaces.MultiDiscrete([2, 2]), np.array([0, 2]), "expected values inside"),
    ],
)
def test_an_observation_that_was_not_declared_is_named(
    space: spaces.Space[Any], observation: Any, message: str
) -> None:
    with pytest.raises(EnvironmentFailure, match=message):
        written(space, observation)


def read(space: spaces.Space[Any], actions: dict[str, Any], transform: Any = "clip") -> list[Any]:
    spec = spec_of(BOX, space)
    arrays = {slot: np.asarray(value, spec.actions[slot].dtype) for slot, value in actions.items()}
    taken = ActionReader(space, spec, transform).batch(arrays)
    assert all(space.contains(action) for action in taken)
    return taken


def test_a_discrete_action_is_a_python_integer_with_the_start_added() -> None:
    actions = read(spaces.Discrete(3, start=4), {"": [0, 2]})

    assert actions == [4, 6]
    assert [type(action) for action in actions] == [int, int]


def test_a_box_action_has_the_dtype_of_the_space_and_is_clipped() -> None:
    first, second = read(spaces.Box(-1.0, 1.0, (2,), np.float64), {"": [[0.5, 3.0], [-2.0, 0.0]]})

    assert (first.dtype, first.tolist()) == (np.float64, [0.5, 1.0])
    assert second.tolist() == [-1.0, 0.0]


def test_a_box_of_integers_gets_the_nearest_integer_inside_it() -> None:
    (action,) = read(spaces.Box(0, 255, (4,), np.uint8), {"": [[-3.0, 1.6, 254.9, 1e9]]})

    assert (action.dtype, action.tolist()) == (np.uint8, [0, 2, 255, 255])


def test_an_unclipped_number_beyond_an_integer_is_its_limit() -> None:
    (action,) = read(spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64), {"": [[-1e30, 1e30]]}, "none")

    assert action.tolist() == [-(2**63), 2**63 - 1024]


def test_a_nested_action_comes_back_nested() -> None:
    space = spaces.Dict(
        {"move": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))), "aim": spaces.MultiDiscrete([3, 3])}
    )

    first, second = read(space, {"aim": [[0, 1], [2, 2]], "move/0": [0, 1], "move/1": [[0, 0], [1, 1]]})

    assert list(first) == ["aim", "move"]
    assert (first["aim"].tolist(), first["move"][0], first["move"][1].tolist()) == ([0, 1], 0, [0, 0])
    assert (second["aim"].tolist(), second["move"][0], second["move"][1].tolist()) == ([2, 2], 1, [1, 1])
    assert type(first["move"]) is tuple and first["move"][1].dtype == np.int8


def test_actions_are_no_views_of_the_slab() -> None:
    spec = spec_of(BOX, spaces.Box(-1.0, 1.0, (1,), np.float32))
    slab = {"": np.array([[0.5], [0.25]], np.float32)}

    for transform in ("clip", "none", "rescale"):
        (action, _) = ActionReader(spaces.Box(-1.0, 1.0, (1,), np.float32), spec, transform).batch(slab)  # type: ignore[arg-type]
        action[0] = 99.0

    assert slab[""].tolist() == [[0.5], [0.25]]


def test_one_environment_can_be_read_alone() -> None:
    spec = spec_of(BOX, spaces.Discrete(4))

    assert ActionReader(spaces.Discrete(4), spec).read({"": np.array([1, 2, 3])}, 2) == 3


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiBinary(3),
        spaces.Box(np.array([-1.0, 0.0, 0.0], np.float32), 1.0, (3,), np.float32),
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
        NESTED,
    ],
)
def test_random_actions_are_ones_the_space_contains(space: spaces.Space[Any]) -> None:
    spec = spec_of(BOX, space)
    rng = generator(0)

    actions = [ActionReader(space, spec).read(sample_action(spec.actions, rng), 0) for _ in range(20)]

    assert all(space.contains(action) for action in actions)


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_a_space_that_cannot_be_read_is_the_environments_failure(name: str) -> None:
    class Unset(gymnasium.Env[Any, Any]):
        observation_space = action_space = spaces.Discrete(2)

    def raising(env: Any) -> Any:
        raise AttributeError("set later")

    setattr(Unset, name, property(raising))

    with pytest.raises(EnvironmentFailure, match=f"^environment Unset-v0: expected the attribute {name}, found "):
        env_spec(Unset(), id="Unset-v0")
