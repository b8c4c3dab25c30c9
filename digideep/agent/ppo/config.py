"""Configuration of PPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from digideep.agent.config import AgentConfig
from digideep.errors import ConfigError
from digideep.utility.node import setting

__all__ = ["LOG_STD_BOUND", "PPOConfig"]

LOG_STD_BOUND = 20.0
"""Greatest distance from 0 of the logarithm of a deviation; far beyond it float32 has no such deviation."""


@dataclass(frozen=True)
class PPOConfig(AgentConfig):
    """Proximal policy optimisation with a clipped surrogate."""

    builds: ClassVar[str] = "digideep.agent.ppo.agent:PPOAgent"

    model: dict[str, Any] = setting({}, "node of the network")
    memory: str = setting("train", "name of the memory that it learns from")
    gamma: float = setting(0.99, "discount", low=0.0, high=1.0)
    gae_lambda: float = setting(0.95, "0 is one-step TD, 1 is Monte Carlo", low=0.0, high=1.0)
    lr: float = setting(2.5e-4, "learning rate of Adam at frame 0", low=0.0)
    lr_final: float | None = setting(None, "learning rate at the horizon; null: constant", low=0.0)
    lr_horizon: int = setting(0, "over which the learning rate moves from lr to lr_final", unit="frames", low=0)
    clip_param: float = setting(0.2, "bound of the probability ratio's distance from 1 at frame 0", above=0.0)
    clip_param_final: float | None = setting(None, "bound at the horizon; null: constant", above=0.0)
    clip_param_horizon: int = setting(0, "over which clip_param moves", unit="frames", low=0)
    value_clip: float | None = setting(0.2, "bound of a value's distance from the one sampled; null: none", above=0.0)
    entropy_coef: float = setting(0.01, "weight of the entropy bonus", low=0.0)
    value_coef: float = setting(0.5, "weight of the value loss", low=0.0)
    max_grad_norm: float | None = setting(0.5, "bound of the gradient's norm; null: none", above=0.0)
    target_kl: float | None = setting(None, "approximate KL beyond which an update ends early; null: never", above=0.0)
    update_epochs: int = setting(4, "passes over each chunk", low=1)
    minibatch_size: int = setting(256, "rows of a gradient step", unit="rows", low=1)
    normalize_advantage: bool = setting(True, "whether advantages of a minibatch get mean 0 and variance 1")
    adam_eps: float = setting(1e-5, "epsilon of Adam", above=0.0)
    log_std_init: float = setting(
        0.0, "logarithm of the deviation of box actions at the start", low=-LOG_STD_BOUND, high=LOG_STD_BOUND
    )

    def __post_init__(self) -> None:
        """Check that every schedule has a horizon."""
        super().__post_init__()
        for name in ("lr", "clip_param"):
            final, horizon = getattr(self, f"{name}_final"), getattr(self, f"{name}_horizon")
            if final is not None and horizon == 0:
                raise ConfigError(
                    f"PPOConfig/{name}_horizon: expected frames above 0, since {name}_final is {final}, found 0"
                )
