"""The wrappers of `/env/wrappers` around a vector environment: numpy on the arrays of all environments at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from digideep.environment.wrappers.config import (
    ClipRewardConfig,
    FrameStackConfig,
    MaskObservationConfig,
    SignRewardConfig,
    WrapperConfig,
)
from digideep.environment.wrappers.observation import shown_space
from digideep.errors import CheckpointError, SpaceError

__all__ = ["BatchWrapper", "FirstOfStack", "unknown_wrapper", "wrap_batch"]

Array: TypeAlias = np.ndarray[Any, Any]
Answer: TypeAlias = tuple[Any, Any, Any, Any, Any]


class BatchWrapper:
    """A vector environment around another one; by itself it changes nothing and holds nothing.

    Attributes:
        env: the one inside.
        single_observation_space, single_action_space: of one environment.
        num_envs: how many.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.single_observation_space: spaces.Space[Any] = env.single_observation_space
        self.single_action_space: spaces.Space[Any] = env.single_action_space
        self.num_envs: int = env.num_envs

    def reset(self, *, seed: Any = None) -> tuple[Any, Any]:
        """Begin an episode everywhere."""
        answer: tuple[Any, Any] = self.env.reset(seed=seed)
        return answer

    def step(self, actions: Any) -> Answer:
        """Make one step."""
        answer: Answer = self.env.step(actions)
        return answer

    def close(self) -> None:
        """Close the environments inside."""
        self.env.close()

    def get_state(self) -> dict[str, Any]:
        """Return what this wrapper holds, without the environments inside."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `get_state` returned."""


class _Rewards(BatchWrapper):
    def __init__(self, env: Any, change: Callable[[Any], Any]) -> None:
        super().__init__(env)
        self._change = change

    def step(self, actions: Any) -> Answer:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        return observations, self._change(rewards), terminated, truncated, infos


class _Stack(BatchWrapper):
    def __init__(self, env: Any, config: FrameStackConfig) -> None:
        super().__init__(env)
        inner = env.single_observation_space
        if not isinstance(inner, spaces.Box):
            raise SpaceError(f"FrameStack: expected observations that are one Box, found {inner}; leave it out")
        low, high = (np.repeat(bound[None], config.n, axis=0) for bound in (inner.low, inner.high))
        self.single_observation_space = space = spaces.Box(low, high, dtype=inner.dtype.type)
        self._frames: Array = np.zeros((self.num_envs, *space.shape), inner.dtype)
        self._over: Array = np.zeros(self.num_envs, bool)  # in the step before, so that the next one resets them

    def reset(self, *, seed: Any = None) -> tuple[Any, Any]:
        observations, infos = self.env.reset(seed=seed)
        self._frames[:] = observations[:, None]
        self._over.fill(False)
        return self._frames, infos

    def step(self, actions: Any) -> Answer:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        frames, over = self._frames, self._over
        frames[:, :-1] = frames[:, 1:]
        frames[:, -1] = observations
        if over.any():
            frames[over] = observations[over][:, None]
        np.logical_or(terminated, truncated, out=over)
        return frames, rewards, terminated, truncated, infos

    def get_state(self) -> dict[str, Any]:
        return {"frames": self._frames.copy(), "over": self._over.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        for name, array in (("frames", self._frames), ("over", self._over)):
            found = state.get(name)
            if not isinstance(found, np.ndarray) or found.shape != array.shape or found.dtype != array.dtype:
                raise CheckpointError(f"FrameStack: expected {name} {array.shape} of {array.dtype}, found another")
            array[...] = found


class FirstOfStack(BatchWrapper):
    """Shows the one picture of a stack of one as it is: `[1, ...]` becomes `[...]`."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        inner = env.single_observation_space
        self.single_observation_space = spaces.Box(inner.low[0], inner.high[0], dtype=inner.dtype.type)

    def reset(self, *, seed: Any = None) -> tuple[Any, Any]:
        """Begin an episode everywhere."""
        observations, infos = self.env.reset(seed=seed)
        return observations[:, 0], infos

    def step(self, actions: Any) -> Answer:
        """Make one step."""
        observations, *others = self.env.step(actions)
        return (observations[:, 0], *others)


class _Mask(BatchWrapper):
    def __init__(self, env: Any, config: MaskObservationConfig) -> None:
        super().__init__(env)
        self.single_observation_space = shown_space(env.single_observation_space, config)
        self._keep = np.array(config.keep)

    def reset(self, *, seed: Any = None) -> tuple[Any, Any]:
        observations, infos = self.env.reset(seed=seed)
        return observations.take(self._keep, axis=1), infos

    def step(self, actions: Any) -> Answer:
        observations, *others = self.env.step(actions)
        return (observations.take(self._keep, axis=1), *others)


_KNOWN = (FrameStackConfig, ClipRewardConfig, MaskObservationConfig, SignRewardConfig)


def unknown_wrapper(configs: Sequence[WrapperConfig]) -> str:
    """Return the name of the first configuration of which there is no form for vector environments; empty if none."""
    return next((type(config).__name__ for config in configs if type(config) not in _KNOWN), "")


def wrap_batch(env: Any, configs: Sequence[WrapperConfig]) -> Any:
    """Return a vector environment inside those of `configs`, the first innermost; all of them are known.

    Raises:
        SpaceError: frames are to be stacked of something that is no box, or elements kept of something not flat.
    """
    for config in configs:
        if isinstance(config, FrameStackConfig):
            env = _Stack(env, config)
        elif isinstance(config, MaskObservationConfig):
            env = _Mask(env, config)
        elif isinstance(config, ClipRewardConfig):
            env = _Rewards(env, _clip(config))
        else:
            env = _Rewards(env, np.sign)
    return env


def _clip(config: ClipRewardConfig) -> Callable[[Any], Any]:
    return lambda rewards: np.clip(rewards, config.low, config.high)
