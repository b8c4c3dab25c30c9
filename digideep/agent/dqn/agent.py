"""DQN: the network and the one that follows it, targets, and the gradient in closed form and by autograd."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch

from digideep.agent.base import GradientOutput, overridden
from digideep.agent.dqn import losses
from digideep.agent.dqn.config import DQNConfig
from digideep.agent.dqn.losses import QBatch, q_targets
from digideep.agent.dqn.passes import FrozenValues, build_q_network, choose_value_passes, noise_size
from digideep.agent.dqn.policy import Choice, DQNActor, Epsilon
from digideep.agent.replay.agent import Networks, ReplayAgent
from digideep.agent.replay.transitions import Transitions
from digideep.errors import SpaceError
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Store
from digideep.utility.imports import BUILT_IN
from digideep.utility.seeding import derive
from digideep.utility.statistics import Normalizer

__all__ = ["LOSS_METHODS", "DQNAgent"]

Array: TypeAlias = np.ndarray[Any, Any]

LOSS_METHODS = ("value_loss",)
"""Methods that only the reference path calls: overriding one puts an agent on it."""

_PART = "policy"


class DQNAgent(ReplayAgent):
    """Deep Q-learning (Mnih et al. 2015, Nature 518) and what was added to it; README.md lists every detail.

    Subclasses may override `value_loss`, which puts them on the reference path, and `following_values`.

    Args: as every agent; see docs/implement_a_method.md.
    """

    figure_names: ClassVar[Mapping[str, tuple[str, ...]]] = {_PART: ("value_loss", "value")}
    batch_type = QBatch
    config: DQNConfig

    def __init__(
        self,
        config: DQNConfig,
        *,
        name: str,
        spec: EnvSpec,
        memory: Store,
        device: str,
        seed: int,
        monitor: Callable[[str, float], None],
        allowed: Sequence[str] = BUILT_IN,
    ) -> None:
        self.choice = _only_choice(spec.actions)
        self.network = build_q_network(
            config.model,
            spec,
            outputs=self.choice.n,
            seed=derive(seed, "agents", name, "weights"),
            where=f"/agents/{name}/model",
            device=device,
            allowed=allowed,
        )
        target = copy.deepcopy(self.network)
        super().__init__(
            config,
            Networks(policy=self.network, parts={_PART: self.network}, targets={_PART: target}),
            name=name,
            spec=spec,
            memory=memory,
            device=torch.device(device),
            seed=seed,
            monitor=monitor,
        )
        replaced = overridden(self, DQNAgent, methods=LOSS_METHODS)
        self._passes = choose_value_passes(
            self.network, target=target, device=self.device, replaced=replaced, owner=type(self).__name__
        )
        self.path = self._passes.told
        self.noise_size = noise_size(self.network)
        horizon = round(config.epsilon_fraction * config.epsilon_horizon)
        shares = (0.0, 0.0) if self.noise_size else (config.epsilon, config.epsilon_final)
        self.epsilon = Epsilon(config.warm_up, *shares, horizon)
        self._rows = np.arange(config.batch_size)
        self._frozen: FrozenValues | None = None

    def actor(self, normalizer: Normalizer) -> DQNActor:
        """Return the policy of now; actors between two updates share one copy of the weights."""
        if self._frozen is None:
            self._frozen = FrozenValues(self.network, in_numpy=self._passes.is_packable)
        return DQNActor(
            self._frozen,
            normalizer=normalizer,
            exploration=self.exploration,
            epsilon=self.epsilon,
            choice=self.choice,
            name=self.name,
            policy_version=self.updates,
        )

    def figures(self) -> dict[str, float]:
        """Return the share of random actions, where it is not noise that explores."""
        return {} if self.noise_size else {"epsilon": self.epsilon.at(self.exploration.rows)}

    def make_batch(self, transitions: Transitions) -> QBatch:
        """Return a batch with targets; weights have another noise wherever they are used."""
        noise = self.noise_rng.standard_normal((3, self.noise_size), dtype=np.float32)
        with torch.no_grad():
            targets = self.following_values(transitions, noise[1:])
        return QBatch(
            observations=transitions.observations,
            actions=transitions.actions[self.choice.slot],
            targets=targets,
            importance=transitions.importance,
            noise=noise[0],
        )

    def following_values(self, transitions: Transitions, noise: Array) -> Array:
        """Return what transitions are worth `[B]`, by the target network and, if double, the choice of the other.

        `noise` `[2, noise_size]` is that of the target network and that of the choice.
        """
        following = transitions.following
        return q_targets(
            transitions.rewards,
            transitions.discounts,
            target_values=self._passes.target_values(following, noise[0]),
            values=self._passes.values(following, noise[1]) if self.config.double else None,
        )

    def gradients(self, batch: QBatch, part: str = _PART) -> GradientOutput:
        """Return the gradient for a batch in numpy.

        With B rows, w their importance, y the targets and e = q(a) - y: dL/dq(a) = w clip(e, -1, 1) / B.
        """
        if self._passes.is_reference:
            return self._reference(batch)
        rows = self._rows if len(self._rows) == len(batch.actions) else np.arange(len(batch.actions))
        values = self._passes.values(batch.observations, batch.noise)
        errors = values[rows, batch.actions] - batch.targets
        clipped = np.minimum(np.maximum(errors, -1.0), 1.0)
        weighted = clipped * (batch.importance / len(rows))
        by_values = np.zeros_like(values)
        by_values[rows, batch.actions] = weighted
        self._passes.values.backward(by_values)
        loss = float(weighted.dot(errors - 0.5 * clipped))
        return self.output(_PART, (loss, float(values.max(axis=1).mean())), errors)

    def follow(self) -> None:
        """Move the target network, every `target_interval` gradient steps."""
        if (self.steps + 1) % self.config.target_interval == 0:
            self.polyak(self.config.tau)

    def changed(self) -> None:
        """Take note that the network is no longer what an actor was made from."""
        self._frozen = None

    def value_loss(self, batch: QBatch, values: torch.Tensor) -> torch.Tensor:
        """Return the loss of the action values `[B, A]`, a scalar."""
        return losses.huber_loss(values, batch)

    def _reference(self, batch: QBatch) -> GradientOutput:
        """Return the gradient by autograd through the loss as it is written."""
        tensors: QBatch = self.in_torch(batch)
        self._parts[_PART].gradients.zero_()
        values = (
            self.network(tensors.observations, tensors.noise) if self.noise_size else self.network(tensors.observations)
        )
        loss = self.value_loss(tensors, values)
        loss.backward()  # type: ignore[no-untyped-call]
        found = values.detach()
        errors = found.gather(1, tensors.actions[:, None]).squeeze(1) - tensors.targets
        figures = torch.stack((loss.detach(), found.max(dim=1).values.mean()))
        return self.output(_PART, figures.cpu().numpy(), errors.cpu().numpy())


def _only_choice(actions: Mapping[str, ArraySpec]) -> Choice:
    """Return the one action that there is to choose.

    Raises:
        SpaceError: there are more, or it is no choice of one among some.
    """
    if len(actions) == 1:
        ((slot, spec),) = actions.items()
        if spec.kind == "discrete":
            return Choice(slot, spec.n[0])
    found = ", ".join(
        f"{spec.kind} of shape {spec.shape}" + (f" in {slot!r}" if slot else "") for slot, spec in actions.items()
    )
    raise SpaceError(
        f"action space: expected one discrete action for DQN, found {found or 'none'}; use another method, such as PPO"
    )
