"""The contract of agents: what engines, actors elsewhere and checkpoints need of a learning method."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch

from digideep.errors import ConfigError
from digideep.types import Actor, ActorOutput, Counters, StateDict, Training

if TYPE_CHECKING:
    from digideep.utility.statistics import Normalizer

__all__ = ["Agent", "FlatArray", "GradientOutput", "overridden"]

Array: TypeAlias = np.ndarray[Any, Any]

FlatArray: TypeAlias = torch.Tensor
"""All parameters of one part, or their gradients, one after another."""


class GradientOutput(NamedTuple):
    """A gradient, the figures that came with it, and new priorities `[B]` where the memory has some.

    `flat` may be a buffer that the next call overwrites; `losses` is `[len(agent.loss_names)]`, on the agent's device
    or in numpy.
    """

    flat: FlatArray
    losses: torch.Tensor | Array
    priorities: Array | None = None


class Agent(ABC):
    """A policy and how it learns.

    `parts` names the optimisers in the order of their updates. An update is one `prepare` of the newest chunk and then
    steps, each a gradient and its application to every part; whoever computes gradients elsewhere uses the same two
    methods. `path` says which implementation of them is in use, and why, and `learner_threads` how many threads it runs
    itself at most, beside which those of torch would only be in the way.
    """

    parts: tuple[str, ...]
    loss_names: tuple[str, ...]
    lends: bool = False
    learner_threads: int = 1
    path: str

    @abstractmethod
    def actor(self, normalizer: Normalizer) -> Actor:
        """Return the policy of now with a frozen normaliser inside; later updates do not change it."""

    def join(self, training: Training) -> None:
        """Refuse a training in which nothing could be learnt; called once before it, by the engine.

        Without samples of its policy no method here learns: one from a memory never ends its warm start, and another
        one has no estimate of a policy gradient.

        Raises:
            ConfigError: it is one.
        """
        if training.is_deterministic:
            raise ConfigError(
                "/explorer/train/deterministic: expected false, since agents learn from actions that their policies "
                "sample, found true; set it to false (tests are deterministic by /explorer/test)"
            )

    @abstractmethod
    def update(self, normalizer: Normalizer, counters: Counters) -> None:
        """Learn from the newest chunk, which was sampled with `normalizer`; schedules follow `counters.env_steps`."""

    def figures_of(self, part: str) -> tuple[str, ...]:
        """Return the names of the figures that come with the gradient of a part."""
        return self.loss_names

    @abstractmethod
    def gradients(self, batch: Any, part: str) -> GradientOutput:
        """Return the gradient of one part's loss for a batch."""

    @abstractmethod
    def apply(self, flat: FlatArray, part: str) -> torch.Tensor | float:
        """Take an optimiser step of one part with a gradient; return the norm that the gradient had.

        Raises:
            NonFiniteError: the gradient is not finite; nothing has moved.
        """

    @abstractmethod
    def publish(self) -> tuple[int, FlatArray]:
        """Return the version of the parameters and a copy of them."""

    @abstractmethod
    def policy_state(self) -> StateDict:
        """Return what another run, or a play, can start from: the policy without optimiser and generators."""

    @abstractmethod
    def load_policy_state(self, state: StateDict) -> None:
        """Take over the policy of `policy_state` or of `state_dict`, and nothing else."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return everything that the next update depends on, as plain data."""

    @contextlib.contextmanager
    def lending(self) -> Iterator[None]:
        """Let `state_dict` return the agent's own memory, to be read only, for a save that copies it at once.

        An agent that looks at `lends` may spare a copy; one that does not is as right.
        """
        self.lends = True
        try:
            yield
        finally:
            self.lends = False

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned."""

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
    ) -> ActorOutput:
        """Return actions of the policy of now for observations that need no normalisation."""
        from digideep.utility.statistics import Normalizer

        return self.actor(Normalizer()).act(observations, hidden_state, masks, deterministic=deterministic)


def overridden(agent: Agent, base: type[Agent], *, methods: Sequence[str]) -> list[str]:
    """Return those of `methods` that an agent, or a class between its own and `base`, has replaced."""
    return [name for name in methods if name in vars(agent) or getattr(type(agent), name) is not getattr(base, name)]
