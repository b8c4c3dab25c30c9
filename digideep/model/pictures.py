"""Pictures among the observations: which slots are some, how their axes lie, and convolutions over one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn

from digideep.errors import SpaceError
from digideep.model.config import ConvolutionsConfig
from digideep.model.init import HIDDEN_GAIN
from digideep.model.observations import BYTE
from digideep.model.tail import ACTIVATIONS_IN_PLACE, Convolution, FeatureShape
from digideep.spec import ArraySpec

__all__ = ["Convolutions", "PictureShape", "channels_first", "is_picture", "only_slot", "picture_shape"]


class PictureShape(NamedTuple):
    """Channels, height and width of a picture, and whether its channels are the last axis."""

    channels: int
    height: int
    width: int
    is_last: bool


def only_slot(observations: Mapping[str, ArraySpec]) -> tuple[str, ArraySpec]:
    """Return the one slot that there is.

    Raises:
        SpaceError: there are more, or none.
    """
    if len(observations) != 1:
        raise SpaceError(
            f"observation space: expected one picture, found the slots {', '.join(observations) or 'none'}; "
            f"use another network, such as digideep.model.config:MixedConfig"
        )
    return next(iter(observations.items()))


def picture_shape(slot: str, spec: ArraySpec) -> PictureShape:
    """Return the shape of a picture: [channels, height, width], [height, width], or [height, width, channels].

    Channels are the last axis where that makes them fewer than the rows.

    Raises:
        SpaceError: the slot holds no picture.
    """
    if spec.kind != "box" or len(spec.shape) not in (2, 3) or 0 in spec.shape:
        raise SpaceError(
            f"observation space: expected a picture [channels, height, width] in {slot!r}, "
            f"found {spec.kind} of shape {spec.shape}; use another network"
        )
    *first, height, width = spec.shape
    if first and width < first[0]:
        return PictureShape(width, first[0], height, is_last=True)
    return PictureShape(first[0] if first else 1, height, width, is_last=False)


def is_picture(spec: ArraySpec, config: ConvolutionsConfig) -> bool:
    """Whether a slot counts as a picture: three axes, or two of bytes, and large enough for the convolutions."""
    axes = (2, 3) if spec.dtype == "uint8" else (3,)
    if spec.kind != "box" or len(spec.shape) not in axes or 0 in spec.shape:
        return False
    shape = picture_shape("", spec)
    sizes = [shape.height, shape.width]
    for kernel, stride in zip(config.kernels, config.strides, strict=True):
        if min(sizes) < kernel:
            return False
        sizes = [(length - kernel) // stride + 1 for length in sizes]
    return True


def channels_first(pictures: torch.Tensor, shape: PictureShape, dtype: torch.dtype) -> torch.Tensor:
    """Return `[B, channels, height, width]` numbers whose channels are neighbours in memory."""
    if shape.is_last:
        return pictures.to(dtype).permute(0, 3, 1, 2)
    if pictures.dim() == 3:
        pictures = pictures.unsqueeze(1)
    return pictures.to(dtype, memory_format=torch.channels_last)


class Convolutions(nn.ModuleList):
    """The convolutions of a configuration over one picture; bytes are scaled to [0, 1].

    Attributes:
        picture: the shape of the picture.
        features: what comes out.

    Raises:
        SpaceError: the slot holds no picture, or one too small for the kernels.
    """

    def __init__(self, config: ConvolutionsConfig, *, slot: str, spec: ArraySpec) -> None:
        super().__init__()
        self.picture = shape = picture_shape(slot, spec)
        inputs, size = shape.channels, (shape.height, shape.width)
        scale = BYTE if spec.dtype == "uint8" else 1.0
        for channels, kernel, stride in zip(config.channels, config.kernels, config.strides, strict=True):
            size = _after(size, kernel=kernel, stride=stride, slot=slot, spec=spec)
            self.append(
                Convolution(inputs, channels, kernel=(kernel, kernel), stride=stride, gain=HIDDEN_GAIN, scale=scale)
            )
            inputs, scale = channels, 1.0
        self.features = FeatureShape(inputs, *size)
        self._activation = ACTIVATIONS_IN_PLACE[config.activation]

    @property
    def wants_channels_last(self) -> bool:
        """Whether pictures whose channels lie side by side in memory are read faster."""
        return not self.picture.is_last

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return features `[B, channels, height, width]` for pictures as the environment gives them."""
        first = self[0]
        assert isinstance(first, Convolution)
        features = channels_first(pictures, self.picture, first.weight.dtype)
        for layer in self:
            features = self._activation(layer(features))
        return features


def _after(size: tuple[int, int], *, kernel: int, stride: int, slot: str, spec: ArraySpec) -> tuple[int, int]:
    """Return the height and width that a convolution leaves."""
    if min(size) < kernel:
        raise SpaceError(
            f"observation space: expected pictures large enough for the kernels, found {spec.shape} in {slot!r}, of "
            f"which a kernel of {kernel} meets {size[0]} x {size[1]}; use smaller kernels or strides"
        )
    height, width = ((length - kernel) // stride + 1 for length in size)
    return height, width
