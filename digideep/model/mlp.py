"""Fully connected networks for a policy and its value function, for torch and frozen for numpy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from digideep.model.config import MLPConfig
from digideep.model.init import HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN, orthogonal_linear
from digideep.model.observations import FlatObservations, flat_rows
from digideep.spec import ArraySpec

__all__ = ["ACTIVATIONS", "ActorCriticMLP", "FrozenMLP", "Prediction"]

Array: TypeAlias = np.ndarray[Any, Any]

_TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": functional.elu,
    "gelu": functional.gelu,
    "silu": functional.silu,
}


def _tanh(values: Array) -> None:
    np.tanh(values, out=values)


def _relu(values: Array) -> None:
    np.maximum(values, 0.0, out=values)


ACTIVATIONS: dict[str, Callable[[Array], None]] = {"tanh": _tanh, "relu": _relu}
"""Activations that numpy computes in place; the others exist in torch only."""


class Prediction(NamedTuple):
    """What a network says about `B` observations: policy outputs `[B, outputs]` and values `[B]`."""

    outputs: Array
    values: Array


class ActorCriticMLP(nn.Module):
    """Hidden layers, then one linear layer for the policy's outputs and one for the value.

    With `shared` both read the same hidden layers, otherwise each has its own.
    """

    network_class = MLPConfig.network_class

    def __init__(self, config: MLPConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        super().__init__()
        self.config = config
        self.observations = dict(observations)
        self.flatten = FlatObservations(observations)
        sizes = (self.flatten.size, *config.hidden_sizes)
        self.policy_layers = _hidden(sizes)
        self.value_layers = nn.ModuleList() if config.shared else _hidden(sizes)
        self.policy_head = orthogonal_linear(sizes[-1], outputs, gain=POLICY_GAIN)
        self.value_head = orthogonal_linear(sizes[-1], 1, gain=VALUE_GAIN)
        self._activation = _TORCH[config.activation]

    def forward(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, outputs]` and values `[B]`."""
        inputs = self.flatten(observations)
        policy_hidden = self._through(self.policy_layers, inputs)
        value_hidden = policy_hidden if self.config.shared else self._through(self.value_layers, inputs)
        return self.policy_head(policy_hidden), self.value_head(value_hidden).squeeze(-1)

    def _through(self, layers: nn.ModuleList, hidden: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            hidden = self._activation(layer(hidden))
        return hidden


class FrozenMLP:
    """A copy of an `ActorCriticMLP`'s weights that predicts in numpy: for few rows three times as fast as torch.

    Use `FrozenMLP.can_freeze` first; not every activation exists in numpy.
    """

    def __init__(self, network: ActorCriticMLP) -> None:
        self._specs = network.observations
        self._shared = network.config.shared
        self._activate = ACTIVATIONS[network.config.activation]
        self._policy = [_frozen(layer) for layer in (*network.policy_layers, network.policy_head)]
        self._value = [_frozen(layer) for layer in (*network.value_layers, network.value_head)]

    @staticmethod
    def can_freeze(network: nn.Module) -> bool:
        """Whether `network` is exactly an `ActorCriticMLP`, on the CPU, in float32, with an activation numpy has."""
        if type(network) is not ActorCriticMLP or network.config.activation not in ACTIVATIONS:
            return False
        weight = network.policy_head.weight
        return weight.device.type == "cpu" and weight.dtype == torch.float32

    def __call__(self, observations: Mapping[str, Array], *, rowwise: bool) -> Prediction:
        """Return the prediction for `[B, ...]` observations.

        With `rowwise` each row is multiplied on its own, so that its result has the same bits in every batch; without,
        one matrix product does all rows, whose bits depend on `B`.
        """
        inputs = flat_rows(observations, self._specs)
        # A stack of one-row matrices is what numpy multiplies one by one.
        hidden = inputs[:, None] if rowwise else inputs
        outputs, last = self._through(self._policy, hidden)
        values, _ = self._through(self._value, last if self._shared else hidden)
        rows = len(inputs)
        return Prediction(outputs=outputs.reshape(rows, -1), values=values.reshape(rows))

    def _through(self, layers: list[tuple[Array, Array]], hidden: Array) -> tuple[Array, Array]:
        for weight, bias in layers[:-1]:
            hidden = np.matmul(hidden, weight)
            hidden += bias
            self._activate(hidden)
        weight, bias = layers[-1]
        result = np.matmul(hidden, weight)
        result += bias
        return result, hidden


def _hidden(sizes: tuple[int, ...]) -> nn.ModuleList:
    pairs = itertools.pairwise(sizes)
    return nn.ModuleList(orthogonal_linear(inputs, outputs, gain=HIDDEN_GAIN) for inputs, outputs in pairs)


def _frozen(layer: nn.Module) -> tuple[Array, Array]:
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy()
