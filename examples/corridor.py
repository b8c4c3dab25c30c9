"""An environment of one's own: walk along a corridor to the door, which moves further away as training goes on.

Importing this module registers `Corridor-v0`, so that `--set model_name=corridor:Corridor-v0` finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

STEPS_PER_CELL = 4


class CorridorEnv(gymnasium.Env[Any, Any]):
    """Cells in a row with the door at one end: 0 steps left, 1 steps right, and every step costs 0.1."""

    def __init__(self, length: int = 8, shortest: int = 2) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.length, self.shortest = length, shortest
        self.distance = shortest  # of the door; it follows the progress of training
        self.cell, self.door, self.steps = 0, shortest, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        """Stand in the middle, with the door at one end or the other."""
        super().reset(seed=seed)
        self.cell, self.steps = 0, 0
        self.door = self.distance * int(self.np_random.choice([-1, 1]))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Walk one cell."""
        self.cell, self.steps = self.cell + (1 if action == 1 else -1), self.steps + 1
        arrived = self.cell == self.door
        late = self.steps >= STEPS_PER_CELL * self.length  # a time limit, not a failure: truncated, not terminated
        # Read at the last step of an episode: curves env/door, env/detour and env/is_success.
        info = {"is_success": arrived, "metrics": {"door": abs(self.door), "detour": self.steps - abs(self.door)}}
        return self._observation(), 1.0 if arrived else -0.1, arrived, late and not arrived, info

    def set_progress(self, progress: Mapping[str, float]) -> None:
        """Move the door: `fraction` goes from 0 to 1 over the run."""
        self.distance = self.shortest + round(progress["fraction"] * (self.length - self.shortest))

    def get_state(self) -> dict[str, int]:
        """Return what the next step depends on; the random generator is saved for us."""
        return {"cell": self.cell, "door": self.door, "steps": self.steps, "distance": self.distance}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Go on where `get_state` stood."""
        vars(self).update(state)

    def _observation(self) -> np.ndarray:
        return np.array([self.cell / (STEPS_PER_CELL * self.length), np.sign(self.door)], dtype=np.float32)


gymnasium.register("Corridor-v0", entry_point="corridor:CorridorEnv")
