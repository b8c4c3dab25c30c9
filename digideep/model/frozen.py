"""Copies of standard networks that predict in numpy: for few rows several times as fast as torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.model.mlp import ActorCriticMLP, Trunk
from digideep.model.observations import flat_rows
from digideep.spec import ArraySpec

__all__ = ["ACTIVATIONS", "FrozenLayer", "FrozenMLP", "Prediction", "frozen_layer"]

Array: TypeAlias = np.ndarray[Any, Any]


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


class FrozenLayer(NamedTuple):
    """Copies of `S` layers of one shape: weights `[S, in, out]`, biases `[S, 1, out]`, and their normalisation."""

    weight: Array
    bias: Array
    norm: _Norm | None

    def first(self) -> FrozenLayer:
        """Return the first of the stack alone, without its axis."""
        norm = self.norm
        alone = None if norm is None else norm._replace(weight=norm.weight[0], bias=norm.bias[0])
        return FrozenLayer(self.weight[0], self.bias[0], alone)


class _Norm(NamedTuple):
    """Gains and biases `[S, 1, out]`, and what is added to a variance."""

    weight: Array
    bias: Array
    eps: float

    def apply(self, values: Array) -> None:
        """Normalise rows `[..., out]` in place."""
        values -= values.mean(axis=-1, keepdims=True)
        values /= np.sqrt(np.square(values).mean(axis=-1, keepdims=True) + np.float32(self.eps))
        values *= self.weight
        values += self.bias


class FrozenMLP:
    """A copy of an `ActorCriticMLP`'s weights that predicts in numpy.

    Layers of policy and value function that have the same place in either are done together, as a stack of two, where
    both have the same sizes. Use `FrozenMLP.can_freeze` first; not every activation exists in numpy.

    Attributes:
        is_split: whether the policy has layers of its own, so that `outputs` costs less than a prediction.
    """

    def __init__(self, network: ActorCriticMLP) -> None:
        self._activate = ACTIVATIONS[network.config.activation]
        self._policy_head, self._value_head = frozen_layer([network.policy_head]), frozen_layer([network.value_head])
        trunks = network.trunks
        self._layers = _stacked(trunks if network.is_symmetric else trunks[:1])
        self._policy = _Tower(trunks[0], [*self._layers, self._policy_head], activate=self._activate)
        self._value: _Tower | None = None
        if not network.is_symmetric:
            self._value = _Tower(trunks[1], [*_stacked(trunks[1:]), self._value_head], activate=self._activate)
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
        if self._value is not None:
            values = self._value(observations, rowwise=rowwise)
            return Prediction(self._policy(observations, rowwise=rowwise), values[:, 0])
        inputs = flat_rows(observations, self._policy.specs)
        if rowwise:
            return self._by_row(inputs)
        rows = len(inputs)
        if rows != self._rows:
            self._hidden = [np.empty((len(w), rows, w.shape[2]), np.float32) for w, _, _ in self._layers]
            self._rows = rows
        hidden = inputs[None]
        for (weight, bias, norm), result in zip(self._layers, self._hidden, strict=True):
            np.matmul(hidden, weight, out=result)
            result += bias
            if norm is not None:
                norm.apply(result)
            self._activate(result)
            hidden = result
        policy, value = self._policy_head, self._value_head
        outputs = np.matmul(hidden[0], policy.weight[0])
        outputs += policy.bias[0]
        values = np.matmul(hidden[-1], value.weight[0, :, 0])
        values += value.bias[0, 0]
        return Prediction(outputs, values)

    def outputs(self, observations: Mapping[str, Array]) -> Array:
        """Return the policy's outputs `[B, outputs]` alone, whose bits depend on `B`."""
        return self._policy(observations, rowwise=False)

    def _by_row(self, inputs: Array) -> Prediction:
        # A stack of one-row matrices is what numpy multiplies one by one.
        hidden = inputs[None, :, None]
        for weight, bias, norm in self._layers:
            hidden = np.matmul(hidden, weight[:, None])
            hidden += bias[:, None]
            if norm is not None:
                norm._replace(weight=norm.weight[:, None], bias=norm.bias[:, None]).apply(hidden)
            self._activate(hidden)
        policy, value = self._policy_head, self._value_head
        outputs, values = np.matmul(hidden[0], policy.weight) + policy.bias, np.matmul(hidden[-1], value.weight)
        return Prediction(outputs[:, 0], (values + value.bias)[:, 0, 0])


class _Tower:
    """One trunk and its head: `[B, out]` for observations; only the slots that the trunk sees are looked at.

    Args:
        trunk: says which slots.
        layers: of the trunk and the head; of stacks the first.
        activate: between them.
    """

    def __init__(self, trunk: Trunk, layers: Sequence[FrozenLayer], *, activate: Callable[[Array], None]) -> None:
        self.specs: Mapping[str, ArraySpec] = trunk.observations
        self._layers = [layer.first() for layer in layers]
        self._activate = activate

    def __call__(self, observations: Mapping[str, Array], *, rowwise: bool) -> Array:
        hidden = flat_rows(observations, self.specs)
        if rowwise:
            hidden = hidden[:, None]
        for weight, bias, norm in self._layers[:-1]:
            hidden = np.matmul(hidden, weight)
            hidden += bias
            if norm is not None:
                norm.apply(hidden)
            self._activate(hidden)
        weight, bias, _ = self._layers[-1]
        result = np.matmul(hidden, weight)
        result += bias
        return np.asarray(result[:, 0] if rowwise else result)


def _stacked(trunks: Sequence[Trunk]) -> list[FrozenLayer]:
    """Return the layers of trunks of one shape, those of one place together."""
    places = list(zip(*(trunk.layers for trunk in trunks), strict=True))
    norms = list(zip(*(trunk.norms for trunk in trunks), strict=True)) or [()] * len(places)
    return [frozen_layer(layers, norms=norms[index]) for index, layers in enumerate(places)]


def frozen_layer(layers: Sequence[nn.Module], *, norms: Sequence[nn.Module] = ()) -> FrozenLayer:
    """Return copies of linear layers of one shape, and of the normalisations behind them."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    weight = np.stack([layer.weight.detach().numpy().T for layer in linear])
    bias = np.stack([layer.bias.detach().numpy()[None] for layer in linear])
    found = [norm for norm in norms if isinstance(norm, nn.LayerNorm)]
    norm = None
    if found:
        gains = np.stack([one.weight.detach().numpy()[None] for one in found])
        norm = _Norm(gains, np.stack([one.bias.detach().numpy()[None] for one in found]), found[0].eps)
    return FrozenLayer(np.ascontiguousarray(weight), bias, norm)
