"""Recurrent networks for a policy and its value function: sequences of observations in, outputs and values out."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from digideep.model.config import RNNConfig
from digideep.model.encoders import encoder_size, make_encoder
from digideep.model.observations import policy_slots
from digideep.model.recurrence import make_cell
from digideep.model.tail import FeatureShape, FullyConnected, SharedFeatures
from digideep.spec import ArraySpec

__all__ = ["ActorCriticRNN"]


class ActorCriticRNN(SharedFeatures):
    """Encoders, fully connected layers, a recurrent cell, and a linear layer each for policy and value.

    A critic with sizes or slots of its own has layers behind the cell, which read what only it sees without memory.

    Attributes:
        hidden_shapes: shape of each part of the hidden state for one environment, by key; by it others know that a
            network is recurrent.

    Raises:
        SpaceError: there is no slot, or one without elements.
        ConfigError: `critic_observations` names a slot that there is not, or leaves none for the policy.
    """

    network_class = RNNConfig.network_class

    def __init__(self, config: RNNConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        super().__init__()
        self.config = config
        self.observations = dict(observations)
        self.encoder = make_encoder(config, policy_slots(observations, config.critic_observations))
        self.layers = FullyConnected(FeatureShape(encoder_size(self.encoder)), config.hidden_sizes, config=config)
        self.cell = make_cell(config.cell, self.layers.size, config.units)
        critic = {slot: observations[slot] for slot in config.critic_observations}
        self.make_tail(
            config,
            features=FeatureShape(config.units),
            sizes=(),
            outputs=outputs,
            critic=make_encoder(config, critic) if critic else None,
        )
        self.hidden_shapes = self.cell.hidden_shapes

    def forward(
        self, observations: Mapping[str, torch.Tensor], hidden_state: Mapping[str, torch.Tensor], masks: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """Return policy outputs `[L * S, outputs]`, values `[L * S]`, and the hidden state after the last step.

        Args:
            observations: `[L * S, ...]` by slot, `S` sequences of `L` steps, those of one step side by side.
            hidden_state: `[S, ...]` by key, before the first step.
            masks: `[L, S]`, 0 where an observation opens an episode: the state is reset before it.
        """
        features = self.layers(self.encoder(observations))
        remembered, after = self.cell(features, hidden_state, masks)
        outputs, values = self.tail(remembered, observations)
        return outputs, values, after
