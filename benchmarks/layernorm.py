"""The network of the user's own that B1-module trains, without anything that the framework could know about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from digideep.model.observations import FlatObservations
from digideep.spec import ArraySpec

if TYPE_CHECKING:
    from benchmarks.params_ppo import LayerNormConfig

__all__ = ["LayerNormNetwork"]


class LayerNormNetwork(nn.Module):
    """Linear, LayerNorm and tanh for each size, then two heads.

    Args:
        config: what the node in the params tree says.
        observations: what the environment shows, by slot.
        outputs: numbers that the distribution over actions needs.
    """

    def __init__(self, config: LayerNormConfig, *, observations: Mapping[str, ArraySpec], outputs: int) -> None:
        super().__init__()
        self.flatten = FlatObservations(observations)
        layers: list[nn.Module] = []
        size = self.flatten.size
        for units in config.hidden_sizes:
            layers += [nn.Linear(size, units), nn.LayerNorm(units), nn.Tanh()]
            size = units
        self.trunk = nn.Sequential(*layers)
        self.policy = nn.Linear(size, outputs)
        self.value = nn.Linear(size, 1)
        for module in self.trunk:
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, 2**0.5)
                nn.init.zeros_(module.bias)
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.orthogonal_(self.value.weight, 1.0)
        nn.init.zeros_(self.policy.bias)
        nn.init.zeros_(self.value.bias)

    def forward(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, outputs]` and values `[B]`."""
        hidden = self.trunk(self.flatten(observations))
        return self.policy(hidden), self.value(hidden).squeeze(-1)
