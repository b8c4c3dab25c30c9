"""Configuration of PPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from digideep.agent.rollout.config import RolloutConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["PPOConfig", "RecurrentPPOConfig"]


@dataclass(frozen=True)
class PPOConfig(RolloutConfig):
    """Proximal policy optimisation with a clipped surrogate."""

    builds: ClassVar[str] = "digideep.agent.ppo.agent:PPOAgent"
    schedules: ClassVar[Mapping[str, str]] = MappingProxyType(
        {**RolloutConfig.schedules, "clip_param_final": "clip_param_horizon"}
    )

    clip_param: float = setting(
        0.2, "bound of the probability ratio's distance from 1 at frame 0", above=0.0, high=FLOAT32_LIMIT
    )
    clip_param_final: float | None = setting(
        None, "bound at the horizon; null: constant", above=0.0, high=FLOAT32_LIMIT
    )
    clip_param_horizon: int = setting(0, "over which clip_param moves", unit="frames", low=0)
    value_clip: float | None = setting(
        0.2, "bound of a value's distance from the one sampled; null: none", above=0.0, high=FLOAT32_LIMIT
    )
    target_kl: float | None = setting(
        None, "approximate KL beyond which an update ends early; null: never", above=0.0, high=FLOAT32_LIMIT
    )
    update_epochs: int = setting(4, "passes over each chunk", low=1)
    minibatch_size: int = setting(256, "rows of a gradient step", unit="rows", low=1)
    adam_eps: float = setting(1e-5, "epsilon of Adam", low=1e-30, high=FLOAT32_LIMIT)


@dataclass(frozen=True)
class RecurrentPPOConfig(PPOConfig):
    """PPO with a network that has a hidden state, learnt from sequences that begin with the state of acting.

    The steps of a chunk are a multiple of `sequence_length`, or fewer: then they are one sequence. A minibatch takes as
    many whole sequences as `minibatch_size` rows hold, and at least one.
    """

    builds: ClassVar[str] = "digideep.agent.ppo.recurrent:RecurrentPPOAgent"

    sequence_length: int = setting(16, "steps through which a gradient goes", unit="steps", low=1)
