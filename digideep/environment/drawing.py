"""Pictures of simulated worlds on machines without a display."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob

from gymnasium.envs.registration import EnvSpec as Registration

from digideep.environment.families import family_of_registration, lacks_a_package
from digideep.errors import EnvironmentFailure, MissingExtraError, one_line

__all__ = ["draw_without_display", "require_drawing", "what_draws_is_there"]

_CHOICE = "MUJOCO_GL"
_LIBRARIES = {"egl": "libEGL.so*", "osmesa": "libOSMesa.so*"}
_PLACES = "/lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /lib/*-linux-gnu /usr/lib/*-linux-gnu".split()
_DRAWN_BY_OPENGL = ("mujoco", "dm")


def draw_without_display() -> None:
    """Let MuJoCo draw into memory where there is no display, by the first library that is there.

    Whoever has set MUJOCO_GL has chosen.
    """
    if _CHOICE in os.environ or _has_display():
        return
    name = next((name for name, library in _LIBRARIES.items() if _is_there(library)), None)
    if name is not None:
        os.environ[_CHOICE] = name


def require_drawing(registered: Registration, render_mode: str) -> None:
    """Check that an environment which needs OpenGL for its pictures will find it.

    Raises:
        MissingExtraError: there is neither a display nor a library that draws without one.
    """
    family = family_of_registration(registered)
    if family is None or family.extra not in _DRAWN_BY_OPENGL or _has_display():
        return
    if render_mode == "human":
        raise MissingExtraError(
            f"--render: expected a display for the window of {registered.id}, found none; set DISPLAY, or use --record"
        )
    if _CHOICE not in os.environ:
        raise MissingExtraError(
            f"--record: expected a library that draws {registered.id} without a display, found neither libEGL nor "
            f"libOSMesa; install one of them (Debian: apt-get install libegl1), or set MUJOCO_GL"
        )


@contextmanager
def what_draws_is_there(render_mode: str | None) -> Iterator[None]:
    """Tell inside the block of a package that is not installed, and that pictures need, as of an extra.

    Args:
        render_mode: as Gymnasium has it; with None nothing is drawn.

    Raises:
        MissingExtraError: an environment failed for want of it.
    """
    try:
        yield
    except EnvironmentFailure as error:
        if render_mode is None or not lacks_a_package(error):
            raise
        option = "--render" if render_mode == "human" else "--record"
        raise MissingExtraError(
            f"{option}: expected all that draws the environment, found {one_line(error, limit=300)}; "
            f'pip install "digideep[video]"'
        ) from error


def _is_there(library: str) -> bool:
    """Whether the loader finds a library, by its usual places; nothing is loaded."""
    named = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    return any(glob(os.path.join(place, library)) for place in (*named, f"{sys.prefix}/lib", *_PLACES))


def _has_display() -> bool:
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
