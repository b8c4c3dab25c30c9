"""A copy of a recurrent network that acts in numpy: a step for a few environments in a third of torch's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.model.frozen import ACTIVATIONS, FrozenLayer, Prediction, frozen_layer
from digideep.model.observations import FlatObservations, flat_rows
from digideep.model.recurrence import LSTM, RecurrentCell
from digideep.model.rnn import ActorCriticRNN
from digideep.model.tail import FullyConnected

__all__ = ["FrozenRNN"]

Array: TypeAlias = np.ndarray[Any, Any]


class FrozenRNN:
    """A copy of an `ActorCriticRNN`'s weights that takes one step in numpy. Use `FrozenRNN.can_freeze` first."""

    def __init__(self, network: ActorCriticRNN) -> None:
        config = network.config
        self._seen = {slot: s for slot, s in network.observations.items() if slot not in config.critic_observations}
        self._critic_seen = {slot: network.observations[slot] for slot in config.critic_observations}
        self._activate = ACTIVATIONS[config.activation]
        self._layers = _frozen(network.layers)
        self._has_own_critic = network.critic_hidden is not None
        self._critic_layers = [] if network.critic_hidden is None else _frozen(network.critic_hidden)
        heads = (network.policy_head, network.value_head)
        self._policy_head, self._value_head = (frozen_layer([head]).first() for head in heads)
        cell = network.cell
        self._cell = _FrozenLSTM(cell) if isinstance(cell, LSTM) else _FrozenGRU(cell)

    @staticmethod
    def can_freeze(network: nn.Module) -> bool:
        """Whether numpy can do it: exactly an `ActorCriticRNN` without pictures, on the CPU, in float32."""
        if type(network) is not ActorCriticRNN or network.config.activation not in ACTIVATIONS:
            return False
        encoders = (network.encoder, network.critic_encoder)
        weight = network.policy_head.weight
        is_flat = all(encoder is None or type(encoder) is FlatObservations for encoder in encoders)
        return is_flat and weight.device.type == "cpu" and weight.dtype == torch.float32

    def __call__(
        self, observations: Mapping[str, Array], hidden_state: Mapping[str, Array], masks: Array, *, rowwise: bool
    ) -> tuple[Prediction, dict[str, Array]]:
        """Return the prediction for `[B, ...]` observations, and the next hidden state `[B, units]` by key.

        With `rowwise` each row is multiplied on its own, so that its result has the same bits in every batch.
        """
        features = self._rows(flat_rows(observations, self._seen), rowwise=rowwise)
        keep = self._rows(masks.astype(np.float32)[:, None], rowwise=rowwise)
        state = {key: self._rows(array, rowwise=rowwise) * keep for key, array in hidden_state.items()}
        after = self._cell.step(self._through(self._layers, features), state)
        remembered = hidden = after["hidden"]
        if self._has_own_critic:
            if self._critic_seen:
                beside = self._rows(flat_rows(observations, self._critic_seen), rowwise=rowwise)
                hidden = np.concatenate([hidden, beside], axis=-1)
            hidden = self._through(self._critic_layers, hidden)
        outputs, values = (
            np.matmul(features, head.weight) + head.bias
            for features, head in ((remembered, self._policy_head), (hidden, self._value_head))
        )
        if rowwise:
            outputs, values = outputs[:, 0], values[:, 0]
            after = {key: array[:, 0] for key, array in after.items()}
        return Prediction(outputs, values[:, 0]), after

    def _through(self, layers: list[FrozenLayer], features: Array) -> Array:
        for weight, bias, norm in layers:
            features = np.matmul(features, weight)
            features += bias
            if norm is not None:
                norm.apply(features)
            self._activate(features)
        return features

    @staticmethod
    def _rows(array: Array, *, rowwise: bool) -> Array:
        """Return `[B, 1, ...]`, which numpy multiplies one by one, or `[B, ...]`, which it multiplies at once."""
        return array[:, None] if rowwise else array


class _FrozenCell:
    def __init__(self, cell: RecurrentCell) -> None:
        self._units = cell.size
        self._of_inputs, self._of_hidden = (
            np.ascontiguousarray(weight.detach().numpy().T) for weight in (cell.weight_ih, cell.weight_hh)
        )
        self._input_bias, self._hidden_bias = (bias.detach().numpy().copy() for bias in (cell.bias_ih, cell.bias_hh))

    def step(self, features: Array, state: Mapping[str, Array]) -> dict[str, Array]:
        raise NotImplementedError

    def _parts(self, features: Array, hidden: Array) -> tuple[Array, Array]:
        """Return the parts of the gates that come from inputs and from the state."""
        return np.matmul(features, self._of_inputs) + self._input_bias, (
            np.matmul(hidden, self._of_hidden) + self._hidden_bias
        )


class _FrozenGRU(_FrozenCell):
    def step(self, features: Array, state: Mapping[str, Array]) -> dict[str, Array]:
        units, hidden = self._units, state["hidden"]
        gates, recurrent = self._parts(features, hidden)
        both = _sigmoid(gates[..., : 2 * units] + recurrent[..., : 2 * units])
        n = np.tanh(gates[..., 2 * units :] + both[..., :units] * recurrent[..., 2 * units :])
        return {"hidden": n + both[..., units:] * (hidden - n)}


class _FrozenLSTM(_FrozenCell):
    def step(self, features: Array, state: Mapping[str, Array]) -> dict[str, Array]:
        units = self._units
        gates, recurrent = self._parts(features, state["hidden"])
        gates += recurrent
        both = _sigmoid(gates[..., : 2 * units])
        cell = both[..., units:] * state["cell"] + both[..., :units] * np.tanh(gates[..., 2 * units : 3 * units])
        return {"hidden": _sigmoid(gates[..., 3 * units :]) * np.tanh(cell), "cell": cell}


def _sigmoid(values: Array) -> Array:
    # By tanh, which does not overflow.
    return np.asarray(0.5 * np.tanh(0.5 * values) + 0.5)


def _frozen(layers: FullyConnected) -> list[FrozenLayer]:
    found: list[FrozenLayer] = []
    for index, module in enumerate(layers):
        if isinstance(module, nn.Linear):
            norm = layers[index + 1] if index + 1 < len(layers) else None
            found.append(frozen_layer([module], norms=[norm] if isinstance(norm, nn.LayerNorm) else []).first())
    return found
