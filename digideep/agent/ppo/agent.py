"""PPO: its loss, its minibatches, and what they need of the policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from digideep.agent.base import overridden
from digideep.agent.ppo import losses
from digideep.agent.ppo.config import PPOConfig
from digideep.agent.ppo.losses import FIGURES, Losses, LossOptions
from digideep.agent.rollout.agent import RolloutAgent
from digideep.agent.rollout.batches import Rollout, RolloutBatch, minibatches
from digideep.agent.rollout.learner import Derivatives
from digideep.agent.schedules import linear
from digideep.model.distributions import Either
from digideep.model.flat import FlatAdam, FlatOptimiser
from digideep.model.heads import Evaluation

__all__ = ["LOSS_METHODS", "PPOAgent"]

LOSS_METHODS = ("loss", "policy_loss", "value_loss", "entropy_bonus")
"""Methods that only the reference path calls: overriding one puts an agent on it."""

_KL = FIGURES.index("approx_kl")


class PPOAgent(RolloutAgent):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347); README.md lists every detail.

    Subclasses may override `loss`, `policy_loss`, `value_loss` and `entropy_bonus`, which puts them on the reference
    path, and `advantages`, which both paths call. An update takes all epochs, or ends with the minibatch whose
    approximate KL exceeds `target_kl`.
    """

    loss_names = FIGURES
    draws = ("actions", "shuffle")
    config: PPOConfig

    def loss(self, batch: RolloutBatch, evaluated: Evaluation) -> Losses:
        """Return the total loss of a minibatch and the figures that go with it."""
        policy_loss = self.policy_loss(batch, evaluated)
        value_loss = self.value_loss(batch, evaluated)
        entropy = self.entropy_bonus(batch, evaluated)
        total = policy_loss + self.config.value_coef * value_loss - self.config.entropy_coef * entropy
        log_prob = evaluated.log_prob
        return Losses(
            total=total,
            policy_loss=policy_loss,
            value_loss=value_loss,
            entropy=entropy,
            approx_kl=losses.approximate_kl(log_prob, batch),
            clip_fraction=losses.clip_fraction(log_prob, batch, clip_param=self.clip_param),
        )

    def policy_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the loss of the policy, a scalar."""
        return losses.clipped_surrogate(evaluated.log_prob, batch, clip_param=self.clip_param)

    def value_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the loss of the value function, a scalar, before `value_coef`."""
        return losses.clipped_value_loss(evaluated.values, batch, value_clip=self.config.value_clip)

    def entropy_bonus(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the mean entropy, a scalar, before `entropy_coef`."""
        return losses.entropy_bonus(evaluated.entropy, batch)

    def derivatives(self, evaluated: Evaluation, batch: RolloutBatch) -> Derivatives:
        """Return the derivatives of the total loss by what the policy says, without autograd."""
        config = self.config
        options = LossOptions(self.clip_param, config.value_clip, config.value_coef, config.entropy_coef)
        return losses.derivatives(evaluated, batch, options)

    def replaced_losses(self) -> list[str]:
        """Return the names of the losses that somebody has overridden."""
        return overridden(self, PPOAgent, methods=LOSS_METHODS)

    def make_optimiser(self) -> FlatOptimiser:
        """Return Adam."""
        return FlatAdam(self._flat, eps=self.config.adam_eps)

    def minibatches(self, rollout: Rollout) -> Iterator[RolloutBatch]:
        """Yield every row once an epoch, shuffled."""
        config, rng = self.config, self._generators["shuffle"]
        for _ in range(config.update_epochs):
            yield from minibatches(rollout, rng, size=config.minibatch_size, normalize=config.normalize_advantage)

    def _is_over(self, figures: Either) -> bool:
        # Reading the KL waits for a GPU, so only where somebody has asked for it.
        target = self.config.target_kl
        return target is not None and float(figures[_KL]) > target

    def _set_schedules(self, frame: int) -> None:
        super()._set_schedules(frame)
        config = self.config
        self.clip_param = linear(
            config.clip_param, config.clip_param_final, horizon=config.clip_param_horizon, frame=frame
        )

    def _config_now(self) -> PPOConfig:
        return dataclasses.replace(self.config, lr=self.lr, clip_param=self.clip_param)
