"""Prioritised replay as it is written down: a priority for each real transition, in a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
from made_chunks import EveryRow

from digideep.types import Chunk

Array = np.ndarray[Any, Any]


class EveryPriority:
    """Works out row by row what a prioritised memory of `rows` rows an environment has to draw.

    Attributes:
        priorities: by environment and row, of the transitions that can be drawn.
    """

    def __init__(self, *, num_envs: int, rows: int) -> None:
        self._every = EveryRow(num_envs=num_envs, rows=rows)
        self._num_envs, self._rows = num_envs, rows
        self.priorities: dict[tuple[int, int], float] = {}
        self._greatest = 1.0

    def store(self, chunk: Chunk) -> None:
        self._every.store(chunk)
        real = self._every.windows(2)
        self.priorities = {key: self.priorities.get(key, self._greatest) for key in real}

    def update(self, indices: Array, values: Array) -> None:
        for index, value in zip(indices.tolist(), values.tolist(), strict=True):
            row, env = divmod(index, self._num_envs)
            if (env, row) in self.priorities:
                self.priorities[env, row] = value
                self._greatest = max(self._greatest, value)

    def draw(self, size: int, rng: np.random.Generator) -> list[int]:
        """Return the indices that have to be drawn: one from each equal part of the sum, in the order of places."""
        order = sorted(self.priorities, key=lambda key: (key[1] % self._rows, key[0]))
        running = np.cumsum([self.priorities[key] for key in order])
        points = (np.arange(1.0, size + 1.0) - rng.random(size)) * (running[-1] / size)
        return [order[place][1] * self._num_envs + order[place][0] for place in np.searchsorted(running, points)]

    def chances(self) -> dict[int, float]:
        """Return how likely each index is."""
        total = sum(self.priorities.values())
        return {row * self._num_envs + env: value / total for (env, row), value in self.priorities.items()}
