"""What the wrappers of Atari games are called by vector environments that have them built in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from digideep.environment.wrappers.config import (
    AtariPreprocessingConfig,
    ClipRewardConfig,
    FrameStackConfig,
    SignRewardConfig,
    WrapperConfig,
)

__all__ = ["AtariOptions", "atari_options", "with_ale", "with_envpool"]


class AtariOptions(NamedTuple):
    """What a vector environment of Atari games does by itself.

    Attributes:
        preprocessing: of each game.
        stack: pictures in an observation; None: one, which is no stack.
        clips: whether rewards are cut at -1 and 1.
        rest: wrappers that it does not do, innermost first.
    """

    preprocessing: AtariPreprocessingConfig
    stack: int | None
    clips: bool
    rest: list[WrapperConfig]


def atari_options(configs: Sequence[WrapperConfig], *, stacks: bool) -> AtariOptions | None:
    """Return what of these wrappers is built in; None without preprocessing, which vector environments always do.

    Args:
        configs: of `/env/wrappers`.
        stacks: whether the first picture of an episode fills a whole stack there, as it has to.
    """
    if not configs or not isinstance(configs[0], AtariPreprocessingConfig):
        return None
    preprocessing, rest = configs[0], list(configs[1:])
    stack, clips = None, False
    while rest:
        config = rest[0]
        if stacks and stack is None and isinstance(config, FrameStackConfig):
            stack = config.n
        elif not clips and _cuts_at_one(config):
            clips = True
        else:
            break
        rest.pop(0)
    return AtariOptions(preprocessing, stack, clips, rest)


def with_ale(options: AtariOptions, *, num_threads: int) -> dict[str, Any]:
    """Return the arguments of ale-py's `AtariVectorEnv`, whose stacks begin with black pictures: it gets none."""
    atari = options.preprocessing
    return {
        "frameskip": atari.frame_skip,
        "repeat_action_probability": atari.stickiness,
        "img_height": atari.screen_size,
        "img_width": atari.screen_size,
        "noop_max": atari.noop_max,
        "episodic_life": atari.terminal_on_life_loss,
        "stack_num": 1,
        "reward_clipping": options.clips,
        "use_fire_reset": False,
        "num_threads": num_threads,
    }


def with_envpool(options: AtariOptions) -> dict[str, Any]:
    """Return the arguments of EnvPool's Atari games."""
    atari = options.preprocessing
    return {
        "frame_skip": atari.frame_skip,
        "repeat_action_probability": atari.stickiness,
        "img_height": atari.screen_size,
        "img_width": atari.screen_size,
        "noop_max": atari.noop_max,
        "episodic_life": atari.terminal_on_life_loss,
        "stack_num": options.stack or 1,
        "reward_clip": options.clips,
        "use_fire_reset": False,
    }


def _cuts_at_one(config: WrapperConfig) -> bool:
    # Rewards of these games are whole numbers, of which the sign is what clipping leaves.
    if isinstance(config, ClipRewardConfig):
        return (config.low, config.high) == (-1.0, 1.0)
    return isinstance(config, SignRewardConfig)
