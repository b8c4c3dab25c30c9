"""The residual network of IMPALA for a policy and its value function."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from digideep.model.config import ResNetConfig
from digideep.model.mlp import TORCH_ACTIVATIONS
from digideep.model.observations import BYTE, FlatObservations, policy_slots
from digideep.model.pictures import channels_first, only_slot, picture_shape
from digideep.model.tail import ACTIVATIONS_IN_PLACE, Convolution, FeatureShape, SharedFeatures
from digideep.spec import ArraySpec

__all__ = ["ActorCriticResNet", "ResidualBlock", "Section"]


class ResidualBlock(nn.Module):
    """Activation, convolution, activation, convolution, added to what came in."""

    def __init__(self, channels: int, config: ResNetConfig) -> None:
        super().__init__()
        self.first, self.second = (_convolution(channels, channels) for _ in range(2))
        # Not in place at first: what came in is added at the end.
        self._activation, self._in_place = TORCH_ACTIVATIONS[config.activation], ACTIVATIONS_IN_PLACE[config.activation]

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return `[B, channels, height, width]`."""
        change: torch.Tensor = self.second(self._in_place(self.first(self._activation(features))))
        return features + change


class Section(nn.Module):
    """A convolution, max-pooling of 3 x 3 at every second place, and residual blocks."""

    def __init__(self, inputs: int, channels: int, *, config: ResNetConfig, scale: float) -> None:
        super().__init__()
        self.convolution = _convolution(inputs, channels, scale=scale)
        self.blocks = nn.ModuleList(ResidualBlock(channels, config) for _ in range(config.blocks))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return `[B, channels, (height + 1) // 2, (width + 1) // 2]`."""
        features = functional.max_pool2d(self.convolution(features), 3, stride=2, padding=1)
        for block in self.blocks:
            features = block(features)
        return features


class ActorCriticResNet(SharedFeatures):
    """Three sections of 16, 32 and 32 channels and a layer of 256 units, which policy and value function share.

    A critic with sizes or slots of its own shares the sections only; slots that it alone sees are taken flat.

    Source: Espeholt et al. 2018, arXiv:1802.01561, figure 3, without the recurrent cell. Weights are drawn as there, by
    `truncated_normal_`; the two heads as those of every policy here.

    Raises:
        SpaceError: what the policy sees is not one picture.
        ConfigError: `critic_observations` names a slot that there is not, or leaves none for the policy.
    """

    network_class = ResNetConfig.network_class

    def __init__(self, config: ResNetConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        super().__init__()
        self.config = config
        self.observations = dict(observations)
        self._slot, spec = only_slot(policy_slots(observations, config.critic_observations))
        self.picture = shape = picture_shape(self._slot, spec)
        self._activation = ACTIVATIONS_IN_PLACE[config.activation]
        self.sections = nn.ModuleList()
        inputs, height, width = shape.channels, shape.height, shape.width
        scale = BYTE if spec.dtype == "uint8" else 1.0
        for channels in config.channels:
            self.sections.append(Section(inputs, channels, config=config, scale=scale))
            inputs, height, width, scale = channels, (height + 1) // 2, (width + 1) // 2, 1.0
        critic = {slot: observations[slot] for slot in config.critic_observations}
        self.make_tail(
            config,
            features=FeatureShape(inputs, height, width),
            sizes=config.hidden_sizes,
            outputs=outputs,
            critic=FlatObservations(critic) if critic else None,
            gain=None,
        )

    def forward(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, outputs]` and values `[B]`."""
        features = channels_first(observations[self._slot], self.picture, self.policy_head.weight.dtype)
        for section in self.sections:
            features = section(features)
        return self.tail(self._activation(features), observations)

    @property
    def wants_channels_last(self) -> bool:
        """Whether pictures whose channels lie side by side in memory are read faster."""
        return not self.picture.is_last


def _convolution(inputs: int, channels: int, *, scale: float = 1.0) -> Convolution:
    return Convolution(inputs, channels, kernel=(3, 3), padding=1, gain=None, scale=scale)
