"""The last few observations as one."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from digideep.environment.wrappers.config import FrameStackConfig
from digideep.errors import SpaceError

__all__ = ["FrameStack"]

Array: TypeAlias = np.ndarray[Any, Any]


class FrameStack(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Stacks the last `n` observations along a new first axis, the newest last.

    The first observation of an episode fills all places. Each step gives an array of its own.

    Raises:
        SpaceError: observations are no box.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], config: FrameStackConfig) -> None:
        super().__init__(env)
        inner = env.observation_space
        if not isinstance(inner, spaces.Box):
            raise SpaceError(f"FrameStack: expected observations that are one Box, found {inner}; leave it out")
        low, high = (np.repeat(bound[None], config.n, axis=0) for bound in (inner.low, inner.high))
        self.observation_space = spaces.Box(low, high, dtype=inner.dtype.type)
        self._stack: Array = np.zeros(self.observation_space.shape, inner.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and fill the stack with what it shows."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._stack = np.empty_like(self._stack)
        self._stack[:] = observation
        return self._stack.copy(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and push what it shows."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        stack = np.empty_like(self._stack)
        stack[:-1] = self._stack[1:]
        stack[-1] = observation
        self._stack = stack
        return stack.copy(), reward, terminated, truncated, info
