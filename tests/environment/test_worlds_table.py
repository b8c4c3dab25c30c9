"""The table of docs/environments.md that says whose state is saved and how: each row is what trying it gives."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import pytest
from gymnasium import spaces

from digideep.environment.check import main as check
from digideep.environment.config import EnvConfig
from digideep.environment.examine import state_difference
from digideep.environment.make import make_env
from digideep.environment.state import capture, obstacle
from digideep.environment.vec.native_forms import make_form
from digideep.environment.wrappers.config import AtariPreprocessingConfig, MiniGridConfig
from digideep.utility.node import node

PAGE = Path(__file__).resolve().parents[2] / "docs" / "environments.md"
HEAD = "| World | Example | Extra | State saved | By |"

ATARI = (node(AtariPreprocessingConfig),)
GRID = (node(MiniGridConfig),)


class World(NamedTuple):
    """A row: what it is called, what is tried, with which extra and packages, and how its example is written."""

    name: str
    id: str
    extra: str = ""
    packages: tuple[str, ...] = ()
    wrappers: tuple[Any, ...] = ()
    backend: str = "single"
    note: str = ""

    @property
    def config(self) -> EnvConfig:
        return EnvConfig(self.id, wrappers=self.wrappers)


class Kept(gymnasium.Env[Any, Any]):
    """An environment of a user that says nothing of its state."""

    observation_space = action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return int(action), 0.0, False, False, {}


WORLDS = [
    World("classic control", "CartPole-v1"),
    World("toy text", "FrozenLake-v1"),
    World("MuJoCo", "Ant-v5", "mujoco"),
    World("dm_control, its suite", "dm_control/cheetah-run-v0", "dm", ("shimmy", "dm_control")),
    World("dm_control, manipulation and locomotion", "dm_control/reach_site_features-v0", "dm", ("shimmy",)),
    World("Box2D", "LunarLander-v3", "box2d", ("Box2D",)),
    World("Atari", "ALE/Pong-v5", "atari", wrappers=ATARI, note="with `AtariPreprocessingConfig`"),
    World("Atari as it is", "ALE/Pong-v5", "atari"),
    World("MiniGrid", "MiniGrid-DoorKey-5x5-v0", "minigrid", ("minigrid",), GRID),
    World("MiniGrid that refers to things", "MiniGrid-Dynamic-Obstacles-5x5-v0", "minigrid", ("minigrid",), GRID),
    World("BabyAI", "BabyAI-GoToRedBall-v0", "minigrid", ("minigrid",), GRID),
    World("EnvPool", "CartPole-v1", "envpool", backend="envpool", note="with `backend=envpool`"),
    World("yours, with `get_state()` and `set_state(state)`", "digideep.testing:Toy-v0"),
    World("yours, without", "Kept-v0"),
]


@pytest.fixture(autouse=True)
def kept() -> Any:
    gymnasium.register("Kept-v0", Kept)
    yield
    del gymnasium.registry["Kept-v0"]


def way(env: gymnasium.Env[Any, Any]) -> str:
    """Return by what an environment was saved."""
    state = capture(env)
    assert state is not None
    innermost = state["layers"][-1]
    if "attributes" in innermost:
        return "its attributes"
    if "simulator" in innermost:
        return "the state of the simulator"
    if innermost["name"] == "ReplayRecorder":
        return "what stands in the grid" if "data" in innermost["own"] else "the episode, walked again"
    return "its `get_state()`"


def tried(world: World) -> tuple[str, str]:
    """Return whether the state of a world is saved, and by what."""
    if world.backend != "single":
        form = make_form(world.config, num_envs=1, backend="envpool")
        form.close()
        return ("no" if form.obstacle else "yes", "")
    env = make_env(world.config)
    try:
        if obstacle(env):
            return "no", ""
        env.reset(seed=1)
        found = way(env)
    finally:
        env.close()
    difference = state_difference(lambda: make_env(world.config), steps=20)
    assert difference == ""
    return "yes", found


def row(world: World) -> str:
    saved, by = tried(world)
    example = "" if world.id == "Kept-v0" else " ".join(filter(None, [f"`{world.id}`", world.note]))
    extra = f"`{world.extra}`" if world.extra else ""
    return re.sub(r" +", " ", f"| {world.name} | {example} | {extra} | {saved} | {by} |")


def on_page() -> list[str]:
    lines = PAGE.read_text("utf-8").splitlines()
    first = lines.index(HEAD) + 2
    rows = []
    for text in lines[first:]:
        if not text.startswith("|"):
            break
        rows.append(text)
    return rows


def test_the_page_has_a_row_for_each_world() -> None:
    assert [text.split("|")[1].strip() for text in on_page()] == [world.name for world in WORLDS]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_row_of_the_page_is_what_trying_gives(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for package in world.packages:
        pytest.importorskip(package)

    with caplog.at_level(logging.ERROR):
        found = row(world)

    assert found == on_page()[WORLDS.index(world)]


EXAMINED = ("MuJoCo", "MiniGrid", "yours, without")


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(world, id=world.name, marks=[] if world.name in EXAMINED else pytest.mark.nightly)
        for world in WORLDS
        if world.backend == "single"
    ],
)
def test_a_world_can_be_examined_from_the_command_line(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for package in world.packages:
        pytest.importorskip(package)

    code = check(["--model", world.id, "--wrappers", json.dumps(world.wrappers)])

    lines = capsys.readouterr().out.splitlines()
    saved = on_page()[WORLDS.index(world)].split("|")[4].strip()
    assert (code, lines[0], lines[-2]) == (0, world.id, "same seed    same episode")
    assert lines[-1].startswith(
        "state        saved, restored to the same course" if saved == "yes" else "state        not saved, resume starts"
    )
