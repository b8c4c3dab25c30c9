"""Actors whose policies give real numbers within [-1, 1]: random at first, then what the policy says and some noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from torch import nn

from digideep.agent.continuous.action_vector import ActionVector
from digideep.agent.continuous.passes import is_packable
from digideep.agent.modules import FrozenModule, check_finite
from digideep.agent.replay.exploration import Exploration
from digideep.model.actor_critics import ObservationTower
from digideep.model.observations import flat_rows
from digideep.model.packed_towers import FrozenTowers
from digideep.spec import ArraySpec
from digideep.types import ActorOutput
from digideep.utility.statistics import Normalizer

__all__ = ["FrozenNetwork", "Head", "VectorActor"]

Array: TypeAlias = np.ndarray[Any, Any]


class Head(NamedTuple):
    """How outputs `[B, K]` become actions `[B, D]`: the best ones, and for noise `[B, D]` others.

    `draw` is None for a policy that is deterministic.
    """

    best: Callable[[Array], Array]
    draw: Callable[[Array, Array], Array] | None


class FrozenNetwork:
    """A copy of a policy's network that only predicts: in numpy for standard ones, in torch for any other module."""

    def __init__(self, network: nn.Module) -> None:
        self._towers: FrozenTowers | None = None
        if isinstance(network, ObservationTower) and is_packable(network):
            self._specs = network.inputs.specs
            self._towers = FrozenTowers(network.towers)
        else:
            self._network = FrozenModule(network)

    def __call__(self, observations: Mapping[str, Array], *, rowwise: bool) -> Array:
        """Return outputs `[B, K]` for normalised observations.

        With `rowwise` each row is computed on its own, so that its result has the same bits in every batch.
        """
        if self._towers is not None:
            return np.asarray(self._towers(flat_rows(observations, self._specs), rowwise=rowwise)[0])
        (outputs,) = self._network(observations, rowwise=rowwise)
        return outputs


class VectorActor:
    """Acts for any number of environments by a frozen network; counts, noise and warm start belong to the agent.

    Args:
        network: the weights.
        head: what the outputs mean.
        vector: the action slots.
        normalizer: applied to every observation.
        exploration: of the agent; asked only where `act` gets no generators and is not deterministic.
        name: of the agent, for errors.
        policy_version: of the weights.
    """

    artifacts: Mapping[str, ArraySpec] = {}

    def __init__(
        self,
        network: FrozenNetwork,
        *,
        head: Head,
        vector: ActionVector,
        normalizer: Normalizer,
        exploration: Exploration,
        name: str,
        policy_version: int,
    ) -> None:
        self._network = network
        self._head = head
        self._vector = vector
        self._normalizer = normalizer
        self._exploration = exploration
        self._name = name
        self.policy_version = policy_version
        self.statistics_version = normalizer.version

    @property
    def needs_all_rows(self) -> bool:
        """Whether each call has to be for the same environments, those of the call before."""
        return self._exploration.remembers

    def initial_state(self, num_envs: int) -> None:
        """Return None: the policy has no hidden state."""
        return

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        """Return actions within [-1, 1] for raw observations `[N, ...]`.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        if deterministic or generators is not None:
            outputs = self._outputs(observations, rowwise=True)
            if deterministic or self._head.draw is None or generators is None:
                actions = self._head.best(outputs)
            else:
                size = (self._vector.size,)
                noise = np.stack([rng.standard_normal(size, dtype=np.float32) for rng in generators])
                actions = self._head.draw(outputs, noise)
        else:
            actions = self._explore(observations, masks)
        return ActorOutput(self._vector.split(actions), {})

    def _explore(self, observations: Mapping[str, Array], masks: Array | None) -> Array:
        exploration = self._exploration
        shape = (len(next(iter(observations.values()))), self._vector.size)
        if not exploration.is_warm:
            actions = exploration.random_actions(shape)
        else:
            outputs = self._outputs(observations, rowwise=False)
            if self._head.draw is not None:
                actions = self._head.draw(outputs, exploration.rng.standard_normal(shape, dtype=np.float32))
            else:
                actions = exploration.noisy(self._head.best(outputs), masks)
        exploration.count(shape[0])
        return actions

    def _outputs(self, observations: Mapping[str, Array], *, rowwise: bool) -> Array:
        outputs = self._network(self._normalizer.observations(observations), rowwise=rowwise)
        check_finite(self._name, outputs)
        return outputs
