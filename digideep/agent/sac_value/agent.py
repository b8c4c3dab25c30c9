"""SAC with a value network: targets and the gradient of each part, in closed form and by autograd."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch

from digideep.agent.base import FlatArray, GradientOutput
from digideep.agent.continuous.agent import ContinuousAgent, WrittenLoss, critic_gradient
from digideep.agent.continuous.passes import PolicyPass
from digideep.agent.continuous.soft_policy import SOFT_HEAD, SoftPolicy
from digideep.agent.replay.transitions import Transitions
from digideep.agent.sac_value import losses
from digideep.agent.sac_value.config import SACValueConfig
from digideep.agent.sac_value.losses import SACValueBatch, scaled_targets
from digideep.model.squashed import squash_torch

__all__ = ["SACValueAgent"]


class SACValueAgent(ContinuousAgent):
    """Soft actor-critic in its first version (Haarnoja et al. 2018, arXiv:1801.01290); README.md lists every detail.

    Subclasses may override `value_loss`, `critic_loss` and `policy_loss`, which puts them on the reference path.

    Args: as every agent; see docs/implement_a_method.md.
    """

    figure_names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "value": ("state_value_loss", "state_value"),
        "critic": ("value_loss", "value"),
        "policy": ("policy_loss", "entropy"),
    }
    method = "SAC"
    head = SOFT_HEAD
    outputs = 2
    n_critics = 2
    part_names = ("value", "critic", "policy")
    followed = ("value",)
    batch_type = SACValueBatch
    loss_methods = ("value_loss", "critic_loss", "policy_loss")
    config: SACValueConfig

    @cached_property
    def _soft(self) -> SoftPolicy:
        return SoftPolicy(self.passes.policy)

    def make_batch(self, transitions: Transitions) -> SACValueBatch:
        """Return a batch with targets by the target value network, and noise for the policy of now."""
        with torch.no_grad():
            values = _there(self.passes.target_value)(transitions.following)[:, 0]
        targets = scaled_targets(
            transitions.rewards, transitions.discounts, values=values, reward_scale=self.config.reward_scale
        )
        shape = (len(transitions.rewards), self.vector.size)
        return SACValueBatch(
            observations=transitions.observations,
            actions=self.vector.join(transitions.actions),
            targets=targets.astype(np.float32, copy=False),
            importance=transitions.importance,
            noise=self.noise_rng.standard_normal(shape, dtype=np.float32),
        )

    def gradients(self, batch: SACValueBatch, part: str) -> GradientOutput:
        """Return the gradient of one part's loss for a batch in numpy.

        With B rows, w their importance, y the targets, a and l what the policy draws and its log-densities:

        - value: L = 1/(2B) sum w (v - (min q(a) - l))^2, so dL/dv = w (v - (min q(a) - l)) / B.
        - critic: L = sum over critics of 1/(2B) sum w (q - y)^2, so dL/dq = w (q - y) / B.
        - policy: as `SoftPolicy` has it, with temperature 1.
        """
        if self.passes.is_reference:
            return self.reference(batch, part)
        if part == "value":
            return self._value_gradient(batch)
        if part == "critic":
            found = critic_gradient(self.passes.critics, batch, weight=0.5)
            return self.output(part, (found.loss, found.value), found.errors)
        figures = self._soft.gradient(batch, self.passes.critics, temperature=1.0)
        return self.output(part, (figures.loss, -figures.log_prob))

    def apply(self, flat: FlatArray, part: str) -> float:
        """Clip the gradient of a part, take a step of Adam, and return the norm that the gradient had."""
        if part == "policy":
            self._soft.forget()
        return super().apply(flat, part)

    def changed(self) -> None:
        """Take note that the networks are no longer what an actor was made from."""
        super().changed()
        self._soft.forget()

    def value_loss(self, batch: SACValueBatch, values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of the value network's values `[B]`, a scalar."""
        return losses.value_loss(values, targets, batch)

    def critic_loss(self, batch: SACValueBatch, values: torch.Tensor) -> torch.Tensor:
        """Return the loss of the critics' values `[critics, B]`, a scalar."""
        return losses.critic_loss(values, batch)

    def policy_loss(self, batch: SACValueBatch, log_probs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return the loss of the policy, from log-densities `[B]` and values `[critics, B]`, a scalar."""
        return losses.policy_loss(log_probs, values)

    def written_loss(self, batch: SACValueBatch, part: str) -> WrittenLoss:
        """Return the loss of one part for a batch in torch, for autograd."""
        networks = self.networks
        if part == "critic":
            return self.written_critic_loss(batch)
        actions, log_probs = squash_torch(networks.policy(batch.observations), batch.noise)
        values = networks.critics(batch.observations, actions)
        if part == "policy":
            loss = self.policy_loss(batch, log_probs, values)
            return WrittenLoss(loss, (loss.detach(), -log_probs.detach().mean()))
        assert networks.value is not None
        state_values = networks.value(batch.observations)[:, 0]
        loss = self.value_loss(batch, state_values, losses.soft_values(values, log_probs).detach())
        return WrittenLoss(loss, (loss.detach(), state_values.detach().mean()))

    def _value_gradient(self, batch: SACValueBatch) -> GradientOutput:
        squashed = self._soft.draw(batch)
        with torch.no_grad():
            values = self.passes.critics(batch.observations, squashed.actions)
        value = _there(self.passes.value)
        found = value(batch.observations)[:, 0]
        errors = found - (values.min(axis=0) - squashed.log_probs)
        weighted = errors * batch.importance / len(errors)
        value.backward(weighted[:, None])
        return self.output("value", (0.5 * float((errors * weighted).sum()), float(found.mean())))


def _there(value: PolicyPass | None) -> PolicyPass:
    assert value is not None  # `part_names` asks for one
    return value
