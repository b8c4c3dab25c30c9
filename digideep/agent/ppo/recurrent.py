"""PPO with a network that has a hidden state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import RecurrentPPOConfig
from digideep.agent.ppo.recurrent_policy import FrozenRecurrentPolicy, RecurrentPPOActor
from digideep.agent.ppo.sequences import cut, sequence_minibatches
from digideep.agent.rollout.batches import Rollout, RolloutBatch, own_array
from digideep.errors import ConfigError
from digideep.types import Chunk
from digideep.utility.statistics import Normalizer

__all__ = ["RecurrentPPOAgent"]

Array: TypeAlias = np.ndarray[Any, Any]


class RecurrentPPOAgent(PPOAgent):
    """PPO over sequences of `sequence_length` steps, each from the hidden state that acting had at its beginning.

    README.md has the details. Losses may be overridden as those of `PPOAgent`; the rows of a batch are then those of
    whole sequences, which no loss has to know.
    """

    is_recurrent = True
    config: RecurrentPPOConfig

    def actor(self, normalizer: Normalizer) -> RecurrentPPOActor:
        """Return the policy of now; actors between two updates share one copy of the weights."""
        frozen = self._frozen
        if not isinstance(frozen, FrozenRecurrentPolicy):
            self._frozen = frozen = FrozenRecurrentPolicy(self.policy)
        return RecurrentPPOActor(
            frozen,
            normalizer=normalizer,
            rng=self._generators["actions"],
            name=self.name,
            policy_version=self._updates,
        )

    def prepare(self, chunk: Chunk, normalizer: Normalizer) -> Rollout:
        """Return the rows of a chunk, normalised, with advantages and returns, and cut into sequences.

        Raises:
            ConfigError: the steps of a chunk are more than `sequence_length`, and no multiple of it.
        """
        arrays, prefix = chunk.arrays, f"/agents/{self.name}"
        masks = own_array(arrays, "masks", prefix=prefix)[:, :-1]
        steps = masks.shape[1]
        length = min(self.config.sequence_length, steps)
        if steps % length:
            raise ConfigError(
                f"{prefix}/sequence_length: expected a divisor of n_steps, which is {steps}, found {length}; "
                f"change one of the two"
            )
        rollout = super().prepare(chunk, normalizer)
        hidden = {key: array[:, :-1] for key, array in self._hidden_state(arrays).items()}
        return rollout._replace(pieces=cut(hidden, masks, length=length, device=self._path.device))

    def _hidden_state(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        prefix = f"/agents/{self.name}/hidden_state"
        return {key: arrays[f"{prefix}/{key}"] for key in self.policy.hidden_shapes}

    def _newest_values(self, arrays: Mapping[str, Array], normalizer: Normalizer) -> Array:
        newest = {slot: arrays[f"/observations/{slot}"][:, -1] for slot in self.spec.observations}
        hidden = {key: array[:, -1] for key, array in self._hidden_state(arrays).items()}
        masks = own_array(arrays, "masks", prefix=f"/agents/{self.name}")[:, -1]
        return self.actor(normalizer).advance(newest, hidden, masks, rowwise=False)[0].values

    def minibatches(self, rollout: Rollout) -> Iterator[RolloutBatch]:
        """Yield every sequence once an epoch, shuffled."""
        config, rng = self.config, self._generators["shuffle"]
        for _ in range(config.update_epochs):
            yield from sequence_minibatches(
                rollout, rng, size=config.minibatch_size, normalize=config.normalize_advantage
            )
