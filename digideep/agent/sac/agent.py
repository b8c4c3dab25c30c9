"""SAC: targets and the gradient of each part, in closed form between the networks and by autograd."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from digideep.agent.base import FlatArray, GradientOutput
from digideep.agent.continuous.agent import ContinuousAgent, WrittenLoss, critic_gradient
from digideep.agent.continuous.soft_policy import SOFT_HEAD, SoftPolicy
from digideep.agent.replay.transitions import Transitions
from digideep.agent.sac import losses
from digideep.agent.sac.config import SACConfig
from digideep.agent.sac.losses import SACBatch, soft_targets
from digideep.model.squashed import squash, squash_torch
from digideep.spec import EnvSpec
from digideep.types import Store
from digideep.utility.imports import BUILT_IN

__all__ = ["SACAgent", "Temperature"]

_LARGEST_LOG = 700.0  # float64 ends at e^709, float32 at e^88


class Temperature(nn.Module):
    """The logarithm of the temperature, as a parameter `[1]`."""

    def __init__(self, initial: float, *, learns: bool) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.full((1,), math.log(initial)), requires_grad=learns)

    @property
    def value(self) -> float:
        """Return the temperature."""
        # A logarithm that has run away is told by the losses that are not finite then, not by an overflow here.
        return math.exp(min(self.log.item(), _LARGEST_LOG))


class SACAgent(ContinuousAgent):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905); README.md lists every detail.

    Subclasses may override `critic_loss`, `policy_loss` and `temperature_loss`, which puts them on the reference path.

    Args: as every agent; see docs/implement_a_method.md.
    """

    figure_names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "critic": ("value_loss", "value"),
        "temperature": ("temperature_loss",),
        "policy": ("policy_loss", "entropy"),
    }
    method = "SAC"
    head = SOFT_HEAD
    outputs = 2
    n_critics = 2
    part_names = ("critic", "temperature", "policy")
    followed = ("critic",)
    batch_type = SACBatch
    loss_methods = ("critic_loss", "policy_loss", "temperature_loss")
    config: SACConfig

    def __init__(
        self,
        config: SACConfig,
        *,
        name: str,
        spec: EnvSpec,
        memory: Store,
        device: str,
        seed: int,
        monitor: Callable[[str, float], None],
        allowed: Sequence[str] = BUILT_IN,
    ) -> None:
        self.temperature = Temperature(config.temperature, learns=config.learn_temperature).to(device)
        super().__init__(
            config,
            name=name,
            spec=spec,
            memory=memory,
            device=device,
            seed=seed,
            monitor=monitor,
            allowed=allowed,
            further={"temperature": self.temperature},
        )
        self.target_entropy = -float(self.vector.size) if config.target_entropy is None else config.target_entropy
        self._soft = SoftPolicy(self.passes.policy)

    def lr(self, part: str) -> float:
        """Return the learning rate of a part's next step; all follow the schedule of the policy's."""
        return self.lr_beside(self.config.temperature_lr) if part == "temperature" else super().lr(part)

    def figures(self) -> dict[str, float]:
        """Return the temperature."""
        return {"temperature": self.temperature.value}

    def make_batch(self, transitions: Transitions) -> SACBatch:
        """Return a batch with targets by the target critics and the policy of now."""
        shape = (len(transitions.rewards), self.vector.size)
        noise = self.noise_rng.standard_normal((2, *shape), dtype=np.float32)
        with torch.no_grad():
            following = squash(self.passes.policy(transitions.following), noise[0])
            values = self.passes.target_critics(transitions.following, following.actions)
        targets = soft_targets(
            transitions.rewards,
            transitions.discounts,
            values=values,
            log_probs=following.log_probs,
            temperature=self.temperature.value,
        )
        return SACBatch(
            observations=transitions.observations,
            actions=self.vector.join(transitions.actions),
            targets=targets.astype(np.float32, copy=False),
            importance=transitions.importance,
            noise=noise[1],
        )

    def gradients(self, batch: SACBatch, part: str) -> GradientOutput:
        """Return the gradient of one part's loss for a batch in numpy.

        With B rows, w their importance, y the targets, l the log-densities of what the policy draws, c the temperature
        and H the target entropy:

        - critic: L = sum over critics of 1/(2B) sum w (q - y)^2, so dL/dq = w (q - y) / B.
        - temperature: L = -log c mean(l + H), so dL/dlog c = -mean(l + H).
        - policy: as `SoftPolicy` has it.
        """
        if self.passes.is_reference:
            return self.reference(batch, part)
        if part == "critic":
            found = critic_gradient(self.passes.critics, batch, weight=0.5)
            return self.output(part, (found.loss, found.value), found.errors)
        if part == "temperature":
            excess = float(self._soft.draw(batch).log_probs.mean()) + self.target_entropy
            self._parts[part].gradients.fill_(-excess)
            return self.output(part, (-self.temperature.log.item() * excess,))
        figures = self._soft.gradient(batch, self.passes.critics, temperature=self.temperature.value)
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

    def critic_loss(self, batch: SACBatch, values: torch.Tensor) -> torch.Tensor:
        """Return the loss of the critics' values `[critics, B]`, a scalar."""
        return losses.critic_loss(values, batch)

    def policy_loss(self, batch: SACBatch, log_probs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return the loss of the policy, from log-densities `[B]` and values `[critics, B]`, a scalar."""
        return losses.policy_loss(log_probs, values, temperature=self.temperature.log.detach().exp())

    def temperature_loss(self, batch: SACBatch, log_probs: torch.Tensor) -> torch.Tensor:
        """Return the loss of the temperature, a scalar."""
        return losses.temperature_loss(self.temperature.log, log_probs, target_entropy=self.target_entropy)

    def written_loss(self, batch: SACBatch, part: str) -> WrittenLoss:
        """Return the loss of one part for a batch in torch, for autograd."""
        networks = self.networks
        if part == "critic":
            return self.written_critic_loss(batch)
        actions, log_probs = squash_torch(networks.policy(batch.observations), batch.noise)
        if part == "temperature":
            loss = self.temperature_loss(batch, log_probs.detach())
            return WrittenLoss(loss, (loss.detach(),))
        loss = self.policy_loss(batch, log_probs, networks.critics(batch.observations, actions))
        return WrittenLoss(loss, (loss.detach(), -log_probs.detach().mean()))
