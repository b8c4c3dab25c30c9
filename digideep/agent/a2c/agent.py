"""A2C: its loss, the one batch of an update, and its optimiser."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from digideep.agent.a2c import losses
from digideep.agent.a2c.config import A2CConfig
from digideep.agent.a2c.losses import FIGURES, Losses, LossOptions
from digideep.agent.base import overridden
from digideep.agent.rollout.agent import RolloutAgent
from digideep.agent.rollout.batches import Rollout, RolloutBatch
from digideep.agent.rollout.learner import Derivatives
from digideep.agent.sampling import normalized, shares
from digideep.model.distributions import Either
from digideep.model.flat import FlatAdam, FlatOptimiser, FlatRMSprop
from digideep.model.heads import Evaluation

__all__ = ["LOSS_METHODS", "A2CAgent", "whole_batch"]

LOSS_METHODS = ("loss", "policy_loss", "value_loss", "entropy_bonus")
"""Methods that only the reference path calls: overriding one puts an agent on it."""


class A2CAgent(RolloutAgent):
    """Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783), synchronous; README.md lists every detail.

    It is PPO with one epoch of one minibatch, so that the ratio is 1 and no bound is reached (Huang et al. 2022,
    arXiv:2205.09123), and shares with it what does not depend on the loss. Subclasses may override `loss`,
    `policy_loss`, `value_loss` and `entropy_bonus`, which puts them on the reference path, and `advantages`.
    """

    loss_names = FIGURES
    config: A2CConfig

    def loss(self, batch: RolloutBatch, evaluated: Evaluation) -> Losses:
        """Return the total loss of a chunk and the figures that go with it."""
        policy_loss = self.policy_loss(batch, evaluated)
        value_loss = self.value_loss(batch, evaluated)
        entropy = self.entropy_bonus(batch, evaluated)
        total = policy_loss + self.config.value_coef * value_loss - self.config.entropy_coef * entropy
        return Losses(total, policy_loss, value_loss, entropy)

    def policy_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the loss of the policy, a scalar."""
        return losses.policy_gradient_loss(evaluated.log_prob, batch)

    def value_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the loss of the value function, a scalar, before `value_coef`."""
        return losses.value_loss(evaluated.values, batch)

    def entropy_bonus(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the mean entropy, a scalar, before `entropy_coef`."""
        return losses.entropy_bonus(evaluated.entropy, batch)

    def derivatives(self, evaluated: Evaluation, batch: RolloutBatch) -> Derivatives:
        """Return the derivatives of the total loss by what the policy says, without autograd."""
        options = LossOptions(self.config.value_coef, self.config.entropy_coef)
        return losses.derivatives(evaluated, batch, options)

    def replaced_losses(self) -> list[str]:
        """Return the names of the losses that somebody has overridden."""
        return overridden(self, A2CAgent, methods=LOSS_METHODS)

    def make_optimiser(self) -> FlatOptimiser:
        """Return the optimiser that the configuration names."""
        config = self.config
        if config.optimizer == "adam":
            return FlatAdam(self._flat, eps=config.optimizer_eps)
        return FlatRMSprop(self._flat, alpha=config.rmsprop_alpha, eps=config.optimizer_eps)

    def minibatches(self, rollout: Rollout) -> Iterator[RolloutBatch]:
        """Yield the whole chunk, once."""
        yield whole_batch(rollout, normalize=self.config.normalize_advantage)


def whole_batch(rollout: Rollout, *, normalize: bool) -> RolloutBatch:
    """Return all rows of a rollout in their order, with shares in place of weights."""
    figures = rollout.figures.copy()
    _, _, advantages, _, weights = figures
    weights[:] = shares(weights)
    if normalize:
        advantages[:] = normalized(advantages, weights)
    tensor = next((array for array in rollout.observations.values() if isinstance(array, torch.Tensor)), None)
    table: Either = figures if tensor is None else torch.from_numpy(figures).to(tensor.device)
    return RolloutBatch(rollout.observations, rollout.actions, *table)
