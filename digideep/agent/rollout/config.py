"""What the configurations of methods have in common that learn from the newest chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from digideep.agent.config import AgentConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["LOG_STD_BOUND", "RolloutConfig"]

LOG_STD_BOUND = 20.0
"""Greatest distance from 0 of the logarithm of a deviation; far beyond it float32 has no such deviation."""


@dataclass(frozen=True)
class RolloutConfig(AgentConfig):
    """What every method has that learns from the newest chunk, with a policy and a value function."""

    schedules: ClassVar[Mapping[str, str]] = MappingProxyType({"lr_final": "lr_horizon"})

    model: dict[str, Any] = setting({}, "node of the network")
    memory: str = setting("train", "name of the memory that it learns from")
    gamma: float = setting(0.99, "discount", low=0.0, high=1.0)
    gae_lambda: float = setting(0.95, "0 is one-step TD, 1 is Monte Carlo", low=0.0, high=1.0)
    lr: float = setting(2.5e-4, "learning rate at frame 0", low=0.0, high=FLOAT32_LIMIT)
    lr_final: float | None = setting(None, "learning rate at the horizon; null: constant", low=0.0, high=FLOAT32_LIMIT)
    lr_horizon: int = setting(0, "over which the learning rate moves from lr to lr_final", unit="frames", low=0)
    entropy_coef: float = setting(0.01, "weight of the entropy bonus", low=0.0, high=FLOAT32_LIMIT)
    value_coef: float = setting(0.5, "weight of the value loss", low=0.0, high=FLOAT32_LIMIT)
    max_grad_norm: float | None = setting(
        0.5, "bound of the gradient's norm; null: none", above=0.0, high=FLOAT32_LIMIT
    )
    normalize_advantage: bool = setting(True, "whether advantages of a minibatch get mean 0 and variance 1")
    log_std_init: float = setting(
        0.0, "logarithm of the deviation of box actions at the start", low=-LOG_STD_BOUND, high=LOG_STD_BOUND
    )
