"""Observations of which a part is hidden."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from digideep.environment.wrappers.config import MaskObservationConfig
from digideep.errors import SpaceError

__all__ = ["MaskObservation", "shown_space"]


def shown_space(inner: spaces.Space[Any], config: MaskObservationConfig) -> spaces.Box:
    """Return the space of what is left of observations.

    Raises:
        SpaceError: observations are no flat box, or have no element at one of the places.
    """
    if not isinstance(inner, spaces.Box) or len(inner.shape) != 1:
        raise SpaceError(f"MaskObservation: expected observations that are one flat Box, found {inner}; leave it out")
    beyond = [place for place in config.keep if place >= inner.shape[0]]
    if beyond:
        raise SpaceError(f"MaskObservation: expected places below {inner.shape[0]}, found {beyond[0]}; change keep")
    keep = list(config.keep)
    return spaces.Box(inner.low[keep], inner.high[keep], dtype=inner.dtype.type)


class MaskObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows the elements that the configuration keeps.

    Raises:
        SpaceError: observations are no flat box, or have no element at one of the places.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], config: MaskObservationConfig) -> None:
        super().__init__(env)
        self.observation_space = shown_space(env.observation_space, config)
        self._config = config

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and hide a part of what it shows."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation.take(self._config.keep), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and hide a part of what it shows."""
        observation, *others = self.env.step(action)
        return (observation.take(self._config.keep), *others)
