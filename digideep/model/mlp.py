"""Fully connected networks for a policy and its value function, for torch and frozen for numpy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
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
    """A copy of an `ActorCriticMLP`'s weights that predicts in numpy: for few rows several times as fast as torch.

    Layers of policy and value function that have the same place in either are done together, as a stack of two. Use
    `FrozenMLP.can_freeze` first; not every activation exists in numpy.

    Attributes:
        is_split: whether the policy has layers of its own, so that `outputs` costs less than a prediction.
    """

    def __init__(self, network: ActorCriticMLP) -> None:
        self._specs = network.observations
        self._activate = ACTIVATIONS[network.config.activation]
        towers = [network.policy_layers] if network.config.shared else [network.policy_layers, network.value_layers]
        self._layers = [_frozen(layers) for layers in zip(*towers, strict=True)]
        self._policy_head, self._value_head = _frozen([network.policy_head]), _frozen([network.value_head])
        self._tower = [(weight[0], bias[0]) for weight, bias in (*self._layers, self._policy_head)]
        self._rows, self._hidden = -1, list[Array]()  # of the newest number of rows: others may come by the thousand
        self.is_split = not network.config.shared

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
        if rowwise:
            return self._by_row(inputs)
        rows = len(inputs)
        if rows != self._rows:
            self._hidden = [np.empty((len(weight), rows, weight.shape[2]), np.float32) for weight, _ in self._layers]
            self._rows = rows
        hidden = inputs[None]
        for (weight, bias), result in zip(self._layers, self._hidden, strict=True):
            np.matmul(hidden, weight, out=result)
            result += bias
            self._activate(result)
            hidden = result
        (weight, bias), (value_weight, value_bias) = self._policy_head, self._value_head
        outputs = np.matmul(hidden[0], weight[0])
        outputs += bias[0]
        values = np.matmul(hidden[-1], value_weight[0, :, 0])
        values += value_bias[0, 0]
        return Prediction(outputs, values)

    def outputs(self, observations: Mapping[str, Array]) -> Array:
        """Return the policy's outputs `[B, outputs]` alone, whose bits depend on `B`."""
        hidden = flat_rows(observations, self._specs)
        for weight, bias in self._tower[:-1]:
            hidden = np.matmul(hidden, weight)
            hidden += bias
            self._activate(hidden)
        weight, bias = self._tower[-1]
        result = np.matmul(hidden, weight)
        result += bias
        return np.asarray(result)

    def _by_row(self, inputs: Array) -> Prediction:
        # A stack of one-row matrices is what numpy multiplies one by one.
        hidden = inputs[None, :, None]
        for weight, bias in self._layers:
            hidden = np.matmul(hidden, weight[:, None])
            hidden += bias[:, None]
            self._activate(hidden)
        (weight, bias), (value_weight, value_bias) = self._policy_head, self._value_head
        outputs, values = np.matmul(hidden[0], weight) + bias, np.matmul(hidden[-1], value_weight) + value_bias
        return Prediction(outputs[:, 0], values[:, 0, 0])


def _hidden(sizes: tuple[int, ...]) -> nn.ModuleList:
    pairs = itertools.pairwise(sizes)
    return nn.ModuleList(orthogonal_linear(inputs, outputs, gain=HIDDEN_GAIN) for inputs, outputs in pairs)


def _frozen(layers: Sequence[nn.Module]) -> tuple[Array, Array]:
    """Return copies of the weights `[S, in, out]` and biases `[S, 1, out]` of `S` layers of one shape."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    weight = np.stack([layer.weight.detach().numpy().T for layer in linear])
    return np.ascontiguousarray(weight), np.stack([layer.bias.detach().numpy()[None] for layer in linear])
