"""Rewards brought to one scale."""

from __future__ import annotations

from typing import Any

import gymnasium

from digideep.environment.wrappers.config import ClipRewardConfig, SignRewardConfig

__all__ = ["ClipReward", "SignReward"]


class ClipReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cuts every reward at the bounds of the configuration."""

    def __init__(self, env: gymnasium.Env[Any, Any], config: ClipRewardConfig) -> None:
        super().__init__(env)
        self._config = config

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and cut its reward; a NaN stays one, for whoever looks for it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        value: Any = reward
        config = self._config
        if value < config.low:
            value = config.low
        elif value > config.high:
            value = config.high
        return observation, value, terminated, truncated, info


class SignReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives the sign of every reward."""

    def __init__(self, env: gymnasium.Env[Any, Any], config: SignRewardConfig) -> None:
        super().__init__(env)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and take the sign of its reward; a NaN stays one, for whoever looks for it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        value: Any = reward
        if value > 0.0:
            value = 1.0
        elif value < 0.0:
            value = -1.0
        return observation, value, terminated, truncated, info
