"""Grid worlds of minigrid as networks take them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from digideep.environment.wrappers.config import MiniGridConfig
from digideep.errors import SpaceError, one_line

__all__ = ["MiniGridView"]

Array: TypeAlias = np.ndarray[Any, Any]

_STATES = 4  # of a door three; the agent, whom the whole grid shows, looks in four directions
_GRID, _DIRECTION = "image", "direction"


class MiniGridView(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows the cells of a grid world, `[width, height, 21]` bits or `[width, height, 3]` bytes, and no text.

    With `direction` the observation is a dictionary of `image` and `direction`.

    Raises:
        SpaceError: the environment is none of minigrid.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], config: MiniGridConfig) -> None:
        super().__init__(env)
        self._config = config
        inner = env.observation_space
        if not (isinstance(inner, spaces.Dict) and {_GRID, _DIRECTION, "mission"} <= inner.spaces.keys()):
            raise SpaceError(
                f"MiniGridConfig: expected a grid world of minigrid below it, found the observations "
                f"{one_line(inner, limit=200)}; leave it out"
            )
        base: Any = env.unwrapped
        shape = inner[_GRID].shape if config.view == "partial" else (base.width, base.height, 3)
        self.observation_space = self._space(shape)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and show its grid."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._shown(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and show its grid."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._shown(observation), reward, terminated, truncated, info

    def _space(self, shape: Any) -> spaces.Space[Any]:
        grid: spaces.Space[Any] = spaces.Box(0, 255, shape, np.uint8)
        if self._config.cells == "bits":
            grid = spaces.MultiBinary([*shape[:2], sum(len(table) for table in _tables())])
        return spaces.Dict({_GRID: grid, _DIRECTION: spaces.Discrete(4)}) if self._config.direction else grid

    def _shown(self, observation: Any) -> Any:
        codes = observation[_GRID] if self._config.view == "partial" else _whole(self.env.unwrapped)
        grid = codes
        if self._config.cells == "bits":
            grid = np.concatenate([table[codes[..., i]] for i, table in enumerate(_tables())], axis=-1)
        return {_GRID: grid, _DIRECTION: observation[_DIRECTION]} if self._config.direction else grid


@lru_cache(maxsize=1)
def _tables() -> tuple[Array, Array, Array]:
    """Return the bits of each kind of thing, each colour and each state, by its code."""
    from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX

    sizes = (max(OBJECT_TO_IDX.values()) + 1, max(COLOR_TO_IDX.values()) + 1, _STATES)
    kinds, colours, states = (np.eye(size, dtype=np.int8) for size in sizes)
    return kinds, colours, states


def _whole(base: Any) -> Array:
    """Return the codes of the whole grid, with the agent where it stands."""
    from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX

    codes: Array = base.grid.encode()
    codes[tuple(base.agent_pos)] = (OBJECT_TO_IDX["agent"], COLOR_TO_IDX["red"], base.agent_dir)
    return codes
