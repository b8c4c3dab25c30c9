"""Configuration of A2C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from digideep.agent.rollout.config import RolloutConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["A2CConfig"]


@dataclass(frozen=True)
class A2CConfig(RolloutConfig):
    """Advantage actor-critic: one gradient step on each whole chunk."""

    builds: ClassVar[str] = "digideep.agent.a2c.agent:A2CAgent"

    gae_lambda: float = setting(
        1.0, "1 is the return of all steps to the chunk's end, 0 one-step TD", low=0.0, high=1.0
    )
    lr: float = setting(7e-4, "learning rate at frame 0", low=0.0, high=FLOAT32_LIMIT)
    normalize_advantage: bool = setting(False, "whether advantages of a chunk get mean 0 and variance 1")
    optimizer: Literal["rmsprop", "adam"] = setting("rmsprop", "what takes the gradient steps")
    optimizer_eps: float = setting(1e-5, "epsilon of the optimiser, added to a root", low=1e-30, high=FLOAT32_LIMIT)
    rmsprop_alpha: float = setting(0.99, "share of RMSprop's mean square that a step keeps", low=0.0, high=0.9999)
