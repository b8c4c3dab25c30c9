"""Fully connected networks of one shape side by side: twin critics cost one call a layer, not two.

`Towers` is the torch module, for autograd on any device. `PackedTower` and `FrozenTowers` in `packed_towers.py` compute
the same in numpy, on the same memory and on a copy of it.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal, TypeAlias

import torch
from torch import nn

from digideep.model.mlp import TORCH_ACTIVATIONS

__all__ = ["NORM_EPSILON", "Activation", "TowerLayer", "TowerNorm", "Towers"]

Activation: TypeAlias = Literal["tanh", "relu", "elu", "gelu", "silu"]

NORM_EPSILON = 1e-5
"""Added to a variance before its root, in layer normalisation."""


class TowerLayer(nn.Module):
    """`S` linear layers: weights `[S, outputs, inputs]`, biases `[S, 1, outputs]`.

    Weights and biases are uniform within `bound`, by default 1 / sqrt(inputs), drawn from torch's global generator one
    tower after the other: one tower is what `torch.nn.Linear` would be.

    Source: Lillicrap et al. 2016, arXiv:1509.02971, section 7, also for the bound of a last layer.
    """

    def __init__(self, inputs: int, outputs: int, *, count: int, bound: float | None = None) -> None:
        super().__init__()
        limit = 1.0 / math.sqrt(inputs) if bound is None else bound
        drawn = [(torch.empty(outputs, inputs), torch.empty(1, outputs)) for _ in range(count)]
        for weight, bias in drawn:
            nn.init.uniform_(weight, -limit, limit)
            nn.init.uniform_(bias, -limit, limit)
        self.weight = nn.Parameter(torch.stack([weight for weight, _ in drawn]))
        self.bias = nn.Parameter(torch.stack([bias for _, bias in drawn]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return `[S, B, outputs]` for `[S, B, inputs]`."""
        return torch.baddbmm(self.bias, inputs, self.weight.transpose(1, 2))


class TowerNorm(nn.Module):
    """Layer normalisation of each tower: mean 0 and variance 1 of a row, then times `weight` plus `bias`.

    Source: Ba et al. 2016, arXiv:1607.06450, eq. 4.
    """

    def __init__(self, units: int, *, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(count, 1, units))
        self.bias = nn.Parameter(torch.zeros(count, 1, units))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return `[S, B, units]`."""
        normed = nn.functional.layer_norm(inputs, inputs.shape[-1:], eps=NORM_EPSILON)
        return normed * self.weight + self.bias


class Towers(nn.Module):
    """`count` networks from the same `[B, inputs]` to `[count, B, outputs]`.

    Args:
        inputs: numbers in a row.
        hidden_sizes: units of each hidden layer.
        outputs: of each network.
        count: networks.
        activation: between the layers.
        layer_norm: whether hidden layers are normalised before their activation.
        last_bound: of the weights and biases of the last layer; None: as of the others.
    """

    def __init__(
        self,
        inputs: int,
        *,
        hidden_sizes: tuple[int, ...],
        outputs: int,
        count: int = 1,
        activation: Activation,
        layer_norm: bool = False,
        last_bound: float | None = None,
    ) -> None:
        super().__init__()
        self.inputs, self.count, self.activation = inputs, count, activation
        sizes = (inputs, *hidden_sizes)
        self.layers = nn.ModuleList(TowerLayer(a, b, count=count) for a, b in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(TowerNorm(units, count=count) for units in hidden_sizes if layer_norm)
        self.head = TowerLayer(sizes[-1], outputs, count=count, bound=last_bound)
        self._activate = TORCH_ACTIVATIONS[activation]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return `[count, B, outputs]` for `[B, inputs]`."""
        hidden = inputs.expand(self.count, *inputs.shape)
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden)
            if self.norms:
                hidden = self.norms[index](hidden)
            hidden = self._activate(hidden)
        result: torch.Tensor = self.head(hidden)
        return result
