"""Convolutional networks for a policy and its value function: pictures of bytes in, outputs and values out."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from digideep.model.config import CNNConfig
from digideep.model.observations import FlatObservations, policy_slots
from digideep.model.pictures import Convolutions, PictureShape, only_slot
from digideep.model.tail import SharedFeatures
from digideep.spec import ArraySpec

__all__ = ["ActorCriticCNN"]


class ActorCriticCNN(SharedFeatures):
    """Convolutions and fully connected layers that policy and value function share, and a linear layer for each.

    A critic with sizes or slots of its own shares the convolutions only; slots that it alone sees are taken flat.

    Source: Mnih et al. 2015, Nature 518, methods; orthogonal weights as in `model/init.py`.

    Raises:
        SpaceError: what the policy sees is not one picture, or is too small for the kernels.
        ConfigError: `critic_observations` names a slot that there is not, or leaves none for the policy.
    """

    network_class = CNNConfig.network_class

    def __init__(self, config: CNNConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        super().__init__()
        self.config = config
        self.observations = dict(observations)
        self._slot, spec = only_slot(policy_slots(observations, config.critic_observations))
        self.convolutions = Convolutions(config, slot=self._slot, spec=spec)
        critic = {slot: observations[slot] for slot in config.critic_observations}
        self.make_tail(
            config,
            features=self.convolutions.features,
            sizes=config.hidden_sizes,
            outputs=outputs,
            critic=FlatObservations(critic) if critic else None,
        )

    @property
    def picture(self) -> PictureShape:
        """Return the shape of the picture."""
        return self.convolutions.picture

    def forward(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, outputs]` and values `[B]`."""
        return self.tail(self.convolutions(observations[self._slot]), observations)
