"""Configurations of the wrappers that may stand at `/env/wrappers`: plain numbers, which every back end can read.

Each names the wrapper it builds, a class that is made as `cls(env, config)`. What is here means the same whether
wrappers are put around single environments or the whole is done by an environment that is vectorised already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from digideep.errors import ConfigError
from digideep.utility.node import Config, setting

__all__ = [
    "AtariPreprocessingConfig",
    "ClipRewardConfig",
    "FrameStackConfig",
    "MaskObservationConfig",
    "MiniGridConfig",
    "SignRewardConfig",
    "WrapperConfig",
]


@dataclass(frozen=True)
class WrapperConfig(Config):
    """What stands in the list `/env/wrappers`; a user's own wrapper has a configuration derived from it."""


@dataclass(frozen=True)
class AtariPreprocessingConfig(WrapperConfig):
    """Atari frames as networks take them: grey, the greater of the last two, resized; innermost, for ids of ale-py.

    It replaces the frame skip and the stickiness that an id was registered with.
    Sources: Mnih et al. 2015, Nature 518, methods; Machado et al. 2018, arXiv:1709.06009, section 5.
    """

    builds: ClassVar[str] = "digideep.environment.atari:AtariEnv"

    noop_max: int = setting(30, "a game begins with 1 to so many steps of no action; 0: none", unit="frames", low=0)
    frame_skip: int = setting(4, "frames that each action lasts", unit="frames", low=1, high=1000)
    screen_size: int = setting(84, "height and width of an observation", unit="pixels", low=1, high=1024)
    terminal_on_life_loss: bool = setting(False, "whether a lost life ends the episode; the game goes on in the next")
    stickiness: float = setting(0.0, "probability that a frame repeats the action of the one before", low=0.0, high=1.0)


@dataclass(frozen=True)
class FrameStackConfig(WrapperConfig):
    """The last `n` observations as one, the newest last; an episode's first one fills all places."""

    builds: ClassVar[str] = "digideep.environment.wrappers.frame_stack:FrameStack"

    n: int = setting(4, "observations in a stack", unit="steps", low=1, high=256)


@dataclass(frozen=True)
class ClipRewardConfig(WrapperConfig):
    """Rewards cut at two bounds."""

    builds: ClassVar[str] = "digideep.environment.wrappers.reward:ClipReward"

    low: float = setting(-1.0, "lower bound")
    high: float = setting(1.0, "upper bound")

    def __post_init__(self) -> None:
        """Check that the bounds leave something between them."""
        super().__post_init__()
        if self.low >= self.high:
            raise ConfigError(
                f"ClipRewardConfig/high: expected more than low, which is {self.low}, found {self.high}; raise it"
            )


@dataclass(frozen=True)
class MiniGridConfig(WrapperConfig):
    """A grid world of minigrid as numbers: its cells, without the text of the mission.

    Each cell is a kind of thing, a colour and a state. As bits it has 11 + 6 + 4 of them, of which each group has one
    that is 1; as codes it has three bytes, the numbers of minigrid itself, which say little to a network.
    Source: Chevalier-Boisvert et al. 2023, arXiv:2306.13831.
    """

    builds: ClassVar[str] = "digideep.environment.wrappers.minigrid:MiniGridView"

    view: Literal["partial", "full"] = setting("partial", "what the agent sees before it, or the whole grid from above")
    cells: Literal["bits", "codes"] = setting("bits", "one bit for each kind, colour and state, or minigrid's numbers")
    direction: bool = setting(False, "whether the direction the agent looks in is shown beside the grid")


@dataclass(frozen=True)
class MaskObservationConfig(WrapperConfig):
    """Some elements of a flat observation, the others hidden: positions without velocities, for policies with memory.

    Source: Wierstra et al. 2010, "Recurrent policy gradients", where a pole is balanced without its velocities.
    """

    builds: ClassVar[str] = "digideep.environment.wrappers.observation:MaskObservation"

    keep: tuple[int, ...] = setting((0,), "places of the elements that are shown, in that order", low=0)

    def __post_init__(self) -> None:
        """Check that something is left."""
        super().__post_init__()
        if not self.keep:
            raise ConfigError("MaskObservationConfig/keep: expected at least one place, found []; name one")


@dataclass(frozen=True)
class SignRewardConfig(WrapperConfig):
    """The sign of each reward: -1, 0 or 1."""

    builds: ClassVar[str] = "digideep.environment.wrappers.reward:SignReward"
