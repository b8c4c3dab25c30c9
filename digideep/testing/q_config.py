"""Configuration of the small Q-learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from digideep.agent.config import AgentConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["QConfig"]


@dataclass(frozen=True)
class QConfig(AgentConfig):
    """Q-learning from a replay memory, for one discrete action."""

    builds: ClassVar[str] = "digideep.testing.q_agent:QAgent"
    schedules: ClassVar[Mapping[str, str]] = MappingProxyType({"lr_final": "lr_horizon"})

    model: dict[str, Any] = setting({}, "node of the network")
    memory: str = setting("train", "name of the memory that it learns from")
    gamma: float = setting(0.99, "discount", low=0.0, high=1.0)
    n_step: int = setting(1, "rewards in a target before its estimate", unit="steps", low=1)
    n_updates: int = setting(8, "gradient steps after each chunk", low=1)
    batch_size: int = setting(32, "transitions of a gradient step", unit="transitions", low=1)
    target_interval: int = setting(50, "between copies of the network into the target network", unit="steps", low=1)
    lr: float = setting(1e-3, "learning rate of Adam at the first gradient step", low=0.0, high=FLOAT32_LIMIT)
    lr_final: float | None = setting(None, "learning rate at the horizon; null: constant", low=0.0, high=FLOAT32_LIMIT)
    lr_horizon: int = setting(0, "over which the learning rate moves from lr to lr_final", unit="steps", low=0)
    max_grad_norm: float | None = setting(
        10.0, "bound of the gradient's norm; null: none", above=0.0, high=FLOAT32_LIMIT
    )
    adam_eps: float = setting(1e-8, "epsilon of Adam", low=1e-30, high=FLOAT32_LIMIT)
    warm_up: int = setting(0, "acted at random, without learning, at the very beginning", unit="rows", low=0)
    epsilon: float = setting(1.0, "share of random actions after the warm-up", low=0.0, high=1.0)
    epsilon_final: float = setting(0.05, "share of random actions at the horizon", low=0.0, high=1.0)
    epsilon_horizon: int = setting(1000, "over which the share moves", unit="rows", low=1)
    noise_scale: float = setting(
        0.0, "deviation of what is added to the noise on action values at each step", low=0.0, high=FLOAT32_LIMIT
    )
    noise_rate: float = setting(0.15, "share of the noise that is gone at the next step", low=0.0, high=1.0)
