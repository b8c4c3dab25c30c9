"""An agent of one's own: PPO whose value function is fitted with a Huber loss, which outliers pull less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import huber_loss

from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.losses import PPOBatch
from digideep.model.heads import Evaluation

if TYPE_CHECKING:
    from huber_ppo import HuberConfig


class HuberAgent(PPOAgent):
    """Overriding a loss is all: the log says that this agent learns on the reference path, and why."""

    config: HuberConfig

    def value_loss(self, batch: PPOBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the loss of the value function, a scalar, before `value_coef`."""
        errors = huber_loss(evaluated.values, batch.returns, reduction="none", delta=self.config.huber_delta)
        # Shares are 0 for rows that hold no real transition and sum to 1: this is the mean over the others.
        return (errors * batch.shares).sum()
