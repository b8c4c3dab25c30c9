"""Towers in numpy: forward and backward passes by hand on torch's memory, and a frozen copy that predicts.

On CPUs numpy's products are faster than torch's for networks of this kind, and each tower can be computed by a thread
of its own without changing a bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from digideep.model.towers import NORM_EPSILON, TowerLayer, TowerNorm, Towers

__all__ = ["FrozenTowers", "PackedTower", "bits_of", "can_pack"]

Array: TypeAlias = np.ndarray[Any, Any]

_WORTH_A_THREAD = 2**22  # multiplications of a product; two of 2^24 take 0.15 ms each, a thread is told in 0.02 ms


def can_pack(towers: torch.nn.Module) -> bool:
    """Whether numpy can do what a module does: exactly `Towers`, on the CPU, with an activation that numpy has."""
    if type(towers) is not Towers or towers.activation not in _FORWARD:
        return False
    return all(p.requires_grad and p.device.type == "cpu" for p in towers.parameters())


class _Norm(NamedTuple):
    weight: Array
    bias: Array
    weight_gradient: Array | None
    bias_gradient: Array | None


class _Layer(NamedTuple):
    """One layer: weight `[out, in]`, bias `[out]`, their gradients where there are some, and its normalisation."""

    weight: Array
    bias: Array
    weight_gradient: Array | None
    bias_gradient: Array | None
    norm: _Norm | None


class _Work(NamedTuple):
    """What passes over `B` rows need, by hidden layer, each `[B, units]`; `normed` and `scales` only with norms."""

    hidden: list[Array]
    gradients: list[Array]
    masks: list[Array]
    zeros: list[Array]
    normed: list[Array]
    scales: list[Array]
    ones: Array


class PackedTower:
    """One tower by hand: the same weights in the same memory, and gradients where autograd would put them.

    For a linear layer y = x W' + b with dL/dy = g: dL/dW = g' x, dL/db = sum of g over the batch, dL/dx = g W. For
    h = tanh(z): dL/dz = g (1 - h^2); for h = max(z, 0): dL/dz = g where h > 0. For a normalised row
    n = (z - mean) / s, y = n w + b: with q = g w, dL/dz = (q - mean(q) - n mean(q n)) / s.

    Args:
        towers: where they have gradients, their `.grad` must be set and stay the same memory.
        index: which of them.
        run: does two jobs at the same time, neither of which touches what the other writes; None: there is one thread.
    """

    def __init__(self, towers: Towers, index: int = 0, *, run: Callable[..., Any] | None = None) -> None:
        self._run = run
        norms: list[torch.nn.Module | None] = list(towers.norms) or [None for _ in towers.layers]
        pairs = zip(towers.layers, norms, strict=True)
        self._layers = [_layer(layer, index, norm=norm) for layer, norm in pairs]
        self._head = _layer(towers.head, index, norm=None)
        self._activate, self._back = _FORWARD[towers.activation], _BACKWARD[towers.activation]
        self._works: dict[int, _Work] = {}
        self._inputs: Array = np.empty((0, 0))

    def forward(self, inputs: Array) -> Array:
        """Return `[B, outputs]` for `[B, inputs]`, and keep what the backward passes need until the next call."""
        self._inputs = hidden = inputs
        work = self._work(len(inputs))
        for i, layer in enumerate(self._layers):
            result = work.hidden[i]
            np.matmul(hidden, layer.weight.T, out=result)
            result += layer.bias
            if layer.norm is not None:
                _normalise(result, layer.norm, normed=work.normed[i], scale=work.scales[i])
            self._activate(result, work.zeros[i])
            hidden = result
        outputs = np.matmul(hidden, self._head.weight.T)
        outputs += self._head.bias
        return np.asarray(outputs)

    def backward(self, by_outputs: Array) -> None:
        """Write the gradient of a loss from its derivatives `[B, outputs]` by the outputs of the last `forward`."""
        work = self._work(len(self._inputs))
        gradient, above = by_outputs, self._head
        for i in range(len(self._layers) - 1, -1, -1):
            hidden, below = work.hidden[i], work.gradients[i]
            if self._run is not None and hidden.size * gradient.shape[1] >= _WORTH_A_THREAD:
                self._run(
                    partial(_write, above, gradient, hidden, work.ones), partial(_before, above, gradient, out=below)
                )
            else:
                _write(above, gradient, hidden, work.ones)
                _before(above, gradient, out=below)
            gradient = self._through(i, below, writes=True)
            above = self._layers[i]
        _write(above, gradient, self._inputs, work.ones)

    def input_gradient(self, by_outputs: Array, *, first: int = 0) -> Array:
        """Return the derivatives `[B, inputs - first]` by the inputs from column `first` on; no weight is looked at.

        As `backward` it uses what the last `forward` has kept up: call one of them, once.
        """
        work = self._work(len(self._inputs))
        gradient = by_outputs
        above = self._head
        for i in range(len(self._layers) - 1, -1, -1):
            gradient = self._through(i, _before(above, gradient, out=work.gradients[i]), writes=False)
            above = self._layers[i]
        return np.asarray(np.matmul(gradient, above.weight[:, first:]))

    def _through(self, i: int, gradient: Array, *, writes: bool) -> Array:
        """Take a gradient in place from behind the activation of a hidden layer to before its normalisation."""
        work = self._work(len(self._inputs))
        self._back(gradient, work.hidden[i], work.masks[i])
        norm = self._layers[i].norm
        if norm is not None:
            normed = work.normed[i]
            if writes and norm.weight_gradient is not None and norm.bias_gradient is not None:
                np.einsum("bu,bu->u", gradient, normed, out=norm.weight_gradient)
                np.matmul(work.ones, gradient, out=norm.bias_gradient[None])
            gradient *= norm.weight
            along = np.einsum("bu,bu->b", gradient, normed)[:, None] / gradient.shape[1]
            gradient -= gradient.mean(axis=1, keepdims=True)
            # What the forward pass kept is not needed again.
            np.multiply(normed, along, out=normed)
            gradient -= normed
            gradient *= work.scales[i]
        return gradient

    def _work(self, rows: int) -> _Work:
        work = self._works.get(rows)
        if work is None:
            dtype = self._head.weight.dtype
            shapes = [(rows, len(layer.weight)) for layer in self._layers]
            normed = [shape for shape, layer in zip(shapes, self._layers, strict=True) if layer.norm is not None]
            work = _Work(
                hidden=[np.empty(shape, dtype) for shape in shapes],
                gradients=[np.empty(shape, dtype) for shape in shapes],
                masks=[np.empty(shape, bool) for shape in shapes],
                zeros=[np.zeros(shape, dtype) for shape in shapes],
                normed=[np.empty(shape, dtype) for shape in normed],
                scales=[np.empty((rows, 1), dtype) for _ in normed],
                ones=np.ones((1, rows), dtype),
            )
            self._works[rows] = work
        return work


def bits_of(towers: Towers, *, rows: int, first: int = 0) -> list[bytes]:
    """Return what passes over a made-up batch give, bit by bit: outputs, and gradients by inputs and parameters.

    Args:
        towers: as those of `PackedTower`; their gradients are overwritten.
        rows: of the batch.
        first: the column of the inputs from which on a gradient by them is asked for.
    """
    tower = PackedTower(towers)
    layers = [*tower._layers, tower._head]
    rng, dtype = np.random.default_rng(0), layers[0].weight.dtype
    inputs = rng.standard_normal((rows, layers[0].weight.shape[1])).astype(dtype)
    by_outputs = rng.standard_normal((rows, layers[-1].weight.shape[0])).astype(dtype)
    found = [tower.forward(inputs), tower.input_gradient(by_outputs, first=first)]
    tower.forward(inputs)
    tower.backward(by_outputs)
    found += [parameter.grad[0].numpy() for parameter in towers.parameters() if parameter.grad is not None]
    return [array.tobytes() for array in found]


class FrozenTowers:
    """A copy of towers' weights that predicts in numpy.

    Args:
        towers: on the CPU, with an activation that numpy has; see `can_pack`.
    """

    def __init__(self, towers: Towers) -> None:
        layers = [*towers.layers, towers.head]
        norms: list[torch.nn.Module | None] = list(towers.norms) or [None for _ in towers.layers]
        self._weights = [layer.weight.detach().numpy().transpose(0, 2, 1).copy() for layer in layers]
        self._biases = [_copied(layer.bias) for layer in layers]
        self._norms = [
            (_copied(norm.weight), _copied(norm.bias)) if isinstance(norm, TowerNorm) else None for norm in norms
        ]
        self._activate = _FORWARD[towers.activation]

    def __call__(self, inputs: Array, *, rowwise: bool) -> Array:
        """Return `[S, B, outputs]` for `[B, inputs]`.

        With `rowwise` each row is multiplied on its own, so that its result has the same bits in every batch.
        """
        # A stack of one-row matrices is what numpy multiplies one by one: axes are tower, row, 1, unit.
        hidden = inputs[None, :, None] if rowwise else inputs[None]
        weights = [weight[:, None] for weight in self._weights] if rowwise else self._weights
        biases = [bias[:, None] for bias in self._biases] if rowwise else self._biases
        for i, norm in enumerate(self._norms):
            hidden = np.matmul(hidden, weights[i])
            hidden += biases[i]
            if norm is not None:
                scale, shift = (part[:, None] if rowwise else part for part in norm)
                hidden = _normed(hidden) * scale + shift
            self._activate(hidden, _ZERO)
        result = np.matmul(hidden, weights[-1])
        result += biases[-1]
        return np.asarray(result[:, :, 0] if rowwise else result)


_ZERO = np.zeros(1, np.float32)


def _tanh(values: Array, zeros: Array) -> None:
    np.tanh(values, out=values)


def _relu(values: Array, zeros: Array) -> None:
    # With zeros in an array of the same shape numpy takes a quarter of the time that it takes with a number.
    np.maximum(values, zeros, out=values)


def _through_tanh(gradient: Array, activated: Array, mask: Array) -> None:
    np.multiply(activated, activated, out=activated)
    np.subtract(1.0, activated, out=activated)
    gradient *= activated


def _through_relu(gradient: Array, activated: Array, mask: Array) -> None:
    np.greater(activated, 0.0, out=mask)
    gradient *= mask


_FORWARD: dict[str, Callable[[Array, Array], None]] = {"tanh": _tanh, "relu": _relu}
_BACKWARD: dict[str, Callable[[Array, Array, Array], None]] = {"tanh": _through_tanh, "relu": _through_relu}


def _normalise(values: Array, norm: _Norm, *, normed: Array, scale: Array) -> None:
    """Normalise rows in place; keep them before weight and bias, and what they were divided by, turned over."""
    values -= values.mean(axis=1, keepdims=True)
    np.divide(1.0, np.sqrt(_variance(values) + NORM_EPSILON), out=scale)
    np.multiply(values, scale, out=normed)
    np.multiply(normed, norm.weight, out=values)
    values += norm.bias


def _normed(values: Array) -> Array:
    centred = values - values.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + NORM_EPSILON))


def _variance(centred: Array) -> Array:
    return np.asarray(np.einsum("bu,bu->b", centred, centred)[:, None] / centred.shape[1])


def _write(layer: _Layer, gradient: Array, inputs: Array, ones: Array) -> None:
    if layer.weight_gradient is not None and layer.bias_gradient is not None:
        np.matmul(gradient.T, inputs, out=layer.weight_gradient)
        np.matmul(ones, gradient, out=layer.bias_gradient[None])


def _before(layer: _Layer, gradient: Array, *, out: Array) -> Array:
    """Return the derivatives by a layer's inputs, written into `out`, from those by its outputs."""
    if gradient.shape[1] == 1:  # a product of a column and a row, for which BLAS takes eight times as long
        return np.multiply(gradient, layer.weight, out=out)
    return np.matmul(gradient, layer.weight, out=out)


def _layer(layer: torch.nn.Module, index: int, *, norm: torch.nn.Module | None) -> _Layer:
    assert isinstance(layer, TowerLayer)
    weight, weight_gradient = _views(layer.weight, index)
    bias, bias_gradient = _views(layer.bias, index)
    made = None
    if isinstance(norm, TowerNorm):
        scale, by_scale = _views(norm.weight, index)
        shift, by_shift = _views(norm.bias, index)
        made = _Norm(scale[0], shift[0], *(None if part is None else part[0] for part in (by_scale, by_shift)))
    return _Layer(weight, bias[0], weight_gradient, None if bias_gradient is None else bias_gradient[0], made)


def _views(parameter: torch.nn.Parameter, index: int) -> tuple[Array, Array | None]:
    gradient = parameter.grad
    return parameter.detach()[index].numpy(), None if gradient is None else gradient[index].numpy()


def _copied(tensor: torch.Tensor) -> Array:
    return np.array(tensor.detach().numpy())
