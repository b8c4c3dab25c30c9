"""Configurations of the wrappers that may stand at `/env/wrappers`: plain numbers, which every back end can read.

Each names the wrapper it builds, a class that is made as `cls(env, config)`. What is here means the same whether
wrappers are put around single environments or the whole is done by an environment that is vectorised already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from digideep.errors import ConfigError
from digideep.utility.node import Config, setting

__all__ = [
    "AtariPreprocessingConfig",
    "ClipRewardConfig",
    "FrameStackConfig",
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
class SignRewardConfig(WrapperConfig):
    """The sign of each reward: -1, 0 or 1."""

    builds: ClassVar[str] = "digideep.environment.wrappers.reward:SignReward"
