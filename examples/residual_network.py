"""A network of one's own: any torch module that turns observations by slot into policy outputs and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from digideep.model.observations import FlatObservations
from digideep.spec import ArraySpec

if TYPE_CHECKING:
    from residual_ppo import ResidualConfig


class Block(nn.Module):
    """Adds to its input what two layers make of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return `[B, width]`."""
        change: torch.Tensor = self.layers(hidden)
        return hidden + change


class ResidualNetwork(nn.Module):
    """A trunk of residual blocks with two heads.

    Args:
        config: what the node in the params tree says.
        observations: what the environment shows, by slot.
        outputs: numbers that the distribution over actions needs.
    """

    def __init__(self, config: ResidualConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        super().__init__()
        self.flatten = FlatObservations(observations)
        self.first = nn.Linear(self.flatten.size, config.width)
        self.blocks = nn.Sequential(*(Block(config.width) for _ in range(config.blocks)))
        self.policy = nn.Linear(config.width, outputs)
        self.value = nn.Linear(config.width, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)  # the first policy is nearly uniform

    def forward(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, outputs]` and values `[B]`."""
        hidden = self.blocks(self.first(self.flatten(observations)))
        return self.policy(hidden), self.value(hidden).squeeze(-1)
