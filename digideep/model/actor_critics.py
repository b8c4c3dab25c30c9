"""Networks of methods that learn from old data with real actions: a policy, critics, and a value function."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from digideep.model.config import ActorCriticsConfig
from digideep.model.observations import FlatObservations, policy_slots
from digideep.model.towers import Towers
from digideep.spec import ArraySpec

__all__ = ["ActorCritics", "CriticTowers", "ObservationTower"]


class ObservationTower(nn.Module):
    """One fully connected network from observations to `[B, outputs]`."""

    def __init__(self, inputs: FlatObservations, towers: Towers) -> None:
        super().__init__()
        self.inputs = inputs
        self.towers = towers

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return `[B, outputs]`."""
        outputs: torch.Tensor = self.towers(self.inputs(observations))[0]
        return outputs


class CriticTowers(nn.Module):
    """Critics side by side, from observations and actions to one value each."""

    def __init__(self, inputs: FlatObservations, towers: Towers) -> None:
        super().__init__()
        self.inputs = inputs
        self.towers = towers

    def forward(self, observations: Mapping[str, torch.Tensor], actions: torch.Tensor) -> torch.Tensor:
        """Return `[critics, B]` for observations `[B, ...]` and actions `[B, D]`."""
        values: torch.Tensor = self.towers(torch.cat((self.inputs(observations), actions), dim=1)).squeeze(-1)
        return values


class ActorCritics(nn.Module):
    """A policy `[B, outputs]`, critics `[critics, B]`, and with `has_value` a value function `[B, 1]`.

    Args:
        config: sizes, activation, and what only the critics see.
        observations: specs by slot.
        outputs: of the policy.
        actions: D, elements of an action.
        critics: how many.
        has_value: whether there is a value function of observations alone.
        last_bound: of the last layers' initial weights; None: as of the others.

    Raises:
        ConfigError: `critic_observations` names a slot that there is not, or leaves none for the policy.
    """

    network_class = ActorCriticsConfig.network_class

    def __init__(
        self,
        config: ActorCriticsConfig,
        *,
        observations: Mapping[str, ArraySpec],
        outputs: int,
        actions: int,
        critics: int,
        has_value: bool = False,
        last_bound: float | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        seen = policy_slots(observations, config.critic_observations)

        def towers(inputs: int, sizes: tuple[int, ...], *, outputs: int, count: int) -> Towers:
            return Towers(
                inputs,
                hidden_sizes=sizes,
                outputs=outputs,
                count=count,
                activation=config.activation,
                layer_norm=config.layer_norm,
                last_bound=last_bound,
            )

        flat = FlatObservations(seen)
        self.policy = ObservationTower(flat, towers(flat.size, config.hidden_sizes, outputs=outputs, count=1))
        everything = FlatObservations(observations)
        size = everything.size + actions
        self.critics = CriticTowers(everything, towers(size, config.critic_sizes, outputs=1, count=critics))
        self.value: ObservationTower | None = None
        if has_value:
            inputs = FlatObservations(observations)
            self.value = ObservationTower(inputs, towers(inputs.size, config.critic_sizes, outputs=1, count=1))
