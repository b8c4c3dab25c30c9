"""Plays that are recorded, on a machine without a display."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended

from digideep.environment import drawing
from digideep.environment.config import EnvConfig
from digideep.environment.make import make_env
from digideep.errors import MissingExtraError

STEPS = 3


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")  # so that it is what it was afterwards, also where the test sets it
        monkeypatch.delenv(name)


def played(digideep: Callable[..., Ended], place: Path, preset: str, *sets: str, code: int = 0) -> Ended:
    return digideep(
        "--params", f"digideep.params.{preset}", "--play", "--record", "--episodes", "1", "--session-path", str(place),
        "--set", f"/env/max_episode_steps={STEPS}", *sets, expect=code,
    )  # fmt: skip


def videos(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*.mp4") if path.stat().st_size > 500)


@pytest.mark.parametrize(
    ("preset", "model", "packages"),
    [
        ("pendulum_ppo", "HalfCheetah-v5", ()),
        ("atari_ppo", "ALE/Pong-v5", ()),
        ("cartpole_ppo", "LunarLander-v3", ("Box2D",)),
        ("pendulum_ppo", "dm_control/cartpole-swingup-v0", ("shimmy", "dm_control")),
    ],
)
def test_a_play_is_recorded_without_a_display(
    preset: str, model: str, packages: tuple[str, ...], digideep: Callable[..., Ended], tmp_path: Path, no_display: None
) -> None:
    for package in packages:
        pytest.importorskip(package)
    if model.startswith(("HalfCheetah", "dm_control")):
        drawing.draw_without_display()
        if "MUJOCO_GL" not in os.environ:
            pytest.skip("no library that draws without a display")

    ended = played(digideep, tmp_path, preset, f"model_name={model}")

    assert videos(tmp_path) == ["episode-0.mp4"]
    assert f"the videos are in {ended.out[0].removeprefix('evaluation: ')}/videos\n" in ended.err


def test_without_a_library_that_draws_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, no_display: None
) -> None:
    monkeypatch.setattr(drawing, "_LIBRARIES", {"egl": "libNoSuchThing.so*"})

    with pytest.raises(MissingExtraError) as caught:
        make_env(EnvConfig("HalfCheetah-v5"), render_mode="rgb_array")

    assert str(caught.value) == (
        "--record: expected a library that draws HalfCheetah-v5 without a display, found neither libEGL nor "
        "libOSMesa; install one of them (Debian: apt-get install libegl1), or set MUJOCO_GL"
    )


def test_a_window_needs_a_display(no_display: None) -> None:
    with pytest.raises(MissingExtraError, match="--render: expected a display for the window of HalfCheetah-v5"):
        make_env(EnvConfig("HalfCheetah-v5"), render_mode="human")


@pytest.mark.parametrize("option", ["--render", "--record"])
def test_a_play_without_the_package_that_draws_names_the_extra(
    option: str, command: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_display: None
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)

    ended = command(
        "--params", "digideep.params.cartpole_ppo", "--play", "--episodes", "1", option,
        "--session-path", str(tmp_path), expect=2,
    )  # fmt: skip

    line = ended.err.splitlines()[-1]
    assert line.startswith(f"digideep: error: {option}: expected all that draws the environment, found explorer/eval: ")
    assert line.endswith('; pip install "digideep[video]"')


@pytest.mark.parametrize(
    ("given", "there", "chosen"),
    [
        ({}, ("libEGL.so.1", "libOSMesa.so.8"), "egl"),
        ({}, ("libOSMesa.so.6",), "osmesa"),
        ({}, (), None),
        ({"MUJOCO_GL": "glfw"}, ("libEGL.so.1",), "glfw"),
        ({"DISPLAY": ":0"}, ("libEGL.so.1",), None),
    ],
)
def test_what_draws_is_the_first_that_is_there_unless_somebody_has_chosen(
    given: dict[str, str],
    there: tuple[str, ...],
    chosen: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_display: None,
) -> None:
    for library in there:
        (tmp_path / library).touch()
    monkeypatch.setattr(drawing, "_PLACES", [])
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    drawing.draw_without_display()

    assert os.environ.get("MUJOCO_GL") == chosen
