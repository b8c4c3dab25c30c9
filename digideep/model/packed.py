"""Forward and backward passes of standard networks in numpy, on the memory of torch's parameters and gradients.

For small networks the time goes into torch's calls, and on some processors into its tanh, not into arithmetic. Layers
of policy and value function that have the same place in either are done together, as a stack of two, where both have
the same sizes and see the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from torch import nn

from digideep.model.frozen import ACTIVATIONS
from digideep.model.mlp import ActorCriticMLP, Trunk
from digideep.model.observations import flat_rows

__all__ = ["PackedMLP"]

Array: TypeAlias = np.ndarray[Any, Any]


def _through_tanh(gradient: Array, activated: Array) -> None:
    np.multiply(activated, activated, out=activated)
    np.subtract(1.0, activated, out=activated)
    gradient *= activated


def _through_relu(gradient: Array, activated: Array) -> None:
    gradient *= activated > 0.0


_BACKWARD: dict[str, Callable[[Array, Array], None]] = {"tanh": _through_tanh, "relu": _through_relu}


class _Layer(NamedTuple):
    """A stack of `S` layers: weights `[S, out, in]`, the same as `[S, in, out]`, biases `[S, 1, out]`, gradients."""

    weight: Array
    transposed: Array
    bias: Array
    weight_gradient: Array
    bias_gradient: Array


class _Work(NamedTuple):
    """What passes over `B` rows need: activations and their gradients `[S, B, out]` by layer, and ones `[1, B]`."""

    hidden: list[Array]
    gradients: list[Array]
    ones: Array


class _Stack:
    """`S` trunks of one shape that see the same.

    Attributes:
        last: what the last hidden layers gave, `[S, B, out]`; without any the inputs, `[1, B, in]`.
        gradient: where the derivatives by it go before `backward`; None without hidden layers.
    """

    def __init__(self, trunks: Sequence[Trunk], *, activation: str, dtype: np.dtype[Any]) -> None:
        self._specs = trunks[0].observations
        self._activate, self._back = ACTIVATIONS[activation], _BACKWARD[activation]
        self._layers = [_stack(layers) for layers in zip(*(trunk.layers for trunk in trunks), strict=True)]
        self._dtype = dtype
        self._works: dict[int, _Work] = {}
        self._inputs = self.last = np.empty((1, 0, 0), dtype)
        self._at = _Work([], [], np.empty((1, 0), dtype))

    @property
    def gradient(self) -> Array | None:
        return self._at.gradients[-1] if self._layers else None

    def forward(self, observations: Mapping[str, Array]) -> None:
        """Fill `last`, and keep what `backward` needs."""
        self._inputs = hidden = flat_rows(observations, self._specs, dtype=self._dtype)[None]
        self._at = work = self._work(hidden.shape[1])
        for layer, activated in zip(self._layers, work.hidden, strict=True):
            np.matmul(hidden, layer.transposed, out=activated)
            activated += layer.bias
            self._activate(activated)
            hidden = activated
        self.last = hidden

    def backward(self) -> None:
        """Write the gradients of all layers from what stands in `gradient`."""
        work = self._at
        for index in range(len(self._layers) - 1, -1, -1):
            layer, gradient = self._layers[index], work.gradients[index]
            self._back(gradient, work.hidden[index])
            inputs = work.hidden[index - 1] if index else self._inputs
            np.matmul(gradient.transpose(0, 2, 1), inputs, out=layer.weight_gradient)
            np.matmul(work.ones, gradient, out=layer.bias_gradient)
            if index:  # nobody asks for the gradient of observations
                np.matmul(gradient, layer.weight, out=work.gradients[index - 1])

    def _work(self, rows: int) -> _Work:
        work = self._works.get(rows)
        if work is None:
            shapes = [(len(layer.weight), rows, layer.weight.shape[1]) for layer in self._layers]
            work = _Work(
                hidden=[np.empty(shape, self._dtype) for shape in shapes],
                gradients=[np.empty(shape, self._dtype) for shape in shapes],
                ones=np.ones((1, rows), self._dtype),
            )
            self._works[rows] = work
        return work


class PackedMLP:
    """An `ActorCriticMLP` in numpy: the same weights in the same memory, and gradients where autograd would put them.

    For a linear layer y = x W' + b with dL/dy = g: dL/dW = g' x, dL/db = sum of g over the batch, dL/dx = g W. For an
    activation h = tanh(z): dL/dz = g (1 - h^2).

    Args:
        network: its parameters' `.grad` must be set and stay the same memory; `FlatParameters` sees to both.
    """

    def __init__(self, network: ActorCriticMLP) -> None:
        self._policy_head, self._value_head = _stack([network.policy_head]), _stack([network.value_head])
        trunks = network.trunks
        groups = [trunks] if network.is_symmetric else [[trunk] for trunk in trunks]
        activation, dtype = network.config.activation, self._policy_head.weight.dtype
        self._stacks = [_Stack(group, activation=activation, dtype=dtype) for group in groups]

    @staticmethod
    def can_pack(network: nn.Module) -> bool:
        """Whether numpy can do all: exactly an `ActorCriticMLP`, trainable, on the CPU, without layer normalisation."""
        if type(network) is not ActorCriticMLP or network.config.activation not in ACTIVATIONS:
            return False
        return not network.config.layer_norm and all(
            p.requires_grad and p.device.type == "cpu" for p in network.parameters()
        )

    def forward(self, observations: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return policy outputs `[outputs, B]` and values `[B]`, and keep what `backward` needs."""
        for stack in self._stacks:
            stack.forward(observations)
        outputs = np.matmul(self._policy_head.weight[0], self._stacks[0].last[0].T)
        outputs += self._policy_head.bias[0].T
        values = np.matmul(self._stacks[-1].last[-1], self._value_head.weight[0, 0])
        values += self._value_head.bias[0, 0]
        return outputs, values

    def backward(self, by_outputs: Array, by_values: Array) -> None:
        """Write the gradient of a loss, from its derivatives by the outputs of the last `forward`, once for each."""
        policy, value = self._policy_head, self._value_head
        first, last = self._stacks[0], self._stacks[-1]
        np.matmul(by_outputs, first.last[0], out=policy.weight_gradient[0])
        np.add.reduce(by_outputs, axis=1, out=policy.bias_gradient[0, 0])
        np.matmul(by_values, last.last[-1], out=value.weight_gradient[0, 0])
        value.bias_gradient[...] = np.add.reduce(by_values)
        gradient = first.gradient
        if gradient is not None:
            np.matmul(by_outputs.T, policy.weight[0], out=gradient[0])
        into = last.gradient
        if into is not None:
            if len(into) > 1 or last is not first:
                np.multiply(by_values[:, None], value.weight[0], out=into[-1])
            else:
                into[0] += by_values[:, None] * value.weight[0]
        for stack in self._stacks:
            stack.backward()


def _stack(layers: Sequence[nn.Module]) -> _Layer:
    parts = [_arrays(layer) for layer in layers]
    weight, bias, weight_gradient, bias_gradient = (_stacked(arrays) for arrays in zip(*parts, strict=True))
    return _Layer(weight, weight.transpose(0, 2, 1), bias[:, None], weight_gradient, bias_gradient[:, None])


def _arrays(layer: nn.Module) -> tuple[Array, Array, Array, Array]:
    assert isinstance(layer, nn.Linear) and layer.weight.grad is not None and layer.bias.grad is not None
    tensors = (layer.weight.detach(), layer.bias.detach(), layer.weight.grad, layer.bias.grad)
    weight, bias, weight_gradient, bias_gradient = (tensor.numpy() for tensor in tensors)
    return weight, bias, weight_gradient, bias_gradient


def _stacked(arrays: Sequence[Array]) -> Array:
    """Return one or two arrays of one shape as one `[S, ...]` view; both lie in one flat buffer, at any distance."""
    first = arrays[0]
    distance = arrays[-1].ctypes.data - first.ctypes.data
    return as_strided(first, (len(arrays), *first.shape), (distance, *first.strides))
