"""Configurations of networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from digideep.errors import ConfigError
from digideep.utility.node import Config, setting

__all__ = [
    "Activation",
    "ActorCriticsConfig",
    "CNNConfig",
    "Cell",
    "ConvolutionsConfig",
    "MLPConfig",
    "MixedConfig",
    "ModelConfig",
    "PolicyValueConfig",
    "QMixedConfig",
    "QNetworkConfig",
    "RNNConfig",
    "ResNetConfig",
]

Activation: TypeAlias = Literal["tanh", "relu", "elu", "gelu", "silu"]
Cell: TypeAlias = Literal["gru", "lstm"]


@dataclass(frozen=True)
class ModelConfig(Config):
    """What stands at `/agents/<name>/model`: the network. `network_class` decides threads and device."""

    network_class: ClassVar[str] = "custom"


@dataclass(frozen=True)
class PolicyValueConfig(ModelConfig):
    """What the networks of a policy with a value function have in common; each has its own defaults."""

    hidden_sizes: tuple[int, ...] = setting((64, 64), "units of each hidden layer", unit="units", low=1, high=65536)
    activation: Activation = setting("tanh", "between the layers")
    layer_norm: bool = setting(False, "whether hidden layers are normalised before their activation")
    critic_hidden_sizes: tuple[int, ...] | None = setting(
        None, "units of the value function's hidden layers; null: as hidden_sizes", unit="units", low=1, high=65536
    )
    critic_observations: tuple[str, ...] = setting((), "observation slots that only the value function sees")

    @property
    def has_own_critic(self) -> bool:
        """Whether the value function cannot share the policy's hidden layers."""
        return self.critic_hidden_sizes is not None or bool(self.critic_observations)

    @property
    def critic_sizes(self) -> tuple[int, ...]:
        """Units of hidden layers that belong to the value function alone."""
        return self.hidden_sizes if self.critic_hidden_sizes is None else self.critic_hidden_sizes


@dataclass(frozen=True)
class MLPConfig(PolicyValueConfig):
    """Fully connected layers for a policy and its value function."""

    builds: ClassVar[str] = "digideep.model.mlp:ActorCriticMLP"
    network_class: ClassVar[str] = "mlp"

    shared: bool = setting(False, "whether policy and value function share the hidden layers")

    def __post_init__(self) -> None:
        """Check that there is something to share, and nothing that cannot be shared."""
        super().__post_init__()
        if self.shared and not self.hidden_sizes:
            raise ConfigError(
                "MLPConfig/shared: expected hidden layers to share, found hidden_sizes []; set it to false"
            )
        if self.shared and self.has_own_critic:
            own = "critic_observations" if self.critic_observations else "critic_hidden_sizes"
            raise ConfigError(f"MLPConfig/shared: expected false, since there are {own}, found true; leave out one")


@dataclass(frozen=True)
class ConvolutionsConfig(PolicyValueConfig):
    """Convolutions as in Mnih et al. 2015, Nature 518; what stands before and behind them is the subclass's."""

    channels: tuple[int, ...] = setting((32, 64, 64), "outputs of each convolution", unit="channels", low=1, high=65536)
    kernels: tuple[int, ...] = setting((8, 4, 3), "height and width of each kernel", unit="pixels", low=1, high=1024)
    strides: tuple[int, ...] = setting((4, 2, 1), "stride of each convolution", unit="pixels", low=1, high=1024)

    def __post_init__(self) -> None:
        """Check that every convolution has all three numbers."""
        super().__post_init__()
        found = {"channels": len(self.channels), "kernels": len(self.kernels), "strides": len(self.strides)}
        if len(set(found.values())) > 1 or not self.channels:
            name = type(self).__name__
            raise ConfigError(
                f"{name}/channels: expected as many channels as kernels and strides, found {found}; even them out"
            )


@dataclass(frozen=True)
class CNNConfig(ConvolutionsConfig):
    """Convolutions over one picture, then fully connected layers; policy and value function share all of them.

    The defaults are those of Mnih et al. 2015, Nature 518. A picture is [channels, height, width] or [height, width],
    or [height, width, channels] where that makes the channels fewer than the rows. A critic with layers or slots of its
    own shares the convolutions; its slots are taken flat.
    """

    builds: ClassVar[str] = "digideep.model.cnn:ActorCriticCNN"
    network_class: ClassVar[str] = "cnn"

    hidden_sizes: tuple[int, ...] = setting(
        (512,), "units of each fully connected layer", unit="units", low=1, high=65536
    )
    activation: Activation = setting("relu", "between the layers")


