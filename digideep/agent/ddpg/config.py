"""Configuration of DDPG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

from digideep.agent.continuous.config import ContinuousConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["DDPGConfig"]


@dataclass(frozen=True)
class DDPGConfig(ContinuousConfig):
    """Deep deterministic policy gradient; `lr` is the policy's."""

    builds: ClassVar[str] = "digideep.agent.ddpg.agent:DDPGAgent"

    schedules: ClassVar[Mapping[str, str]] = MappingProxyType(
        {**ContinuousConfig.schedules, "noise_scale_final": "noise_horizon"}
    )

    noise: Literal["normal", "ornstein_uhlenbeck"] = setting(
        "ornstein_uhlenbeck", "added to actions after the warm-up: new at each step, or one that wanders"
    )
    noise_scale: float = setting(
        0.2,
        "deviation of what is new in the noise at a step, in units of half the action's range",
        low=0.0,
        high=FLOAT32_LIMIT,
    )
    noise_scale_final: float | None = setting(
        None, "deviation at the horizon; null: constant", low=0.0, high=FLOAT32_LIMIT
    )
    noise_horizon: int = setting(0, "over which the deviation moves, after the warm-up", unit="rows", low=0)
    critic_weight_decay: float = setting(
        0.0, "weight of half the squared norm of the critics' parameters", low=0.0, high=FLOAT32_LIMIT
    )
    last_bound: float | None = setting(
        3e-3, "of the initial weights of last layers; null: as of other layers", above=0.0, high=FLOAT32_LIMIT
    )
