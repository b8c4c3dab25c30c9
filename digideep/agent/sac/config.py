"""Configuration of SAC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from digideep.agent.continuous.config import ContinuousConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["SACConfig"]


@dataclass(frozen=True)
class SACConfig(ContinuousConfig):
    """Soft actor-critic with twin critics; `lr` is the policy's."""

    builds: ClassVar[str] = "digideep.agent.sac.agent:SACAgent"

    temperature_lr: float | None = setting(
        None, "learning rate of the temperature at frame 0; null: lr", low=0.0, high=FLOAT32_LIMIT
    )
    temperature: float = setting(1.0, "weight of the entropy at the beginning", above=0.0, high=FLOAT32_LIMIT)
    learn_temperature: bool = setting(True, "whether the temperature is moved so that the entropy meets its target")
    target_entropy: float | None = setting(
        None, "entropy aimed at; null: minus the number of action elements", low=-FLOAT32_LIMIT, high=FLOAT32_LIMIT
    )
