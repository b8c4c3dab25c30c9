"""Networks that give the value of every action: encoders of observations, then fully connected streams."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from digideep.model.config import QMixedConfig, QNetworkConfig
from digideep.model.encoders import make_encoder
from digideep.model.noisy import NoisyTowers
from digideep.model.observations import FlatObservations
from digideep.model.towers import Towers
from digideep.spec import ArraySpec

__all__ = ["ActionValues", "QMixedNetwork", "QNetwork"]


class ActionValues(nn.Module):
    """Base of networks for `[B, outputs]` action values: an encoder, and one stream of layers behind it or two.

    With `dueling` one stream gives the value of the state and the other how much better each action is than their
    mean: q = v + a - mean(a). Convolutions are shared, all fully connected layers are each stream's own.

    Sources: Mnih et al. 2015, Nature 518; Wang et al. 2016, arXiv:1511.06581, figure 1 and eq. 9.

    Attributes:
        streams: `q` alone, or `advantages` and `value`.
        noise_size: standard normal numbers that make the noise of all streams; 0 without noise.
    """

    def __init__(self, config: QNetworkConfig, *, encoder: nn.Module, size: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder
        streams = {"advantages": outputs, "value": 1} if config.dueling else {"q": outputs}
        self.streams = nn.ModuleDict({name: _stream(config, size, outputs=count) for name, count in streams.items()})
        self.noise_size = sum(_noise_sizes(self))

    def forward(self, observations: Mapping[str, torch.Tensor], noise: torch.Tensor | None = None) -> torch.Tensor:
        """Return action values `[B, outputs]`.

        Args:
            observations: by slot, `[B, ...]`.
            noise: standard normal numbers, `[noise_size]` for all rows or `[B, noise_size]`; None: none.
        """
        features = self.encoder(observations)
        sizes = _noise_sizes(self)
        parts = [None] * len(sizes) if noise is None else torch.split(noise, sizes, dim=-1)
        found: list[torch.Tensor] = [
            stream(features, part) if isinstance(stream, NoisyTowers) else stream(features)[0]
            for stream, part in zip(self.streams.values(), parts, strict=True)
        ]
        if len(found) == 1:
            return found[0]
        advantages, value = found
        values: torch.Tensor = value + advantages - advantages.mean(dim=1, keepdim=True)
        return values

    @property
    def wants_channels_last(self) -> bool:
        """Whether pictures whose channels lie side by side in memory are read faster."""
        return bool(getattr(self.encoder, "wants_channels_last", False))


class QNetwork(ActionValues):
    """Action values of fully connected layers.

    Args:
        config: sizes, activation, streams and noise.
        observations: specs by slot.
        outputs: actions.

    Attributes:
        observations: specs by slot.

    Raises:
        SpaceError: there is no slot, or one without elements.
    """

    network_class = QNetworkConfig.network_class

    def __init__(self, config: QNetworkConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        encoder = FlatObservations(observations)
        super().__init__(config, encoder=encoder, size=encoder.size, outputs=outputs)
        self.observations = dict(observations)


class QMixedNetwork(ActionValues):
    """Action values behind one encoder for each slot: convolutions for pictures, everything else taken flat.

    Args:
        config: encoders, sizes, activation, streams and noise.
        observations: specs by slot.
        outputs: actions.

    Raises:
        SpaceError: there is no slot, or one without elements.
    """

    network_class = QMixedConfig.network_class

    def __init__(self, config: QMixedConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        encoder = make_encoder(config, observations)
        super().__init__(config, encoder=encoder, size=int(getattr(encoder, "size", 0)), outputs=outputs)


def _noise_sizes(network: ActionValues) -> list[int]:
    """Return how many numbers make the noise of each stream; zeros without noise."""
    return [stream.noise_size if isinstance(stream, NoisyTowers) else 0 for stream in network.streams.values()]


def _stream(config: QNetworkConfig, size: int, *, outputs: int) -> nn.Module:
    if config.noisy:
        return NoisyTowers(
            size,
            hidden_sizes=config.hidden_sizes,
            outputs=outputs,
            activation=config.activation,
            layer_norm=config.layer_norm,
            deviation=config.noisy_deviation,
        )
    return Towers(
        size,
        hidden_sizes=config.hidden_sizes,
        outputs=outputs,
        activation=config.activation,
        layer_norm=config.layer_norm,
    )
