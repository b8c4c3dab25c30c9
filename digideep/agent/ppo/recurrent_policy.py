"""The policy as actors hold it where the network has a hidden state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.agent.modules import FrozenModule, check_finite
from digideep.agent.policy import Policy
from digideep.agent.rollout.policy import FrozenPolicy, RolloutActor
from digideep.model.frozen import Prediction
from digideep.model.frozen_rnn import FrozenRNN
from digideep.model.rnn import ActorCriticRNN
from digideep.types import ActorOutput
from digideep.utility.statistics import Normalizer

__all__ = ["FrozenRecurrentPolicy", "RecurrentPPOActor"]

Array: TypeAlias = np.ndarray[Any, Any]


class FrozenRecurrentPolicy(FrozenPolicy):
    """A copy of a policy's weights that takes one step: in numpy for standard networks, in torch for any other module.

    `advance` gives prediction and next hidden state; `predict` is a step at the beginning of an episode.
    """

    def __init__(self, policy: Policy) -> None:
        self.heads = policy.heads
        self.log_std = None if policy.log_std is None else policy.log_std.detach().cpu().numpy().copy()
        self.hidden_shapes = policy.hidden_shapes
        self.outputs = None
        self.predict = self._begin
        network = policy.network
        self.advance: Callable[..., tuple[Prediction, dict[str, Array]]]
        if isinstance(network, ActorCriticRNN) and FrozenRNN.can_freeze(network):
            self.advance = FrozenRNN(network)
        else:
            self.advance = _FrozenRecurrentModule(policy)

    def initial_state(self, rows: int) -> dict[str, Array]:
        """Return the hidden state at the beginning of episodes: zeros."""
        return {key: np.zeros((rows, *shape), np.float32) for key, shape in self.hidden_shapes.items()}

    def _begin(self, observations: Mapping[str, Array], *, rowwise: bool) -> Prediction:
        rows = len(next(iter(observations.values())))
        masks = np.zeros(rows, np.float32)
        return self.advance(observations, self.initial_state(rows), masks, rowwise=rowwise)[0]


class RecurrentPPOActor(RolloutActor):
    """A `RolloutActor` that keeps a hidden state: given with each observation, and returned for the next one.

    Where a mask is 0 the observation opens an episode, and the state is reset before it is looked at.
    """

    def __init__(
        self,
        frozen: FrozenRecurrentPolicy,
        *,
        normalizer: Normalizer,
        rng: np.random.Generator,
        name: str,
        policy_version: int,
    ) -> None:
        super().__init__(frozen, normalizer=normalizer, rng=rng, name=name, policy_version=policy_version)
        self._recurrent = frozen

    def initial_state(self, num_envs: int) -> dict[str, Array]:
        """Return the hidden state at the beginning of `num_envs` episodes: zeros `[num_envs, ...]` by key."""
        return self._recurrent.initial_state(num_envs)

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        """Return raw actions for raw observations `[N, ...]`, and the next hidden state.

        Without a hidden state episodes begin; without masks they go on. With `deterministic`, or with one generator an
        environment, the row of an environment has the same bits whatever other rows there are.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        rowwise = deterministic or generators is not None
        prediction, after = self.advance(observations, hidden_state, masks, rowwise=rowwise)
        output = self._decide(prediction, deterministic=deterministic, generators=generators)
        return output._replace(hidden_state=after)

    def advance(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None,
        masks: Array | None,
        *,
        rowwise: bool,
    ) -> tuple[Prediction, dict[str, Array]]:
        """Return policy outputs, values and the next hidden state for raw observations `[N, ...]`.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        rows = len(next(iter(observations.values())))
        state = self.initial_state(rows) if hidden_state is None else hidden_state
        keep = np.ones(rows, np.float32) if masks is None else masks
        seen = self._normalizer.observations(observations)
        prediction, after = self._recurrent.advance(seen, state, keep, rowwise=rowwise)
        check_finite(self._name, prediction.outputs, prediction.values)
        return prediction, after


class _OneStep(nn.Module):
    """A recurrent network that takes one step: masks `[B]` come in, the parts of the next hidden state come out."""

    def __init__(self, network: nn.Module, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.keys = keys

    def forward(
        self, observations: Mapping[str, torch.Tensor], hidden_state: Mapping[str, torch.Tensor], masks: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        outputs, values, after = self.network(observations, hidden_state, masks[None])
        return outputs, values, *(after[key] for key in self.keys)


class _FrozenRecurrentModule:
    """A copy of any recurrent network, in evaluation mode; rows that must not notice each other one by one."""

    def __init__(self, policy: Policy) -> None:
        self._keys = tuple(policy.hidden_shapes)
        self._step = FrozenModule(_OneStep(policy.network, self._keys))

    def __call__(
        self, observations: Mapping[str, Array], hidden_state: Mapping[str, Array], masks: Array, *, rowwise: bool
    ) -> tuple[Prediction, dict[str, Array]]:
        """Return the prediction for normalised observations, and the next hidden state."""
        outputs, values, *after = self._step(observations, hidden_state, masks, rowwise=rowwise)
        return Prediction(outputs, values), dict(zip(self._keys, after, strict=True))
