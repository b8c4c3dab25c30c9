"""Fully connected networks for a policy and its value function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from digideep.model.config import MLPConfig
from digideep.model.init import HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN, orthogonal_linear
from digideep.model.observations import FlatObservations, policy_slots
from digideep.spec import ArraySpec

__all__ = ["TORCH_ACTIVATIONS", "ActorCriticMLP", "Trunk"]

TORCH_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": functional.elu,
    "gelu": functional.gelu,
    "silu": functional.silu,
}


class Trunk(NamedTuple):
    """The hidden layers of the policy or of the value function: the slots they see, and the modules in order."""

    observations: Mapping[str, ArraySpec]
    layers: nn.ModuleList
    norms: nn.ModuleList


class ActorCriticMLP(nn.Module):
    """Hidden layers, then one linear layer for the policy's outputs and one for the value.

    With `shared` both read the same hidden layers, otherwise each has its own. With `layer_norm` each hidden layer is
    normalised before its activation (Ba et al. 2016, arXiv:1607.06450, eq. 4).

    Raises:
        ConfigError: `critic_observations` names a slot that there is not, or leaves none for the policy.
    """

    network_class = MLPConfig.network_class

    def __init__(self, config: MLPConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        super().__init__()
        self.config = config
        self.observations = dict(observations)
        self.policy_observations = policy_slots(observations, config.critic_observations)
        self.flatten = FlatObservations(self.policy_observations)
        self.value_flatten = FlatObservations(observations) if config.critic_observations else self.flatten
        sizes = (self.flatten.size, *config.hidden_sizes)
        value_sizes = (self.value_flatten.size, *config.critic_sizes)
        self.policy_layers = _hidden(sizes)
        self.value_layers = nn.ModuleList() if config.shared else _hidden(value_sizes)
        self.policy_head = orthogonal_linear(sizes[-1], outputs, gain=POLICY_GAIN)
        self.value_head = orthogonal_linear(value_sizes[-1], 1, gain=VALUE_GAIN)
        self.policy_norms = _norms(sizes, config)
        self.value_norms = nn.ModuleList() if config.shared else _norms(value_sizes, config)
        self._activation = TORCH_ACTIVATIONS[config.activation]

    @property
    def trunks(self) -> list[Trunk]:
        """Return the policy's hidden layers and, where it does not share them, the value function's."""
        policy = Trunk(self.policy_observations, self.policy_layers, self.policy_norms)
        return (
            [policy] if self.config.shared else [policy, Trunk(self.observations, self.value_layers, self.value_norms)]
        )

    @property
    def is_symmetric(self) -> bool:
        """Whether both trunks see the same and have the same sizes."""
        config = self.config
        return not config.critic_observations and config.critic_sizes == config.hidden_sizes

    def forward(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, outputs]` and values `[B]`."""
        inputs = self.flatten(observations)
        policy_hidden = self._through(self.policy_layers, self.policy_norms, inputs)
        if self.config.shared:
            value_hidden = policy_hidden
        else:
            seen = self.value_flatten(observations) if self.config.critic_observations else inputs
            value_hidden = self._through(self.value_layers, self.value_norms, seen)
        return self.policy_head(policy_hidden), self.value_head(value_hidden).squeeze(-1)

    def _through(self, layers: nn.ModuleList, norms: nn.ModuleList, hidden: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(layers):
            hidden = layer(hidden)
            if norms:
                hidden = norms[index](hidden)
            hidden = self._activation(hidden)
        return hidden


def _hidden(sizes: tuple[int, ...]) -> nn.ModuleList:
    pairs = itertools.pairwise(sizes)
    return nn.ModuleList(orthogonal_linear(inputs, outputs, gain=HIDDEN_GAIN) for inputs, outputs in pairs)


def _norms(sizes: tuple[int, ...], config: MLPConfig) -> nn.ModuleList:
    return nn.ModuleList(nn.LayerNorm(units) for units in sizes[1:] if config.layer_norm)
