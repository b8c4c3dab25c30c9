"""Convolutional networks for a policy and its value function: pictures of bytes in, outputs and values out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from digideep.errors import SpaceError
from digideep.model.config import CNNConfig
from digideep.model.init import HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN, orthogonal_linear
from digideep.spec import ArraySpec

__all__ = ["ActorCriticCNN", "Convolution", "PictureShape"]

_BYTE = 1.0 / 255.0

# In place where the backward pass needs the result only, not what it was made from.
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "elu": partial(functional.elu, inplace=True),
    "gelu": functional.gelu,
    "silu": functional.silu,
}


class PictureShape(NamedTuple):
    """Channels, height and width of a picture, and whether its channels are the last axis."""

    channels: int
    height: int
    width: int
    is_last: bool


class Convolution(nn.Module):
    """A convolution without padding, whose weights `[outputs, height, width, inputs]` lie as channels-last ones do.

    Kernels for channels-last pictures take them as they are, and so does the flat buffer of all parameters.

    Args:
        inputs, outputs: channels.
        kernel: height and width.
        stride: of both axes.
        gain: of the orthogonal weights; biases begin at 0.
        scale: factor of the inputs, folded into the weights.
    """

    def __init__(
        self, inputs: int, outputs: int, *, kernel: tuple[int, int], stride: int = 1, gain: float, scale: float = 1.0
    ) -> None:
        super().__init__()
        # Drawn in the order in which others have them, so that one seed gives the same network.
        weight = nn.init.orthogonal_(torch.empty(outputs, inputs, *kernel), gain)
        self.weight = nn.Parameter(weight.permute(0, 2, 3, 1).contiguous())
        self.bias = nn.Parameter(torch.zeros(outputs))
        self._stride, self._scale = stride, scale

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return `[B, outputs, height, width]` for `[B, inputs, height, width]`, channels last in memory."""
        weight = self.weight if self._scale == 1.0 else self.weight * self._scale
        return functional.conv2d(pictures, weight.permute(0, 3, 1, 2), self.bias, self._stride)


class ActorCriticCNN(nn.Module):
    """Convolutions and fully connected layers that policy and value function share, and a linear layer for each.

    Source: Mnih et al. 2015, Nature 518, methods; orthogonal weights as in `model/init.py`.

    Raises:
        SpaceError: the observation is not one picture, or is too small for the kernels.
    """

    network_class = CNNConfig.network_class

    def __init__(self, config: CNNConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        super().__init__()
        self.config = config
        self.observations = dict(observations)
        self._slot, spec = _only(observations)
        self.picture = _picture(self._slot, spec)
        self.convolutions = nn.ModuleList()
        inputs, size = self.picture.channels, (self.picture.height, self.picture.width)
        scale = _BYTE if spec.dtype == "uint8" else 1.0
        for channels, kernel, stride in zip(config.channels, config.kernels, config.strides, strict=True):
            size = _after(size, kernel=kernel, stride=stride, slot=self._slot, spec=spec)
            made = Convolution(inputs, channels, kernel=(kernel, kernel), stride=stride, gain=HIDDEN_GAIN, scale=scale)
            self.convolutions.append(made)
            inputs, scale = channels, 1.0
        self.hidden = nn.ModuleList()
        for units in config.hidden_sizes:
            # A fully connected layer is a convolution whose kernel covers all: for torch on CPUs three times as fast.
            self.hidden.append(Convolution(inputs, units, kernel=size, gain=HIDDEN_GAIN))
            inputs, size = units, (1, 1)
        features = inputs * math.prod(size)
        self.policy_head = orthogonal_linear(features, outputs, gain=POLICY_GAIN)
        self.value_head = orthogonal_linear(features, 1, gain=VALUE_GAIN)
        self._activation = _ACTIVATIONS[config.activation]

    def forward(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, outputs]` and values `[B]`."""
        features = self._channels_last(observations[self._slot])
        for layer in self.convolutions:
            features = self._activation(layer(features))
        for layer in self.hidden:
            features = self._activation(layer(features))
        flat = features.permute(0, 2, 3, 1).flatten(1)
        return self.policy_head(flat), self.value_head(flat).squeeze(-1)

    def _channels_last(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return `[B, channels, height, width]` numbers whose channels are neighbours in memory."""
        dtype = self.policy_head.weight.dtype
        if self.picture.is_last:
            return pictures.to(dtype).permute(0, 3, 1, 2)
        if pictures.dim() == 3:
            pictures = pictures.unsqueeze(1)
        return pictures.to(dtype, memory_format=torch.channels_last)

    @property
    def wants_channels_last(self) -> bool:
        """Whether pictures whose channels lie side by side in memory are read faster."""
        return not self.picture.is_last


def _only(observations: Mapping[str, ArraySpec]) -> tuple[str, ArraySpec]:
    if len(observations) != 1:
        raise SpaceError(
            f"observation space: expected one picture, found the slots {', '.join(observations) or 'none'}; "
            f"use another network"
        )
    return next(iter(observations.items()))


def _picture(slot: str, spec: ArraySpec) -> PictureShape:
    if spec.kind != "box" or len(spec.shape) not in (2, 3) or 0 in spec.shape:
        raise SpaceError(
            f"observation space: expected a picture [channels, height, width] in {slot!r}, "
            f"found {spec.kind} of shape {spec.shape}; use another network"
        )
    *first, height, width = spec.shape
    if first and width < first[0]:
        return PictureShape(width, first[0], height, is_last=True)
    return PictureShape(first[0] if first else 1, height, width, is_last=False)


def _after(size: tuple[int, int], *, kernel: int, stride: int, slot: str, spec: ArraySpec) -> tuple[int, int]:
    """Return the height and width that a convolution leaves."""
    if min(size) < kernel:
        raise SpaceError(
            f"observation space: expected pictures large enough for the kernels, found {spec.shape} in {slot!r}, of "
            f"which a kernel of {kernel} meets {size[0]} x {size[1]}; use smaller kernels or strides"
        )
    height, width = ((length - kernel) // stride + 1 for length in size)
    return height, width
