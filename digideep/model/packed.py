"""Forward and backward passes of standard networks in numpy, on the memory of torch's parameters and gradients.

For small networks the time goes into torch's calls, and on some processors into its tanh, not into arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.model.mlp import ACTIVATIONS, ActorCriticMLP, Prediction
from digideep.model.observations import flat_rows

__all__ = ["PackedMLP"]

Array: TypeAlias = np.ndarray[Any, Any]


def _through_tanh(gradient: Array, activated: Array) -> None:
    slope = activated * activated
    np.subtract(1.0, slope, out=slope)
    gradient *= slope


def _through_relu(gradient: Array, activated: Array) -> None:
    gradient *= activated > 0.0


_BACKWARD: dict[str, Callable[[Array, Array], None]] = {"tanh": _through_tanh, "relu": _through_relu}


class _Layer(NamedTuple):
    weight: Array
    bias: Array
    weight_gradient: Array
    bias_gradient: Array


class PackedMLP:
    """An `ActorCriticMLP` in numpy: the same weights in the same memory, and gradients where autograd would put them.

    For a linear layer y = x W' + b with dL/dy = g: dL/dW = g' x, dL/db = sum of g over the batch, dL/dx = g W. For an
    activation h = tanh(z): dL/dz = g (1 - h^2).

    Args:
        network: its parameters' `.grad` must be set and stay the same memory; `FlatParameters` sees to both.
    """

    def __init__(self, network: ActorCriticMLP) -> None:
        self._specs = network.observations
        self._shared = network.config.shared
        self._activate, self._back = ACTIVATIONS[network.config.activation], _BACKWARD[network.config.activation]
        self._policy = [_layer(layer) for layer in network.policy_layers]
        self._value = [_layer(layer) for layer in network.value_layers]
        self._policy_head, self._value_head = _layer(network.policy_head), _layer(network.value_head)
        self._policy_inputs: list[Array] = []
        self._value_inputs: list[Array] = []

    @staticmethod
    def can_pack(network: nn.Module) -> bool:
        """Whether `network` is exactly an `ActorCriticMLP`, all trainable, on the CPU, with an activation numpy has."""
        if type(network) is not ActorCriticMLP or network.config.activation not in ACTIVATIONS:
            return False
        return all(p.requires_grad and p.device.type == "cpu" for p in network.parameters())

    def forward(self, observations: Mapping[str, torch.Tensor]) -> Prediction:
        """Return the prediction for a batch and keep what `backward` needs."""
        inputs = flat_rows({slot: tensor.numpy() for slot, tensor in observations.items()}, self._specs)
        self._policy_inputs = self._up(self._policy, inputs)
        self._value_inputs = self._policy_inputs if self._shared else self._up(self._value, inputs)
        outputs = _linear(self._policy_inputs[-1], self._policy_head)
        values = _linear(self._value_inputs[-1], self._value_head)
        return Prediction(outputs, values[:, 0])

    def backward(self, by_outputs: Array, by_values: Array) -> None:
        """Write the gradient of a loss, from its derivatives by the outputs of the last `forward`."""
        by_policy = _head_backward(self._policy_head, by_outputs, self._policy_inputs)
        by_value = _head_backward(self._value_head, by_values[:, None], self._value_inputs)
        if self._shared:
            by_policy += by_value
        else:
            self._down(self._value, by_value, self._value_inputs)
        self._down(self._policy, by_policy, self._policy_inputs)

    def _up(self, layers: list[_Layer], inputs: Array) -> list[Array]:
        """Return the inputs of every layer, those of the head last."""
        every = [inputs]
        for layer in layers:
            hidden = _linear(every[-1], layer)
            self._activate(hidden)
            every.append(hidden)
        return every

    def _down(self, layers: list[_Layer], gradient: Array, inputs: list[Array]) -> None:
        for index in range(len(layers) - 1, -1, -1):
            layer = layers[index]
            self._back(gradient, inputs[index + 1])
            _write(layer, gradient, inputs[index])
            if index:  # nobody asks for the gradient of observations
                gradient = np.matmul(gradient, layer.weight)


def _linear(inputs: Array, layer: _Layer) -> Array:
    result = np.matmul(inputs, layer.weight.T)
    result += layer.bias
    return np.asarray(result)


def _head_backward(head: _Layer, gradient: Array, inputs: list[Array]) -> Array:
    _write(head, gradient, inputs[-1])
    return np.asarray(np.matmul(gradient, head.weight))


def _write(layer: _Layer, gradient: Array, inputs: Array) -> None:
    np.matmul(gradient.T, inputs, out=layer.weight_gradient)
    np.sum(gradient, axis=0, out=layer.bias_gradient)


def _layer(layer: nn.Module) -> _Layer:
    assert isinstance(layer, nn.Linear) and layer.weight.grad is not None and layer.bias.grad is not None
    arrays = (layer.weight.detach(), layer.bias.detach(), layer.weight.grad, layer.bias.grad)
    return _Layer(*(tensor.numpy() for tensor in arrays))
