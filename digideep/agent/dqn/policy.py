"""How DQN acts: by the greatest value, at random now and then, or by the values of noisy weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.agent.dqn.passes import FrozenValues
from digideep.agent.modules import check_finite
from digideep.agent.replay.exploration import Exploration
from digideep.agent.schedules import linear
from digideep.spec import ArraySpec
from digideep.types import ActorOutput
from digideep.utility.statistics import Normalizer

__all__ = ["Choice", "DQNActor", "Epsilon", "epsilon_greedy"]

Array: TypeAlias = np.ndarray[Any, Any]


class Epsilon(NamedTuple):
    """The share of random actions: all in the warm-up, then on a line from `initial` to `final`, in rows."""

    warm_up: int
    initial: float
    final: float
    horizon: int

    def at(self, rows: int) -> float:
        """Return the share at the next row, after `rows` of them."""
        if rows < self.warm_up:
            return 1.0
        return linear(self.initial, self.final, horizon=self.horizon, frame=rows - self.warm_up)


class Choice(NamedTuple):
    """The one action that is chosen: its slot, and of how many."""

    slot: str
    n: int


def epsilon_greedy(draws: Array, greedy: Array | None, *, epsilon: float, count: int) -> Array:
    """Return actions `[N]`: random ones where a draw lies below epsilon, elsewhere the greedy ones.

    One number decides both whether an action is random and which it is: below epsilon, draw / epsilon is uniform too.

    Args:
        draws: `[N]`, uniform in [0, 1).
        greedy: `[N]`; None where all draws lie below epsilon.
        epsilon: share of random actions.
        count: of actions to choose from.
    """
    if epsilon == 0.0:
        assert greedy is not None
        return greedy
    # Bounded before it is an integer: with a tiny epsilon it would not fit into one.
    chosen = np.minimum(draws * (count / epsilon), count - 1).astype(np.int64)
    return chosen if greedy is None else np.where(draws < epsilon, chosen, greedy)


class DQNActor:
    """Acts for any number of environments by a frozen network; counts, draws and warm start belong to the agent.

    In training an action is random with the share that `epsilon` gives, or is the best one by weights with noise, which
    is drawn anew at each step for each environment. Sampled in a test or play, when there are generators, it is random
    with the last share of the schedule, or by noise again. With `deterministic` it is the best one, without noise.

    Args:
        frozen: the weights.
        normalizer: applied to every observation.
        exploration: of the agent; asked only where `act` gets no generators and is not deterministic.
        epsilon: share of random actions by rows.
        choice: what is chosen.
        name: of the agent, for errors.
        policy_version: of the weights.
    """

    artifacts: Mapping[str, ArraySpec] = {}

    def __init__(
        self,
        frozen: FrozenValues,
        *,
        normalizer: Normalizer,
        exploration: Exploration,
        epsilon: Epsilon,
        choice: Choice,
        name: str,
        policy_version: int,
    ) -> None:
        self._frozen = frozen
        self._normalizer = normalizer
        self._exploration = exploration
        self._epsilon = epsilon
        self._choice = choice
        self._name = name
        self.policy_version = policy_version
        self.statistics_version = normalizer.version

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
        """Return raw actions for raw observations `[N, ...]`.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        if deterministic:
            actions = self.values(observations).argmax(axis=1)
        elif generators is not None:
            actions = self._sample(observations, generators)
        else:
            actions = self._explore(observations)
        return ActorOutput({self._choice.slot: actions}, {})

    def values(self, observations: Mapping[str, Array], noise: Array | None = None, *, rowwise: bool = True) -> Array:
        """Return action values `[N, A]` for raw observations `[N, ...]`.

        Args:
            observations: by slot.
            noise: of the weights, `[N, noise_size]`; None: none.
            rowwise: whether the row of an environment has the same bits whatever other rows there are.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        values = self._frozen(self._normalizer.observations(observations), noise, rowwise=rowwise)
        check_finite(self._name, values, what="action values")
        return values

    def _explore(self, observations: Mapping[str, Array]) -> Array:
        exploration, size = self._exploration, self._frozen.noise_size
        rows = len(next(iter(observations.values())))
        epsilon = self._epsilon.at(exploration.rows)
        # As many draws whatever they bring, so that the stream does not depend on the values.
        draws = exploration.rng.random(rows)
        noise = exploration.rng.standard_normal((rows, size), dtype=np.float32) if size else None
        greedy = None
        if epsilon < 1.0 and (rows > 1 or draws[0] >= epsilon):
            greedy = self.values(observations, noise, rowwise=False).argmax(axis=1)
        exploration.count(rows)
        return epsilon_greedy(draws, greedy, epsilon=epsilon, count=self._choice.n)

    def _sample(self, observations: Mapping[str, Array], generators: Sequence[np.random.Generator]) -> Array:
        """Return actions `[N]` drawn from one generator a row; nothing is counted."""
        size = self._frozen.noise_size
        draws = np.array([rng.random() for rng in generators])
        noise = np.stack([rng.standard_normal(size, dtype=np.float32) for rng in generators]) if size else None
        greedy = self.values(observations, noise).argmax(axis=1)
        return epsilon_greedy(draws, greedy, epsilon=self._epsilon.final, count=self._choice.n)
