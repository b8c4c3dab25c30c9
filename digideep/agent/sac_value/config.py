"""Configuration of SAC with a value network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from digideep.agent.continuous.config import ContinuousConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["SACValueConfig"]


@dataclass(frozen=True)
class SACValueConfig(ContinuousConfig):
    """Soft actor-critic with a value network and a fixed temperature; `lr` is the policy's."""

    builds: ClassVar[str] = "digideep.agent.sac_value.agent:SACValueAgent"

    reward_scale: float = setting(
        1.0,
        "by which rewards are multiplied, since the weight of the entropy is 1: the more, the less random",
        above=0.0,
        high=FLOAT32_LIMIT,
    )
