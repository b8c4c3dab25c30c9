"""What stands behind features that policy and value function share: hidden layers of both or of each, and two heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from digideep.model.config import PolicyValueConfig
from digideep.model.init import HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN, orthogonal_linear, truncated_normal_

__all__ = ["ACTIVATIONS_IN_PLACE", "Convolution", "FeatureShape", "FullyConnected", "SharedFeatures", "flattened"]

# In place where the backward pass needs the result only, not what it was made from.
ACTIVATIONS_IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "elu": partial(functional.elu, inplace=True),
    "gelu": functional.gelu,
    "silu": functional.silu,
}


class FeatureShape(NamedTuple):
    """Features of one observation: `[channels, height, width]`, or flat `[channels]` where `height` is 0."""

    channels: int
    height: int = 0
    width: int = 0

    @property
    def size(self) -> int:
        """Return how many numbers they are."""
        return self.channels * self.height * self.width if self.height else self.channels


class Convolution(nn.Module):
    """A convolution whose weights `[outputs, height, width, inputs]` lie as channels-last ones do.

    Kernels for channels-last pictures take them as they are, and so does the flat buffer of all parameters.

    Args:
        inputs, outputs: channels.
        kernel: height and width.
        stride: of both axes.
        padding: rows and columns of zeros on every side.
        gain: of the orthogonal weights; None draws them with `truncated_normal_`. Biases begin at 0.
        scale: factor of the inputs, folded into the weights.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        kernel: tuple[int, int],
        stride: int = 1,
        padding: int = 0,
        gain: float | None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        # Drawn in the order in which others have them, so that one seed gives the same network.
        weight = torch.empty(outputs, inputs, *kernel)
        weight = truncated_normal_(weight) if gain is None else nn.init.orthogonal_(weight, gain)
        self.weight = nn.Parameter(weight.permute(0, 2, 3, 1).contiguous())
        self.bias = nn.Parameter(torch.zeros(outputs))
        self._stride, self._padding, self._scale = stride, padding, scale

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return `[B, outputs, height, width]` for `[B, inputs, height, width]`, channels last in memory."""
        weight = self.weight if self._scale == 1.0 else self.weight * self._scale
        return functional.conv2d(pictures, weight.permute(0, 3, 1, 2), self.bias, self._stride, self._padding)


class FullyConnected(nn.ModuleList):
    """Fully connected layers with activations behind them, normalised before those if the configuration says so.

    Args:
        features: what comes in, flat or `[channels, height, width]`.
        sizes: units of each layer.
        config: activation and normalisation.
        gain: as `Convolution` has it.

    Attributes:
        size: numbers that come out.
    """

    def __init__(
        self,
        features: FeatureShape,
        sizes: tuple[int, ...],
        *,
        config: PolicyValueConfig,
        gain: float | None = HIDDEN_GAIN,
    ) -> None:
        super().__init__()
        self.size = sizes[-1] if sizes else features.size
        self._is_normalised = config.layer_norm
        self._activation = ACTIVATIONS_IN_PLACE[config.activation]
        inputs, kernel = features.channels, (features.height, features.width)
        for units in sizes:
            if features.height:
                # A layer is a convolution whose kernel covers all: for torch on CPUs three times as fast.
                self.append(Convolution(inputs, units, kernel=kernel, gain=gain))
            else:
                self.append(_linear(inputs, units, gain=gain))
            if config.layer_norm:
                self.append(nn.LayerNorm(units))
            inputs, kernel = units, (1, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return `[B, size]` for `[B, ...]` features."""
        step = 2 if self._is_normalised else 1
        for index in range(0, len(self), step):
            features = self[index](features)
            if self._is_normalised:
                features = self[index + 1](features.flatten(1)).view(features.shape)
            features = self._activation(features)
        return flattened(features)


class SharedFeatures(nn.Module):
    """Base of networks whose policy and value function read the same features.

    Behind these stand the fully connected layers of both. A critic with sizes or slots of its own has layers of its own
    instead, which read the features and beside them what only the critic sees: no output of the policy depends on that.
    """

    def make_tail(
        self,
        config: PolicyValueConfig,
        *,
        features: FeatureShape,
        sizes: tuple[int, ...],
        outputs: int,
        critic: nn.Module | None,
        gain: float | None = HIDDEN_GAIN,
    ) -> None:
        """Make the layers.

        Args:
            config: activation, normalisation, and what the critic has of its own.
            features: what `tail` gets.
            sizes: units of the layers of both.
            outputs: of the policy.
            critic: encoder of what only the critic sees, with its `size`.
            gain: of hidden layers, as `Convolution` has it.
        """
        self.hidden = FullyConnected(features, sizes, config=config, gain=gain)
        self.policy_head = orthogonal_linear(self.hidden.size, outputs, gain=POLICY_GAIN)
        inputs, own = self.hidden.size, None
        if config.has_own_critic:
            # Flat where something stands beside the features.
            seen = features if critic is None else FeatureShape(features.size + int(getattr(critic, "size", 0)))
            own = FullyConnected(seen, config.critic_sizes, config=config, gain=gain)
            inputs = own.size
        self.value_head = orthogonal_linear(inputs, 1, gain=VALUE_GAIN)
        self.critic_hidden, self.critic_encoder = own, critic

    def tail(
        self, features: torch.Tensor, observations: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, outputs]` and values `[B]`."""
        hidden = self.hidden(features)
        outputs = self.policy_head(hidden)
        if self.critic_hidden is not None:
            if self.critic_encoder is not None:
                features = torch.cat([flattened(features), self.critic_encoder(observations)], dim=1)
            hidden = self.critic_hidden(features)
        return outputs, self.value_head(hidden).squeeze(-1)

    @property
    def wants_channels_last(self) -> bool:
        """Whether pictures whose channels lie side by side in memory are read faster."""
        return any(bool(getattr(part, "wants_channels_last", False)) for part in self.children())


def flattened(features: torch.Tensor) -> torch.Tensor:
    """Return `[B, size]` for features `[B, size]` or `[B, channels, height, width]`."""
    return features.permute(0, 2, 3, 1).flatten(1) if features.dim() == 4 else features


def _linear(inputs: int, outputs: int, *, gain: float | None) -> nn.Linear:
    if gain is not None:
        return orthogonal_linear(inputs, outputs, gain=gain)
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        truncated_normal_(layer.weight)
        layer.bias.zero_()
    return layer
