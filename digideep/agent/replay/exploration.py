"""What a method tries that its policy would not do: random actions to begin with, then noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from digideep.agent.replay.noise import Noise
from digideep.errors import CheckpointError
from digideep.utility.differences import check_parts
from digideep.utility.seeding import generator_state, set_generator_state

__all__ = ["Exploration"]

Array: TypeAlias = np.ndarray[Any, Any]


class Exploration:
    """Counts the rows that were acted on, one for each environment and step, and draws what is random about them.

    Rows and generator are part of the state: a warm start goes on, or is over, where it was when a run was resumed.

    Args:
        warm_up: rows that are acted at random, at the very beginning.
        rng: what everything is drawn from.
        noise: added to actions after the warm-up; None: the policy is random itself.

    Attributes:
        rows: acted on so far.
        rng: what everything is drawn from.
    """

    def __init__(self, *, warm_up: int, rng: np.random.Generator, noise: Noise | None = None) -> None:
        self._warm_up = warm_up
        self._noise = noise
        self.rng = rng
        self.rows = 0

    @property
    def is_warm(self) -> bool:
        """Whether the rows that are acted at random are over."""
        return self.rows >= self._warm_up

    @property
    def noise_scale(self) -> float:
        """Deviation of the noise at the next row; 0 without noise."""
        return 0.0 if self._noise is None else self._noise.scale(max(0, self.rows - self._warm_up))

    @property
    def remembers(self) -> bool:
        """Whether noise depends on what each environment had before."""
        return self._noise is not None and self._noise.remembers

    def random_actions(self, shape: tuple[int, ...]) -> Array:
        """Return actions `[N, D]`, uniform within [-1, 1]."""
        return np.asarray(self.rng.random(shape, dtype=np.float32) * np.float32(2.0) - np.float32(1.0))

    def noisy(self, actions: Array, masks: Array | None) -> Array:
        """Return actions `[N, D]` with noise, within [-1, 1]; where a mask `[N]` is 0 an episode begins."""
        if self._noise is None:
            return actions
        row = self.rows - self._warm_up
        noise = self._noise.draw(actions.shape, self.rng, row=row, masks=masks)
        return np.asarray(np.clip(actions + noise, -1.0, 1.0))

    def count(self, rows: int) -> None:
        """Take note that `rows` rows were acted on."""
        self.rows += rows

    def state_dict(self) -> dict[str, Any]:
        """Return rows, noise and generator as plain data."""
        noise = None if self._noise is None else self._noise.state_dict()
        return {"rows": self.rows, "noise": noise, "generator": generator_state(self.rng)}

    def load_state_dict(self, state: Mapping[str, Any], *, where: str) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: a part is missing or surplus, or there is noise in one of the two only.
        """
        check_parts(state, ("rows", "noise", "generator"), where=where)
        noise = state["noise"]
        if (noise is None) != (self._noise is None):
            told = ["no noise" if one is None else "noise" for one in (self._noise, noise)]
            raise CheckpointError(f"{where}/noise: expected {told[0]}, found {told[1]}; take another checkpoint")
        self.rows = int(state["rows"])
        if self._noise is not None:
            self._noise.load_state_dict(noise, where=f"{where}/noise")
        set_generator_state(self.rng, state["generator"])
