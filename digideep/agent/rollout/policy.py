"""The policy as actors hold it: frozen, numpy in and numpy out, with its normaliser inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from digideep.agent.modules import FrozenModule, check_finite
from digideep.agent.policy import Policy
from digideep.model.frozen import FrozenMLP, Prediction
from digideep.model.mlp import ActorCriticMLP
from digideep.spec import ArraySpec
from digideep.types import ActorOutput
from digideep.utility.statistics import Normalizer

__all__ = ["FrozenPolicy", "LateRolloutActor", "RolloutActor"]

Array: TypeAlias = np.ndarray[Any, Any]

_BLOCK = 2048  # rows of a chunk that are completed at once: activations of more would leave the caches
_NUMBER = ArraySpec(kind="box", shape=(), dtype="float32")


class FrozenPolicy:
    """A copy of a policy's weights that only predicts: in numpy for standard MLPs, in torch for any other module."""

    def __init__(self, policy: Policy) -> None:
        self.heads = policy.heads
        self.log_std = None if policy.log_std is None else policy.log_std.detach().cpu().numpy().copy()
        network = policy.network
        self.predict: Callable[..., Prediction]
        self.outputs: Callable[[Mapping[str, Array]], Array] | None = None  # of the policy, where they alone cost less
        if isinstance(network, ActorCriticMLP) and FrozenMLP.can_freeze(network):
            self.predict = frozen = FrozenMLP(network)
            self.outputs = frozen.outputs if frozen.is_split else None
        else:
            self.predict = _FrozenModule(policy)


class RolloutActor:
    """Acts for any number of environments; gives `log_probs` and `values` with each action.

    Args:
        frozen: the weights.
        normalizer: applied to every observation.
        rng: drawn from where `act` is given no generators; it belongs to the agent and is part of its state.
        name: of the agent, for errors.
        policy_version: of the weights.
    """

    artifacts: Mapping[str, ArraySpec] = {"log_probs": _NUMBER, "values": _NUMBER}

    def __init__(
        self, frozen: FrozenPolicy, *, normalizer: Normalizer, rng: np.random.Generator, name: str, policy_version: int
    ) -> None:
        self._frozen = frozen
        self._normalizer = normalizer
        self._rng = rng
        self._name = name
        self.policy_version = policy_version
        self.statistics_version = normalizer.version

    def initial_state(self, num_envs: int) -> dict[str, Array] | None:
        """Return None: the policy has no hidden state."""
        return None

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

        With `deterministic`, or with one generator an environment, the row of an environment has the same bits
        whatever other rows there are.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        rowwise = deterministic or generators is not None
        prediction = self.predict(observations, rowwise=rowwise)
        return self._decide(prediction, deterministic=deterministic, generators=generators)

    def _decide(
        self, prediction: Prediction, *, deterministic: bool, generators: Sequence[np.random.Generator] | None
    ) -> ActorOutput:
        heads = self._frozen.heads
        rows = len(prediction.values)
        noise = None if deterministic else heads.noise(self._rng if generators is None else generators, rows)
        drawn = heads.draw(prediction.outputs, self._frozen.log_std, noise)
        return ActorOutput(drawn.actions, {"log_probs": drawn.log_probs, "values": prediction.values})

    def predict(self, observations: Mapping[str, Array], *, rowwise: bool) -> Prediction:
        """Return policy outputs and values for raw observations `[N, ...]`.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        prediction = self._frozen.predict(self._normalizer.observations(observations), rowwise=rowwise)
        check_finite(self._name, prediction.outputs, prediction.values)
        return prediction


class LateRolloutActor(RolloutActor):
    """A `RolloutActor` that gives actions at once and what belongs to them for a whole chunk, see `LateActor`."""

    def choose(self, observations: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return sampled raw actions for raw observations `[N, ...]`.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        frozen = self._frozen
        assert frozen.outputs is not None
        outputs = frozen.outputs(self._normalizer.observations(observations))
        check_finite(self._name, outputs)
        return frozen.heads.pick(outputs, frozen.log_std, frozen.heads.noise(self._rng, len(outputs)))

    def complete(self, observations: Mapping[str, Array], actions: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return `log_probs` and `values` for rows `[R, ...]` of observations and actions.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        heads, log_std = self._frozen.heads, self._frozen.log_std
        log_probs, values = [], []
        for start in range(0, len(next(iter(actions.values()))), _BLOCK):
            block = slice(start, start + _BLOCK)
            prediction = self.predict({slot: array[block] for slot, array in observations.items()}, rowwise=False)
            taken = {slot: array[block] for slot, array in actions.items()}
            log_probs.append(heads.log_probs(prediction.outputs, log_std, taken))
            values.append(prediction.values)
        return {"log_probs": np.concatenate(log_probs), "values": np.concatenate(values)}


class _FrozenModule:
    """A copy of any network, in evaluation mode."""

    def __init__(self, policy: Policy) -> None:
        self._network = FrozenModule(policy.network)

    def __call__(self, observations: Mapping[str, Array], *, rowwise: bool) -> Prediction:
        """Return policy outputs and values for normalised observations."""
        return Prediction(*self._network(observations, rowwise=rowwise))
