"""Grid worlds: what networks see of them, and their state as data or by replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Ended
from gymnasium import spaces

from digideep.environment.check import main as check
from digideep.environment.config import EnvConfig
from digideep.environment.examine import seed_difference, state_difference
from digideep.environment.make import make_env
from digideep.environment.state import capture, restore
from digideep.environment.wrappers.config import MiniGridConfig
from digideep.errors import CheckpointError, SpaceError
from digideep.utility.codec import decode, encode
from digideep.utility.node import node

pytest.importorskip("minigrid")


def made(name: str = "Empty-5x5", *, kwargs: dict[str, Any] | None = None, **fields: Any) -> Any:
    return make_env(
        EnvConfig(f"MiniGrid-{name}-v0", env_kwargs=kwargs or {}, wrappers=(node(MiniGridConfig, **fields),))
    )


def test_cells_are_bits_of_kind_colour_and_state() -> None:
    codes, bits = made(cells="codes"), made(cells="bits")
    code, bit = codes.reset(seed=1)[0], bits.reset(seed=1)[0]

    assert codes.observation_space == spaces.Box(0, 255, (7, 7, 3), np.uint8)
    assert bits.observation_space == spaces.MultiBinary([7, 7, 21])
    assert (bit.dtype, bit.shape) == (np.int8, (7, 7, 21))
    assert np.array_equal(bit[..., :11].argmax(-1), code[..., 0])
    assert np.array_equal(bit[..., 11:17].argmax(-1), code[..., 1])
    assert np.array_equal(bit[..., 17:].argmax(-1), code[..., 2])
    assert bit.sum() == 7 * 7 * 3


def test_the_whole_grid_shows_the_agent_and_where_it_looks() -> None:
    env = made(view="full", cells="codes")
    shown = env.reset(seed=1)[0]
    turned = env.step(1)[0]

    assert env.observation_space.shape == shown.shape == (5, 5, 3)
    assert shown[1, 1].tolist() == [10, 0, 0]
    assert turned[1, 1].tolist() == [10, 0, 1]
    assert shown[3, 3].tolist() == [8, 1, 0]


def test_the_direction_stands_beside_the_grid() -> None:
    env = made(direction=True)
    observation, _ = env.reset(seed=1)

    assert list(env.observation_space.spaces) == ["direction", "image"]
    assert observation["direction"] == 0
    assert env.step(0)[0]["direction"] == 3


def test_the_view_is_as_large_as_was_asked_for() -> None:
    assert made(kwargs={"agent_view_size": 5}).reset(seed=1)[0].shape == (5, 5, 21)


def test_only_grid_worlds_can_be_shown_so() -> None:
    with pytest.raises(SpaceError, match="MiniGridConfig: expected a grid world of minigrid below it"):
        make_env(EnvConfig("CartPole-v1", wrappers=(node(MiniGridConfig),)))


def test_without_the_wrapper_one_line_says_which_to_add(capsys: pytest.CaptureFixture[str]) -> None:
    code = check(["--model", "MiniGrid-Empty-5x5-v0"])

    assert code == 2
    assert capsys.readouterr().err == (
        "digideep: error: MiniGrid-Empty-5x5-v0: observation space: expected Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple of these, found MissionSpace in 'mission'; "
        'add {"type": "digideep.environment.wrappers.config:MiniGridConfig"} to /env/wrappers, which shows the grid '
        "without its text\n"
    )


AS_DATA = ["DoorKey-6x6", "Fetch-5x5-N2", "MemoryS7", "LavaGapS5"]
BY_REPLAY = ["Dynamic-Obstacles-Random-5x5", "KeyCorridorS3R1", "MultiRoom-N2-S4"]
MORE = [
    "BlockedUnlockPickup", "Empty-Random-6x6", "FourRooms", "GoToDoor-5x5", "GoToObject-6x6-N2", "LavaCrossingS9N1",
    "LockedRoom", "ObstructedMaze-1Dlhb", "Playground", "PutNear-6x6-N2", "RedBlueDoors-6x6", "SimpleCrossingS9N1",
    "Unlock", "UnlockPickup", "DistShift1",
]  # fmt: skip


@pytest.mark.parametrize(
    "name", [*AS_DATA, *BY_REPLAY, *(pytest.param(name, marks=pytest.mark.nightly) for name in MORE)]
)
def test_a_grid_world_goes_on_to_the_same_bits(name: str) -> None:
    def make() -> Any:
        return made(name, view="full", direction=True, kwargs={"max_steps": 40})

    assert seed_difference(make, steps=60) == ""
    assert state_difference(make, steps=40) == ""


@pytest.mark.parametrize(("names", "key"), [(AS_DATA, "data"), (BY_REPLAY, "actions")])
def test_what_refers_to_things_in_the_grid_is_walked_again(names: list[str], key: str) -> None:
    for name in names:
        env = made(name)
        env.reset(seed=1)
        env.step(2)
        state = capture(env)
        assert state is not None
        assert key in state["layers"][-1]["own"], name


def test_what_is_carried_and_what_lies_in_a_box_come_back() -> None:
    from minigrid.core.world_object import Ball, Box, Door, Key

    env, fresh = made("DoorKey-6x6"), made("DoorKey-6x6")
    env.reset(seed=1)
    world = env.unwrapped
    world.carrying = Box("purple", contains=Key("red"))
    world.grid.set(2, 2, Box("green", contains=Box("blue", contains=Ball("grey"))))
    world.grid.set(3, 2, Door("yellow", is_open=True))
    world.put_obj(Ball("red"), 3, 3)
    state = capture(env)

    restore(fresh, decode(*encode(state)))

    there = fresh.unwrapped
    assert (there.carrying.color, there.carrying.contains.type, there.carrying.contains.color) == (
        "purple", "key", "red",
    )  # fmt: skip
    inner = there.grid.get(2, 2).contains.contains
    assert (type(inner), inner.color) == (Ball, "grey")
    assert (there.grid.get(3, 2).is_open, there.grid.get(3, 2).color) == (True, "yellow")
    assert tuple(there.grid.get(3, 3).cur_pos) == (3, 3)
    assert there.grid.encode().tolist() == world.grid.encode().tolist()


def test_a_thing_in_two_cells_is_no_data() -> None:
    env = made("DoorKey-6x6")
    env.reset(seed=1)
    grid = env.unwrapped.grid
    grid.set(2, 2, grid.get(0, 0))

    state = capture(env)

    assert state is not None
    assert "actions" in state["layers"][-1]["own"]


@pytest.mark.parametrize(("key", "value"), [("cells", [0]), ("kinds", [{"kind": "__loader__"}]), ("size", (2, 2))])
def test_malformed_grids_are_refused(key: str, value: Any) -> None:
    env = made()
    env.reset(seed=1)
    state: Any = capture(env)
    state["layers"][-1]["own"]["data"][key] = value

    with pytest.raises(CheckpointError):
        restore(made(), state)


@pytest.mark.nightly
def test_a_training_on_a_grid_world_resumes_to_the_bit(digideep: Callable[..., Ended], tmp_path: Path) -> None:
    wrapper = '[{"type": "digideep.environment.wrappers.config:MiniGridConfig", "direction": true}]'

    ended = digideep(
        "--params", "digideep.params.cartpole_ppo", "--session-path", str(tmp_path), "--check-resume", "1", "--set",
        "model_name=MiniGrid-DoorKey-5x5-v0", f"wrappers={wrapper}", "num_envs=2", "n_steps=16", "minibatch_size=16",
        "epoch_size=2", "test_activate=false",
    )  # fmt: skip

    assert ended.code == 0