@dataclass(frozen=True)
class ResNetConfig(PolicyValueConfig):
    """The residual network of Espeholt et al. 2018, arXiv:1802.01561, figure 3, over one picture as `CNNConfig` has it.

    Each of `channels` is a convolution, a max-pooling that halves the picture, and residual blocks of two convolutions.
    """

    builds: ClassVar[str] = "digideep.model.resnet:ActorCriticResNet"
    network_class: ClassVar[str] = "cnn"

    hidden_sizes: tuple[int, ...] = setting(
        (256,), "units of each fully connected layer", unit="units", low=1, high=65536
    )
    activation: Activation = setting("relu", "between the layers")
    channels: tuple[int, ...] = setting((16, 32, 32), "outputs of each section", unit="channels", low=1, high=65536)
    blocks: int = setting(2, "residual blocks of each section", low=0, high=64)

    def __post_init__(self) -> None:
        """Check that there is a section."""
        super().__post_init__()
        if not self.channels:
            raise ConfigError("ResNetConfig/channels: expected at least one section, found []; name one")


@dataclass(frozen=True)
class MixedConfig(ConvolutionsConfig):
    """One encoder for each observation slot, side by side: convolutions for pictures, everything else taken flat.

    Then come fully connected layers that policy and value function share, as those of `CNNConfig`.
    `digideep.model.encoders` says what counts as a picture.
    """

    builds: ClassVar[str] = "digideep.model.encoders:ActorCriticMixed"
    network_class: ClassVar[str] = "cnn"

    hidden_sizes: tuple[int, ...] = setting(
        (256,), "units of each layer behind the encoders", unit="units", low=1, high=65536
    )
    activation: Activation = setting("relu", "between the layers")
    picture_sizes: tuple[int, ...] = setting(
        (512,), "units of each fully connected layer behind the convolutions", unit="units", low=1, high=65536
    )


@dataclass(frozen=True)
class RNNConfig(MixedConfig):
    """Encoders as those of `MixedConfig`, fully connected layers, then a recurrent cell that all share.

    For agents that keep a hidden state, such as `RecurrentPPOConfig`. A critic's own layers stand behind the cell.
    """

    builds: ClassVar[str] = "digideep.model.rnn:ActorCriticRNN"
    network_class: ClassVar[str] = "rnn"

    hidden_sizes: tuple[int, ...] = setting(
        (64,), "units of each layer between encoders and cell", unit="units", low=1, high=65536
    )
    activation: Activation = setting("tanh", "between the layers")
    cell: Cell = setting("gru", "kind of the recurrent cell")
    units: int = setting(64, "size of its hidden state", unit="units", low=1, high=65536)


@dataclass(frozen=True)
class ActorCriticsConfig(PolicyValueConfig):
    """Fully connected layers for a policy over real actions, and for critics of observation and action together."""

    builds: ClassVar[str] = "digideep.model.actor_critics:ActorCritics"
    network_class: ClassVar[str] = "mlp"

    hidden_sizes: tuple[int, ...] = setting((256, 256), "units of each hidden layer", unit="units", low=1, high=65536)
    activation: Activation = setting("relu", "between the layers")
    critic_hidden_sizes: tuple[int, ...] | None = setting(
        None, "units of the critics' hidden layers; null: as hidden_sizes", unit="units", low=1, high=65536
    )
    critic_observations: tuple[str, ...] = setting((), "observation slots that only the critics see")


@dataclass(frozen=True)
class QNetworkConfig(PolicyValueConfig):
    """Fully connected layers for the value of each action, which is value function and policy in one."""

    builds: ClassVar[str] = "digideep.model.q_network:QNetwork"
    network_class: ClassVar[str] = "mlp"

    activation: Activation = setting("relu", "between the layers")
    dueling: bool = setting(False, "whether a state's value has fully connected layers of its own beside the actions'")
    noisy: bool = setting(False, "whether weights of fully connected layers have noise, which is learnt, for exploring")
    noisy_deviation: float = setting(
        0.5, "deviation of that noise at the beginning, in 1 / sqrt(inputs of the layer)", low=0.0, high=1e6
    )

    def __post_init__(self) -> None:
        """Check that nothing is asked for that only a critic beside a policy can have."""
        super().__post_init__()
        for name, empty in (("critic_hidden_sizes", None), ("critic_observations", ())):
            found = getattr(self, name)
            if found != empty:
                expected = "null" if empty is None else "[]"
                raise ConfigError(
                    f"{type(self).__name__}/{name}: expected {expected}, since action values are the policy and there "
                    f"is no critic beside it, found {list(found)}; leave it out"
                )


@dataclass(frozen=True)
class QMixedConfig(QNetworkConfig, MixedConfig):
    """The encoders of `MixedConfig`, convolutions for pictures, then fully connected layers for action values.

    The defaults are those of Mnih et al. 2015, Nature 518.
    """

    builds: ClassVar[str] = "digideep.model.q_network:QMixedNetwork"
    network_class: ClassVar[str] = "cnn"

    hidden_sizes: tuple[int, ...] = setting(
        (512,), "units of each layer behind the encoders", unit="units", low=1, high=65536
    )
    picture_sizes: tuple[int, ...] = setting(
        (), "units of each fully connected layer of a picture's own, behind its convolutions", unit="units", low=1,
        high=65536,
    )  # fmt: skip
