"""What the configurations of all methods with a policy and critics of real actions have in common."""

from __future__ import annotations

from dataclasses import dataclass

from digideep.agent.replay.config import ReplayConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["ContinuousConfig"]


@dataclass(frozen=True)
class ContinuousConfig(ReplayConfig):
    """A policy, critics, and targets that follow some of them; `lr` is the policy's."""

    critic_lr: float | None = setting(
        None, "learning rate of the critics, and of a value function, at frame 0; null: lr", low=0.0, high=FLOAT32_LIMIT
    )
    tau: float = setting(0.005, "share of the distance that targets move at each step", above=0.0, high=1.0)
