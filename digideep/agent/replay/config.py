"""What the configurations of all methods that learn from a replay memory have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from digideep.agent.config import AgentConfig
from digideep.errors import ConfigError
from digideep.memory.room import shown_bytes
from digideep.utility.memory_limit import memory_limit_bytes
from digideep.utility.node import FLOAT32_LIMIT, setting

__all__ = ["ReplayConfig"]

_ROW_BYTES = 24
"""What a row of a window takes at least while it is drawn: two places, mask and reward."""


@dataclass(frozen=True)
class ReplayConfig(AgentConfig):
    """Gradient steps on transitions drawn from a memory, after a warm start of random actions."""

    schedules: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"lr_final": "lr_horizon", "priority_alpha_final": "priority_horizon"}
    )

    model: dict[str, Any] = setting({}, "node of the networks")
    memory: str = setting("train", "name of the memory that it learns from")
    gamma: float = setting(0.99, "discount", low=0.0, high=1.0)
    n_step: int = setting(1, "rewards in a target before its estimate", unit="steps", low=1)
    warm_up: int = setting(1000, "acted at random, without learning, at the very beginning", unit="rows", low=0)
    n_updates: int = setting(1, "gradient steps after each chunk", low=1)
    batch_size: int = setting(256, "transitions of a gradient step", unit="transitions", low=1)
    lr: float = setting(3e-4, "learning rate of Adam at frame 0", low=0.0, high=FLOAT32_LIMIT)
    lr_final: float | None = setting(None, "learning rate at the horizon; null: constant", low=0.0, high=FLOAT32_LIMIT)
    lr_horizon: int = setting(0, "over which the learning rate moves from lr to lr_final", unit="frames", low=0)
    max_grad_norm: float | None = setting(
        None, "bound of each gradient's norm; null: none", above=0.0, high=FLOAT32_LIMIT
    )
    adam_eps: float = setting(1e-8, "epsilon of Adam", low=1e-30, high=FLOAT32_LIMIT)
    priority_alpha: float = setting(
        0.6, "exponent of priorities at frame 0, for a prioritised memory", low=0.0, high=FLOAT32_LIMIT
    )
    priority_alpha_final: float | None = setting(
        None, "exponent at the horizon; null: constant", low=0.0, high=FLOAT32_LIMIT
    )
    priority_beta: float = setting(
        0.4, "exponent of importance weights at frame 0, for a prioritised memory", low=0.0, high=1.0
    )
    priority_beta_final: float | None = setting(1.0, "exponent at the horizon; null: constant", low=0.0, high=1.0)
    priority_horizon: int = setting(
        0, "over which both exponents move; 0: they are final from the beginning", unit="frames", low=0
    )
    priority_epsilon: float = setting(
        1e-6, "added to an error before it becomes a priority", low=0.0, high=FLOAT32_LIMIT
    )

    def __post_init__(self) -> None:
        """Check that the windows of a gradient step fit into memory: the system would end the process without a word.

        Raises:
            ConfigError: a schedule has no horizon, or the windows are more than the machine has memory for.
        """
        super().__post_init__()
        needed, limit = self.batch_size * (self.n_step + 2) * _ROW_BYTES, memory_limit_bytes()
        if needed > limit:
            raise ConfigError(
                f"{type(self).__name__}/batch_size: expected windows within the memory of this machine or its control "
                f"group ({shown_bytes(limit)}), found {self.batch_size} of {self.n_step} steps, at least "
                f"{shown_bytes(needed)}; lower it, or n_step"
            )
