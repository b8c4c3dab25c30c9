"""What methods with real actions share beside networks and passes: how they are made, batches, and actors."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.agent.base import Agent, GradientOutput, overridden
from digideep.agent.continuous.action_vector import ActionVector
from digideep.agent.continuous.config import ContinuousConfig
from digideep.agent.continuous.networks import Passes, build_actor_critics, choose_passes
from digideep.agent.continuous.passes import CriticPass
from digideep.agent.continuous.policy import FrozenNetwork, Head, VectorActor
from digideep.agent.replay.agent import Networks, ReplayAgent
from digideep.agent.replay.noise import Noise
from digideep.spec import EnvSpec
from digideep.types import Store
from digideep.utility.imports import BUILT_IN
from digideep.utility.seeding import derive
from digideep.utility.statistics import Normalizer

__all__ = ["ContinuousAgent", "Regression", "WrittenLoss", "critic_gradient"]

Array: TypeAlias = np.ndarray[Any, Any]


class WrittenLoss(NamedTuple):
    """What the reference path differentiates, the figures that go with it, and new priorities `[B]`."""

    total: torch.Tensor
    figures: tuple[torch.Tensor, ...]
    priorities: Array | None = None


class Regression(NamedTuple):
    """How far critics were from their targets: loss, mean value, and the mean absolute error of each row `[B]`."""

    loss: float
    value: float
    errors: Array


class ContinuousAgent(ReplayAgent):
    """A method with a policy and critics for actions within [-1, 1].

    A subclass says in class attributes what it is made of, and gives batches and gradients. One that overrides a method
    named in `loss_methods` learns on the reference path.

    Attributes:
        method: its name, for messages.
        head: how outputs of the policy become actions.
        outputs: of the policy for each element of an action.
        n_critics: critics side by side.
        part_names: what there is to learn, in the order of the steps: some of "critic", "policy" and "value", and what
            else a method has.
        followed: the parts that have a target.
        loss_methods: methods that only the reference path calls.
    """

    method: ClassVar[str]
    head: ClassVar[Head]
    outputs: ClassVar[int]
    n_critics: ClassVar[int]
    part_names: ClassVar[tuple[str, ...]]
    followed: ClassVar[tuple[str, ...]]
    loss_methods: ClassVar[tuple[str, ...]]
    config: ContinuousConfig

    def __init__(
        self,
        config: ContinuousConfig,
        *,
        name: str,
        spec: EnvSpec,
        memory: Store,
        device: str,
        seed: int,
        monitor: Callable[[str, float], None],
        allowed: Sequence[str] = BUILT_IN,
        noise: Noise | None = None,
        last_bound: float | None = None,
        further: Mapping[str, nn.Module] = MappingProxyType({}),
    ) -> None:
        self.vector = ActionVector(spec.actions, method=self.method)
        self.networks = networks = build_actor_critics(
            config.model,
            spec,
            outputs=self.outputs * self.vector.size,
            actions=self.vector.size,
            critics=self.n_critics,
            has_value="value" in self.part_names,
            last_bound=last_bound,
            seed=derive(seed, "agents", name, "weights"),
            where=f"/agents/{name}/model",
            device=device,
            allowed=allowed,
        )
        made = {"policy": networks.policy, "critic": networks.critics, "value": networks.value, **further}
        modules = {part: module for part in self.part_names if (module := made[part]) is not None}
        super().__init__(
            config,
            Networks(
                policy=nn.ModuleDict(modules),
                parts={part: module for part, module in modules.items() if _learns(module)},
                targets={part: copy.deepcopy(modules[part]) for part in self.followed},
            ),
            name=name,
            spec=spec,
            memory=memory,
            device=torch.device(device),
            seed=seed,
            monitor=monitor,
            noise=noise,
        )
        self.passes: Passes = choose_passes(
            networks,
            targets=self.targets,
            device=self.device,
            replaced=overridden(self, _writer(type(self)), methods=self.loss_methods),
            owner=type(self).__name__,
            rows=config.batch_size,
        )
        self.path = self.passes.told
        self.learner_threads = self.passes.threads
        self.spread_products(self.passes.products)
        self._frozen: FrozenNetwork | None = None

    @abstractmethod
    def critic_loss(self, batch: Any, values: torch.Tensor) -> torch.Tensor:
        """Return the loss of the critics' values `[critics, B]`, a scalar."""

    @abstractmethod
    def written_loss(self, batch: Any, part: str) -> WrittenLoss:
        """Return the loss of one part for a batch in torch, for autograd."""

    def actor(self, normalizer: Normalizer) -> VectorActor:
        """Return the policy of now; actors between two updates share one copy of the weights."""
        if self._frozen is None:
            self._frozen = FrozenNetwork(self.networks.policy)
        return VectorActor(
            self._frozen,
            head=self.head,
            vector=self.vector,
            normalizer=normalizer,
            exploration=self.exploration,
            name=self.name,
            policy_version=self.updates,
        )

    def lr(self, part: str) -> float:
        """Return the learning rate of a part's next step; all follow the schedule of the policy's."""
        return self.lr_beside(None if part == "policy" else self.config.critic_lr)

    def lr_beside(self, own: float | None) -> float:
        """Return a learning rate that is `own` at frame 0 and follows the policy's from there; None: the policy's."""
        config, scheduled = self.config, super().lr("policy")
        if own is None:
            return scheduled
        return own * (scheduled / config.lr if config.lr else 1.0)

    def changed(self) -> None:
        """Take note that the networks are no longer what an actor was made from."""
        self._frozen = None

    def follow(self) -> None:
        """Move the targets."""
        self.polyak(self.config.tau)

    def reference(self, batch: Any, part: str) -> GradientOutput:
        """Return the gradient of one part's loss by autograd through the loss as it is written."""
        own = self._parts[part]
        own.gradients.zero_()
        loss = self.written_loss(self.in_torch(batch), part)
        module: nn.Module = self.policy[part]  # type: ignore[index]
        torch.autograd.backward([loss.total], inputs=[p for p in module.parameters() if p.requires_grad])
        return self.output(part, torch.stack(loss.figures).cpu().numpy(), loss.priorities)

    def written_critic_loss(self, batch: Any) -> WrittenLoss:
        """Return the loss of the critics for a batch in torch, and what goes with it."""
        values = self.networks.critics(batch.observations, batch.actions)
        loss = self.critic_loss(batch, values)
        priorities = (values.detach() - batch.targets).abs().mean(dim=0).cpu().numpy()
        return WrittenLoss(loss, (loss.detach(), values.detach().mean()), priorities)


def critic_gradient(critics: CriticPass, batch: Any, *, weight: float) -> Regression:
    """Write the gradient of critics that are regressed on the targets of a batch.

    With B rows and w their importance: L = weight times the sum over the critics of mean(w (q - y)^2), so that
    dL/dq = 2 weight w (q - y) / B.
    """
    values = critics(batch.observations, batch.actions)
    errors = values - batch.targets
    weighted = errors * batch.importance
    weighted *= 2.0 * weight / len(batch.targets)
    critics.backward(weighted)
    return Regression(0.5 * float((errors * weighted).sum()), float(values.mean()), np.abs(errors).mean(axis=0))


def _learns(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _writer(cls: type[ContinuousAgent]) -> type[Agent]:
    """Return the class that wrote the losses of `cls`: what others have between it and theirs replaces them."""
    return next(base for base in cls.__mro__ if "loss_methods" in vars(base))
