"""Configurations of networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from digideep.errors import ConfigError
from digideep.utility.node import Config, setting

__all__ = ["Activation", "CNNConfig", "MLPConfig", "ModelConfig"]

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


@dataclass(frozen=True)
class CNNConfig(ModelConfig):
    """Convolutions over one picture, then fully connected layers; policy and value function share all of them.

    The defaults are those of Mnih et al. 2015, Nature 518. A picture is [channels, height, width] or [height, width],
    or [height, width, channels] where that makes the channels fewer than the rows.
    """

    builds: ClassVar[str] = "digideep.model.cnn:ActorCriticCNN"
    network_class: ClassVar[str] = "cnn"

    channels: tuple[int, ...] = setting((32, 64, 64), "outputs of each convolution", unit="channels", low=1, high=65536)
    kernels: tuple[int, ...] = setting((8, 4, 3), "height and width of each kernel", unit="pixels", low=1, high=1024)
    strides: tuple[int, ...] = setting((4, 2, 1), "stride of each convolution", unit="pixels", low=1, high=1024)
    hidden_sizes: tuple[int, ...] = setting(
        (512,), "units of each fully connected layer", unit="units", low=1, high=65536
    )
    activation: Activation = setting("relu", "between the layers")

    def __post_init__(self) -> None:
        """Check that every convolution has all three numbers."""
        super().__post_init__()
        found = {"channels": len(self.channels), "kernels": len(self.kernels), "strides": len(self.strides)}
        if len(set(found.values())) > 1 or not self.channels:
            raise ConfigError(f"CNNConfig/channels: expected as many channels as kernels and strides, found {found}")
