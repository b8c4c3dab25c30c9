"""Configuration of DQN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from digideep.agent.replay.config import ReplayConfig
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["DQNConfig"]


@dataclass(frozen=True)
class DQNConfig(ReplayConfig):
    """Deep Q-learning for one discrete action.

    What a network can do is said by its own configuration: `dueling`, and `noisy`, in place of which there is epsilon.
    """

    builds: ClassVar[str] = "digideep.agent.dqn.agent:DQNAgent"

    batch_size: int = setting(32, "transitions of a gradient step", unit="transitions", low=1)
    lr: float = setting(1e-4, "learning rate of Adam at frame 0", low=0.0, high=FLOAT32_LIMIT)
    max_grad_norm: float | None = setting(
        10.0, "bound of the gradient's norm; null: none", above=0.0, high=FLOAT32_LIMIT
    )
    double: bool = setting(True, "whether the learning network picks the action that the target network values")
    target_interval: int = setting(1000, "between moves of the target network", unit="gradient steps", low=1)
    tau: float = setting(
        1.0, "share of its distance from the learning network that it moves; 1: it becomes a copy", above=0.0, high=1.0
    )
    epsilon: float = setting(1.0, "share of random actions right after the warm-up", low=0.0, high=1.0)
    epsilon_final: float = setting(0.05, "share of random actions later", low=0.0, high=1.0)
    epsilon_fraction: float = setting(1.0, "part of epsilon_horizon over which the share falls", low=0.0, high=1.0)
    epsilon_horizon: int = setting(10_000, "rows after the warm-up that the part is taken of", unit="rows", low=0)
