"""Encoders of observation spaces with several slots: one for each, side by side.

A slot is a picture if it has three axes, or two of bytes, and is large enough for the convolutions; every other slot is
taken flat, as `FlatObservations` does it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from digideep.model.config import MixedConfig
from digideep.model.observations import FlatObservations, flat_size, policy_slots
from digideep.model.pictures import Convolutions, is_picture
from digideep.model.tail import FeatureShape, FullyConnected, SharedFeatures
from digideep.spec import ArraySpec

__all__ = ["ActorCriticMixed", "Encoders", "PictureEncoder", "encoder_size", "make_encoder"]


class PictureEncoder(nn.Module):
    """Convolutions over one picture and fully connected layers: `[B, size]`."""

    def __init__(self, config: MixedConfig, *, slot: str, spec: ArraySpec) -> None:
        super().__init__()
        self._slot = slot
        self.convolutions = Convolutions(config, slot=slot, spec=spec)
        self.hidden = FullyConnected(self.convolutions.features, config.picture_sizes, config=config)
        self.size = self.hidden.size

    @property
    def wants_channels_last(self) -> bool:
        """Whether pictures whose channels lie side by side in memory are read faster."""
        return self.convolutions.wants_channels_last

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return `[B, size]` for observations by slot."""
        features: torch.Tensor = self.hidden(self.convolutions(observations[self._slot]))
        return features


class Encoders(nn.Module):
    """Several encoders: all flat slots in their order, then each picture; `[B, size]` altogether."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.size = sum(encoder_size(part) for part in parts)

    @property
    def wants_channels_last(self) -> bool:
        """Whether pictures whose channels lie side by side in memory are read faster."""
        return any(getattr(part, "wants_channels_last", False) for part in self.parts)

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return `[B, size]` for observations by slot."""
        return torch.cat([part(observations) for part in self.parts], dim=1)


def make_encoder(config: MixedConfig, observations: Mapping[str, ArraySpec]) -> nn.Module:
    """Return a module from observations by slot to `[B, size]`, with `size` as attribute.

    Raises:
        SpaceError: there is no slot, or one without elements.
    """
    flat_size(observations)
    pictures = {slot: spec for slot, spec in observations.items() if is_picture(spec, config)}
    flat = {slot: spec for slot, spec in observations.items() if slot not in pictures}
    parts: list[nn.Module] = [FlatObservations(flat)] if flat else []
    parts += [PictureEncoder(config, slot=slot, spec=spec) for slot, spec in pictures.items()]
    return parts[0] if len(parts) == 1 else Encoders(parts)


class ActorCriticMixed(SharedFeatures):
    """Encoders of all slots, then fully connected layers that policy and value function share, and two heads.

    A critic with sizes or slots of its own shares the encoders only; slots that it alone sees have encoders too.

    Raises:
        SpaceError: there is no slot, or one without elements.
        ConfigError: `critic_observations` names a slot that there is not, or leaves none for the policy.
    """

    network_class = MixedConfig.network_class

    def __init__(self, config: MixedConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        super().__init__()
        self.config = config
        self.observations = dict(observations)
        self.encoder = make_encoder(config, policy_slots(observations, config.critic_observations))
        critic = {slot: observations[slot] for slot in config.critic_observations}
        self.make_tail(
            config,
            features=FeatureShape(encoder_size(self.encoder)),
            sizes=config.hidden_sizes,
            outputs=outputs,
            critic=make_encoder(config, critic) if critic else None,
        )

    def forward(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, outputs]` and values `[B]`."""
        return self.tail(self.encoder(observations), observations)


def encoder_size(encoder: nn.Module) -> int:
    """Return how many numbers an encoder gives."""
    size = encoder.size
    assert isinstance(size, int)
    return size
