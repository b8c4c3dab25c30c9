"""DDPG: targets and the gradient of each part, in closed form between the networks and by autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch

from digideep.agent.base import GradientOutput
from digideep.agent.continuous.agent import ContinuousAgent, WrittenLoss, critic_gradient
from digideep.agent.continuous.crew import Crew
from digideep.agent.continuous.passes import CriticPass, PackedCritics
from digideep.agent.continuous.policy import Head
from digideep.agent.ddpg import losses
from digideep.agent.ddpg.config import DDPGConfig
from digideep.agent.ddpg.losses import DDPGBatch, bootstrapped_targets
from digideep.agent.replay.noise import ActionNoise, Noise
from digideep.agent.replay.transitions import Transitions
from digideep.model.actor_critics import CriticTowers
from digideep.spec import EnvSpec
from digideep.types import Store
from digideep.utility.imports import BUILT_IN

__all__ = ["DDPGAgent"]

Array: TypeAlias = np.ndarray[Any, Any]


class DDPGAgent(ContinuousAgent):
    """Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971); README.md lists every detail.

    Subclasses may override `critic_loss` and `policy_loss`, which puts them on the reference path, and `make_noise`.

    Args: as every agent; see docs/implement_a_method.md.
    """

    figure_names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "critic": ("value_loss", "value"),
        "policy": ("policy_loss",),
    }
    method = "DDPG"
    head = Head(best=np.tanh, draw=None)
    outputs = 1
    n_critics = 1
    part_names = ("critic", "policy")
    followed = ("critic", "policy")
    batch_type = DDPGBatch
    loss_methods = ("critic_loss", "policy_loss")
    config: DDPGConfig

    def __init__(
        self,
        config: DDPGConfig,
        *,
        name: str,
        spec: EnvSpec,
        memory: Store,
        device: str,
        seed: int,
        monitor: Callable[[str, float], None],
        allowed: Sequence[str] = BUILT_IN,
    ) -> None:
        super().__init__(
            config,
            name=name,
            spec=spec,
            memory=memory,
            device=device,
            seed=seed,
            monitor=monitor,
            allowed=allowed,
            noise=self.make_noise(config),
            last_bound=config.last_bound,
        )
        self._judge = self._first_critic()

    def make_noise(self, config: DDPGConfig) -> Noise:
        """Return what is added to actions after the warm-up; called while the agent is made, before all else."""
        return ActionNoise(
            config.noise, scale=config.noise_scale, final=config.noise_scale_final, horizon=config.noise_horizon
        )

    def figures(self) -> dict[str, float]:
        """Return the deviation of the noise."""
        return {"noise_scale": self.exploration.noise_scale}

    def make_batch(self, transitions: Transitions) -> DDPGBatch:
        """Return a batch with targets by the target networks."""
        with torch.no_grad():
            actions = self.target_actions(transitions)
            values = self.passes.target_critics(transitions.following, actions)
        targets = bootstrapped_targets(transitions.rewards, transitions.discounts, values=values)
        return DDPGBatch(
            observations=transitions.observations,
            actions=self.vector.join(transitions.actions),
            targets=targets.astype(np.float32, copy=False),
            importance=transitions.importance,
        )

    def target_actions(self, transitions: Transitions) -> Array:
        """Return what the target policy does at the observations that follow, `[B, D]`."""
        return np.asarray(np.tanh(self.passes.target_policy(transitions.following)))

    def gradients(self, batch: DDPGBatch, part: str) -> GradientOutput:
        """Return the gradient of one part's loss for a batch in numpy.

        With B rows, w their importance, y the targets, p the critics' parameters and d their decay:

        - critic: L = sum over critics of 1/B sum w (q - y)^2, so dL/dq = 2 w (q - y) / B; d p comes on top of dL/dp.
        - policy: L = -mean(q(a)) for the first critic, so dL/dq = -1/B; from there through the critic to a, and to the
          policy's outputs u, of which a = tanh(u): dL/du = dL/da (1 - a^2).
        """
        if self.passes.is_reference:
            return self.reference(batch, part)
        if part == "critic":
            found = critic_gradient(self.passes.critics, batch, weight=1.0)
            if self.config.critic_weight_decay:
                own = self._parts[part]
                own.gradients.add_(own.values, alpha=self.config.critic_weight_decay)
            return self.output(part, (found.loss, found.value), found.errors)
        actions = np.tanh(self.passes.policy(batch.observations))
        values = self._judge(batch.observations, actions)
        by_values = np.zeros_like(values)
        by_values[0] = -1.0 / len(actions)
        by_actions = self._judge.by_actions(by_values)
        self.passes.policy.backward(by_actions * (1.0 - actions * actions))
        return self.output(part, (-float(values[0].mean()),))

    def critic_loss(self, batch: DDPGBatch, values: torch.Tensor) -> torch.Tensor:
        """Return the loss of the critics' values `[critics, B]`, a scalar, without the decay of their parameters."""
        return losses.critic_loss(values, batch)

    def policy_loss(self, batch: DDPGBatch, values: torch.Tensor) -> torch.Tensor:
        """Return the loss of the policy, from values `[critics, B]` of what it does, a scalar."""
        return losses.policy_loss(values)

    def written_loss(self, batch: DDPGBatch, part: str) -> WrittenLoss:
        """Return the loss of one part for a batch in torch, for autograd."""
        critics = self.networks.critics
        if part == "critic":
            written = self.written_critic_loss(batch)
            penalty = losses.weight_penalty(critics.parameters(), weight=self.config.critic_weight_decay)
            return written._replace(total=written.total + penalty)
        actions = torch.tanh(self.networks.policy(batch.observations))
        loss = self.policy_loss(batch, critics(batch.observations, actions))
        return WrittenLoss(loss, (loss.detach(),))

    def _first_critic(self) -> CriticPass:
        """Return a way through the critics that judge the policy; the packed one spares the others."""
        critics = self.networks.critics
        if self.n_critics > 1 and isinstance(self.passes.critics, PackedCritics) and isinstance(critics, CriticTowers):
            return PackedCritics(critics, crew=Crew(1), count=1)
        return self.passes.critics
