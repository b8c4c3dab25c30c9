"""Configuration of TD3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from digideep.agent.ddpg.config import DDPGConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["TD3Config"]


@dataclass(frozen=True)
class TD3Config(DDPGConfig):
    """Twin delayed DDPG: the lesser of two critics, smoothed target actions, and fewer steps of the policy."""

    builds: ClassVar[str] = "digideep.agent.td3.agent:TD3Agent"

    noise: Literal["normal", "ornstein_uhlenbeck"] = setting(
        "normal", "added to actions after the warm-up: new at each step, or one that wanders"
    )
    noise_scale: float = setting(
        0.1,
        "deviation of what is new in the noise at a step, in units of half the action's range",
        low=0.0,
        high=FLOAT32_LIMIT,
    )
    last_bound: float | None = setting(
        None, "of the initial weights of last layers; null: as of other layers", above=0.0, high=FLOAT32_LIMIT
    )
    policy_delay: int = setting(
        2, "steps of the critics for each of the policy and the targets", unit="gradient steps", low=1
    )
    target_noise: float = setting(0.2, "deviation of the noise on target actions", low=0.0, high=FLOAT32_LIMIT)
    target_noise_bound: float = setting(0.5, "of the noise on target actions", low=0.0, high=FLOAT32_LIMIT)
