"""An environment that insists on actions within bounds of its own, and shows which it got."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class DoorEnv(gymnasium.Env[Any, Any]):
    """Two numbers in [-3, 5] and [0, 1]: shows the last ones, pays the first and a hundred times the second."""

    def __init__(self) -> None:
        low, high = np.array([-3.0, 0.0], np.float32), np.array([5.0, 1.0], np.float32)
        self.observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = spaces.Box(low, high, dtype=np.float32)
        self._taken: list[list[float]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Show ones."""
        super().reset(seed=seed)
        self._taken = []
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Look closely at the action, and show it."""
        assert isinstance(action, np.ndarray) and action.dtype == np.float32 and action.shape == (2,), action
        assert self.action_space.contains(action), action
        self._taken.append(action.tolist())
        over = len(self._taken) == 3
        taken = np.array(self._taken)
        told = {"least_0": taken[:, 0].min(), "most_0": taken[:, 0].max()}
        told |= {"least_1": taken[:, 1].min(), "most_1": taken[:, 1].max()}
        info = {"metrics": {name: float(value) for name, value in told.items()}} if over else {}
        return action.copy(), float(action[0] + 100.0 * action[1]), False, over, info

    def get_state(self) -> dict[str, Any]:
        """Return what was taken."""
        return {"taken": [list(numbers) for numbers in self._taken]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go where `get_state` was called."""
        self._taken = [list(numbers) for numbers in state["taken"]]


if "ToyDoor-v0" not in gymnasium.registry:
    gymnasium.register(id="ToyDoor-v0", entry_point="toy_door:DoorEnv")
