"""Configurations of networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from digideep.errors import ConfigError
from digideep.utility.node import Config, setting

__all__ = ["Activation", "MLPConfig", "ModelConfig"]

Activation: TypeAlias = Literal["tanh", "relu", "elu", "gelu", "silu"]


@dataclass(frozen=True)
class ModelConfig(Config):
    """What stands at `/agents/<name>/model`: the network. `network_class` decides threads and device."""

    network_class: ClassVar[str] = "custom"


@dataclass(frozen=True)
class MLPConfig(ModelConfig):
    """Fully connected layers for a policy and its value function."""

    builds: ClassVar[str] = "digideep.model.mlp:ActorCriticMLP"
    network_class: ClassVar[str] = "mlp"

    hidden_sizes: tuple[int, ...] = setting((64, 64), "units of each hidden layer", unit="units", low=1, high=65536)
    activation: Activation = setting("tanh", "between the layers")
    shared: bool = setting(False, "whether policy and value function share the hidden layers")

    def __post_init__(self) -> None:
        """Check that there is something to share."""
        super().__post_init__()
        if self.shared and not self.hidden_sizes:
            raise ConfigError("MLPConfig/shared: expected hidden layers to share, found hidden_sizes []")
