"""How the Q-learner tries things: random actions at first, then ever fewer, and noise on values that has a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from digideep.agent.schedules import linear
from digideep.testing.q_config import QConfig
from digideep.utility.seeding import generator_state, set_generator_state

__all__ = ["Exploration"]

Array: TypeAlias = np.ndarray[Any, Any]


class Exploration:
    """Epsilon-greedy choices from action values with Ornstein-Uhlenbeck noise on them.

    It counts its own rows, one for each environment and step: warm-up and schedule go on where they stood, whatever
    else begins anew.

    Args:
        config: warm-up, schedule and noise.
        rng: what it draws from; part of its state.

    Attributes:
        rows: acted on so far.
    """

    def __init__(self, config: QConfig, *, rng: np.random.Generator) -> None:
        self._config = config
        self._rng = rng
        self._noise: Array | None = None  # [N, A], since the first row
        self.rows = 0

    @property
    def is_warm(self) -> bool:
        """Return whether the rows that are acted at random are over."""
        return self.rows >= self._config.warm_up

    @property
    def epsilon(self) -> float:
        """Return the share of random actions at the next row."""
        if not self.is_warm:
            return 1.0
        config = self._config
        frame = self.rows - config.warm_up
        return linear(config.epsilon, config.epsilon_final, horizon=config.epsilon_horizon, frame=frame)

    def choose(self, values: Array, masks: Array | None) -> Array:
        """Return actions `[N]` for values `[N, A]`, and count the rows; where a mask is 0 the noise begins at 0."""
        choices = _draw(self._rng, values, epsilon=self.epsilon, noise=self._next_noise(values, masks))
        self.rows += len(values)
        return choices

    def choose_apart(self, values: Array, generators: Sequence[np.random.Generator]) -> Array:
        """Return actions `[N]` drawn from one generator a row, without noise; nothing is counted."""
        rows = [
            _draw(rng, values[row : row + 1], epsilon=self.epsilon, noise=0.0) for row, rng in enumerate(generators)
        ]
        return np.concatenate(rows)

    def state_dict(self) -> dict[str, Any]:
        """Return rows, noise and generator as plain data."""
        noise = None if self._noise is None else self._noise.copy()
        return {"rows": self.rows, "noise": noise, "generator": generator_state(self._rng)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.rows = int(state["rows"])
        self._noise = None if state["noise"] is None else np.array(state["noise"])
        set_generator_state(self._rng, state["generator"])

    def _next_noise(self, values: Array, masks: Array | None) -> Array:
        config = self._config
        noise = self._noise
        if noise is None or noise.shape != values.shape:
            noise = np.zeros(values.shape)
        elif masks is not None:
            noise = noise * masks[:, None]
        self._noise = (1.0 - config.noise_rate) * noise + config.noise_scale * self._rng.standard_normal(values.shape)
        return self._noise


def _draw(rng: np.random.Generator, values: Array, *, epsilon: float, noise: Array | float) -> Array:
    count, actions = values.shape
    # As many draws whatever happens with them, so that the stream does not depend on the values.
    is_random, random_actions = rng.random(count) < epsilon, rng.integers(actions, size=count)
    return np.asarray(np.where(is_random, random_actions, (values + noise).argmax(axis=1)))
