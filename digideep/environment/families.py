"""Which installed packages bring which environments, and how one that is missing is told."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec as Registration

from digideep.errors import MissingExtraError, one_line
from digideep.utility.imports import is_allowed, top_level

__all__ = [
    "Family",
    "family_of_id",
    "family_of_module",
    "family_of_registration",
    "is_lacking",
    "lacks_a_package",
    "missing_extra",
    "modern_id",
    "names_a_module",
]


class Family(NamedTuple):
    """Environments that one extra brings.

    Attributes:
        extra: of digideep.
        modules: where they are made, and what somebody may name for them.
        packages: what has to be installed.
        ids: what the ids begin with that importing the first package registers, as a regular expression.
    """

    extra: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    ids: str = ""


# Games whose ids were without a namespace once: Pong-v4, PongNoFrameskip-v4.
_GAMES = (
    "Adventure AirRaid Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk Bowling "
    "Boxing Breakout Carnival Centipede ChopperCommand CrazyClimber Defender DemonAttack DoubleDunk ElevatorAction "
    "Enduro FishingDerby Freeway Frostbite Gopher Gravitar Hero IceHockey Jamesbond JourneyEscape Kangaroo Krull "
    "KungFuMaster MontezumaRevenge MsPacman NameThisGame Phoenix Pitfall Pong Pooyan PrivateEye Qbert Riverraid "
    "RoadRunner Robotank Seaquest Skiing Solaris SpaceInvaders StarGunner Tennis TimePilot Tutankham UpNDown Venture "
    "VideoPinball WizardOfWor YarsRevenge Zaxxon"
).split()
_OLD_GAME = re.compile(rf"({'|'.join(_GAMES)})(-ram)?(NoFrameskip|Deterministic)?(-v\d+)?")

_FAMILIES = (
    Family("atari", ("ale_py",), ("ale_py",), rf"ALE/|{_OLD_GAME.pattern}$"),
    Family("dm", ("shimmy",), ("shimmy", "dm_control", "mujoco"), "dm_control/"),
    Family("minigrid", ("minigrid",), ("minigrid",), "MiniGrid-|BabyAI-"),
    Family("box2d", ("gymnasium.envs.box2d", "Box2D"), ("Box2D",)),
    Family("mujoco", ("gymnasium.envs.mujoco", "mujoco"), ("mujoco",)),
    Family("envpool", ("envpool",), ("envpool",)),
)


def family_of_id(name: str) -> Family | None:
    """Return the family whose first package registers an id; None where none does."""
    return next((family for family in _FAMILIES if family.ids and re.match(family.ids, name)), None)


def family_of_module(module: str) -> Family | None:
    """Return the family that a module belongs to; None where no extra brings it."""
    return next((family for family in _FAMILIES if is_allowed(module, family.modules)), None)


def family_of_registration(registered: Registration) -> Family | None:
    """Return the family of an environment by where it is made; None where no extra brings it."""
    entry = registered.entry_point
    if isinstance(entry, str):
        return family_of_module(entry.partition(":")[0])
    return family_of_module(str(getattr(getattr(entry, "func", entry), "__module__", "")))


def modern_id(name: str) -> str | None:
    """Return the id of today of a game that had one without a namespace; None for all other ids."""
    found = _OLD_GAME.fullmatch(name)
    return None if found is None else f"ALE/{found[1]}-v5"


def is_lacking(error: BaseException | None) -> bool:
    """Whether an error is one of a package that is not installed, or does not go with another one."""
    return isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled)


def lacks_a_package(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, is one of a package that is not installed."""
    return any(is_lacking(one) for one in _chain(error))


def names_a_module(error: BaseException | None) -> bool:
    """Whether an error says, or was raised since, a module is not installed."""
    return any(isinstance(one, ModuleNotFoundError) and one.name for one in _chain(error))


def missing_extra(name: str, family: Family, *, where: str, error: BaseException | None = None) -> MissingExtraError:
    """Return the error that names the extra which brings an environment.

    Args:
        name: what the user wrote.
        family: of the environment.
        where: path of the setting.
        error: what was raised without the package; None where nothing was.
    """
    hint = f'pip install "digideep[{family.extra}]"'
    lacking = next((one.name for one in _chain(error) if isinstance(one, ModuleNotFoundError) and one.name), None)
    if lacking is None:
        lacking = next((package for package in family.packages if not _is_installed(package)), None)
    if lacking is None:
        found = one_line(error, limit=300) if error is not None else "that it is not registered"
        return MissingExtraError(f"{where}: expected packages that bring {name!r}, found {found}; {hint}")
    lacking = top_level(lacking)
    return MissingExtraError(
        f"{where}: expected that {lacking} is installed, found that {name!r} needs {lacking}, which is not installed; "
        f"{hint}"
    )


def _is_installed(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is not None
    return find_spec(package) is not None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
