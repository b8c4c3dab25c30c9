"""Networks whose weights have noise of a size that is learnt, so that they explore by what they do not know yet.

A weight is mean + deviation * noise, and the noise of a layer's weights is the outer product of a vector of its outputs
and one of its inputs. `NoisyTowers` is the torch module; `PackedNoisyTower` and `FrozenNoisyTowers` compute the same in
numpy, on the same memory and on a copy of it.

Source: Fortunato et al. 2018, arXiv:1706.10295, section 3, factorised noise.
"""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from digideep.model.flat import FlatParameters
from digideep.model.mlp import TORCH_ACTIVATIONS
from digideep.model.packed_towers import FrozenTowers, PackedTower, can_pack
from digideep.model.towers import Activation, Towers

__all__ = ["FrozenNoisyTowers", "NoisyTowers", "PackedNoisyTower", "can_pack_noisy"]

Array: TypeAlias = np.ndarray[Any, Any]


class NoisyTowers(nn.Module):
    """One fully connected network with noise on all of its weights and biases; without it, on none.

    Means begin as the weights of `Towers`, uniform within 1 / sqrt(inputs of the layer), deviations at `deviation`
    times that bound, as in section 3.2 of the source. What normalises layers has no noise.

    Args:
        inputs, hidden_sizes, outputs, activation, layer_norm: as `Towers` has them.
        deviation: of the noise at the beginning, in 1 / sqrt(inputs of the layer).

    Attributes:
        noise_size: standard normal numbers that make the noise of all layers.
    """

    def __init__(
        self,
        inputs: int,
        *,
        hidden_sizes: tuple[int, ...],
        outputs: int,
        activation: Activation,
        layer_norm: bool = False,
        deviation: float,
    ) -> None:
        super().__init__()
        self.means = Towers(
            inputs, hidden_sizes=hidden_sizes, outputs=outputs, activation=activation, layer_norm=layer_norm
        )
        self.deviations = Towers(inputs, hidden_sizes=hidden_sizes, outputs=outputs, activation=activation)
        for layer in (*self.deviations.layers, self.deviations.head):
            bound = deviation / math.sqrt(layer.weight.shape[2])
            nn.init.constant_(layer.weight, bound)
            nn.init.constant_(layer.bias, bound)
        self.sizes = (inputs, *hidden_sizes, outputs)
        self.noise_size = sum(a + b for a, b in itertools.pairwise(self.sizes))
        self._activate = TORCH_ACTIVATIONS[activation]

    def forward(self, inputs: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        """Return `[B, outputs]` for `[B, inputs]`.

        Args:
            inputs: rows.
            noise: standard normal numbers, `[noise_size]` for all rows or `[B, noise_size]` for each; None: only the
                means count.
        """
        if noise is None:
            outputs: torch.Tensor = self.means(inputs)[0]
            return outputs
        noise = noise.to(inputs.dtype)
        factors = torch.copysign(noise.abs().sqrt(), noise)
        hidden, start = inputs, 0
        means = (*self.means.layers, self.means.head)
        deviations = (*self.deviations.layers, self.deviations.head)
        for index, (mean, deviation) in enumerate(zip(means, deviations, strict=True)):
            middle, stop = start + self.sizes[index], start + self.sizes[index] + self.sizes[index + 1]
            drawn = functional.linear(hidden * factors[..., start:middle], deviation.weight[0], deviation.bias[0, 0])
            hidden = functional.linear(hidden, mean.weight[0], mean.bias[0, 0]) + drawn * factors[..., middle:stop]
            if index < len(self.means.layers):
                if self.means.norms:
                    hidden = self.means.norms[index](hidden[None])[0]
                hidden = self._activate(hidden)
            start = stop
        return hidden


def can_pack_noisy(towers: nn.Module) -> bool:
    """Whether numpy can do what a module does: exactly `NoisyTowers`, without normalisation, as `can_pack` has it."""
    return type(towers) is NoisyTowers and can_pack(towers.means) and not towers.means.norms


class _Parameter(NamedTuple):
    """One parameter without its first axis: mean and deviation with their gradients, and what was drawn with its own.

    `noise` is that of the last draw, of the same shape.
    """

    mean: Array
    deviation: Array
    mean_gradient: Array
    deviation_gradient: Array
    drawn: Array
    drawn_gradient: Array
    noise: Array


class PackedNoisyTower:
    """A noisy network by hand, with one noise for all rows: a `PackedTower` of the weights that were drawn.

    With W = M + D N and G = dL/dW: dL/dM = G and dL/dD = G N, element by element.

    Args:
        towers: their `.grad` must be set and stay the same memory; see `can_pack_noisy`.
    """

    def __init__(self, towers: NoisyTowers) -> None:
        drawn = copy.deepcopy(towers.means)
        FlatParameters(drawn)  # gives it gradients
        self._drawn = drawn
        self._tower = PackedTower(drawn)
        modules = (towers.means, towers.deviations, drawn)
        layers = [(*module.layers, module.head) for module in modules]
        self._weights = [_parameter(*(layer.weight for layer in row)) for row in zip(*layers, strict=True)]
        self._biases = [_parameter(*(layer.bias for layer in row)) for row in zip(*layers, strict=True)]

    def forward(self, inputs: Array, noise: Array) -> Array:
        """Return `[B, outputs]` for `[B, inputs]` and noise `[noise_size]`; `backward` belongs to the last call."""
        factors = _factors(noise, self._weights[0].mean.dtype)
        start = 0
        for weight, bias in zip(self._weights, self._biases, strict=True):
            outputs, units = weight.mean.shape
            middle, stop = start + units, start + units + outputs
            np.multiply(factors[middle:stop, None], factors[start:middle], out=weight.noise)
            bias.noise[...] = factors[middle:stop]
            for part in (weight, bias):
                np.multiply(part.deviation, part.noise, out=part.drawn)
                np.add(part.drawn, part.mean, out=part.drawn)
            start = stop
        return self._tower.forward(inputs)

    def backward(self, by_outputs: Array) -> None:
        """Write the gradients of means and deviations from the derivatives `[B, outputs]` of a loss."""
        self._tower.backward(by_outputs)
        for part in (*self._weights, *self._biases):
            part.mean_gradient[...] = part.drawn_gradient
            np.multiply(part.drawn_gradient, part.noise, out=part.deviation_gradient)


class FrozenNoisyTowers(FrozenTowers):
    """A copy of a noisy network that predicts in numpy, with a noise of its own for each row, or with none.

    Args:
        towers: see `can_pack_noisy`.
    """

    def __init__(self, towers: NoisyTowers) -> None:
        super().__init__(towers.means)
        layers = (*towers.deviations.layers, towers.deviations.head)
        self._weight_deviations = [np.array(layer.weight.detach()[0].numpy().T, order="C") for layer in layers]
        self._bias_deviations = [np.array(layer.bias.detach()[0, 0].numpy()) for layer in layers]

    def noisy(self, inputs: Array, noise: Array, *, rowwise: bool) -> Array:
        """Return `[B, outputs]` for `[B, inputs]` and noise `[B, noise_size]`; `rowwise` as in other calls."""
        factors = _factors(noise, self._weights[0].dtype)
        if rowwise:  # numpy multiplies a stack of one-row matrices one by one
            inputs, factors = inputs[:, None], factors[:, None]
        hidden, start, last = inputs, 0, len(self._weights) - 1
        for index, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            units, outputs = weight.shape[1:]
            middle, stop = start + units, start + units + outputs
            drawn = np.matmul(hidden * factors[..., start:middle], self._weight_deviations[index])
            drawn += self._bias_deviations[index]
            drawn *= factors[..., middle:stop]
            hidden = np.matmul(hidden, weight[0])
            hidden += bias[0]
            hidden += drawn
            if index < last:
                self._activate(hidden, _ZERO)
            start = stop
        return np.asarray(hidden[:, 0] if rowwise else hidden)


_ZERO = np.zeros(1, np.float32)


def _factors(noise: Array, dtype: np.dtype[Any]) -> Array:
    exact = noise.astype(dtype, copy=False)
    return np.asarray(np.copysign(np.sqrt(np.abs(exact)), exact))


def _parameter(mean: nn.Parameter, deviation: nn.Parameter, drawn: nn.Parameter) -> _Parameter:
    (means, by_means), (deviations, by_deviations), (values, by_values) = map(_views, (mean, deviation, drawn))
    return _Parameter(means, deviations, by_means, by_deviations, values, by_values, np.empty_like(means))


def _views(parameter: nn.Parameter) -> tuple[Array, Array]:
    assert parameter.grad is not None
    return parameter.detach()[0].numpy(), parameter.grad[0].numpy()
