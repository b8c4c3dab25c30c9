"""EnvPool's environments as a vector environment: seeded when it is made, so made anew where a seed is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from digideep.environment.atari import preprocessed
from digideep.environment.config import EnvConfig
from digideep.environment.make import arguments, created, logged_warnings, prepare
from digideep.environment.vec.native_atari import atari_options, with_envpool
from digideep.environment.vec.native_wrappers import FirstOfStack, unknown_wrapper
from digideep.environment.wrappers.config import AtariPreprocessingConfig, WrapperConfig
from digideep.environment.wrappers.wrap import wrapper_configs
from digideep.utility.device import granted_cores
from digideep.utility.imports import BUILT_IN, ENVIRONMENT_PACKAGES, import_module

__all__ = ["MadePool", "Pool", "make_envpool"]

_ALE = "ALE/"


class Pool:
    """Environments of EnvPool with the interface of a vector environment.

    Args:
        make: returns them, seeded.
    """

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make
        self._pool = make(0)
        self.num_envs: int = self._pool.config["num_envs"]
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space

    def reset(self, *, seed: int | None = None) -> Any:
        """Begin an episode everywhere; with a seed in environments that are made anew with it."""
        with logged_warnings():  # EnvPool makes its spaces when they are first looked at, and those warn
            if seed is not None:
                self._pool.close()
                self._pool = self._make(seed)
            return self._pool.reset()

    def step(self, actions: Any) -> Any:
        """Make one step; it is the reset of those that were over."""
        return self._pool.step(actions)

    def close(self) -> None:
        """Close the environments."""
        self._pool.close()


class MadePool(NamedTuple):
    """EnvPool's environments and the wrappers that are still to be put around them, or the `reason` why not."""

    env: Any
    wrappers: list[WrapperConfig]
    reason: str = ""


def make_envpool(config: EnvConfig, *, num_envs: int, limit: int | None, allowed: Sequence[str] = BUILT_IN) -> MadePool:
    """Return `num_envs` environments of EnvPool, whose ids are Gymnasium's without a namespace.

    Raises:
        MissingExtraError: EnvPool is not installed.
        DigideepError: as `make_env`.
    """
    registered = prepare(config, allowed=allowed)
    where = "/explorer/train/backend"
    envpool = import_module("envpool", where=where, allowed=ENVIRONMENT_PACKAGES)
    name = registered.id.removeprefix(_ALE)
    if name not in envpool.list_all_envs():
        return MadePool(None, [], f"EnvPool has no {name}")
    rest = wrapper_configs(config.wrappers, allowed=allowed)
    kwargs = arguments(config)
    is_one_picture = False
    if registered.id.startswith(_ALE):
        # EnvPool fills a stack where a game begins, but not where an episode does after a lost life.
        options = atari_options(rest, stacks=not _ends_with_lives(rest))
        if options is None:
            return MadePool(None, [], f"EnvPool's {name} needs AtariPreprocessingConfig in /env/wrappers")
        if options.preprocessing.noop_max == 0:
            return MadePool(None, [], f"EnvPool's {name} begins with a step of no action at least, and noop_max is 0")
        made = preprocessed(registered, options.preprocessing, kwargs=kwargs)  # refuses arguments that it decides
        frames = int({"max_num_frames_per_episode": 108_000, **made.kwargs, **kwargs}["max_num_frames_per_episode"])
        kwargs.pop("max_num_frames_per_episode", None)
        limit = limit or frames // options.preprocessing.frame_skip
        kwargs = {**kwargs, "full_action_space": made.kwargs.get("full_action_space", False), **with_envpool(options)}
        rest, is_one_picture = options.rest, options.stack is None
    if unknown_wrapper(rest):
        return MadePool(None, [], f"{unknown_wrapper(rest)} has no form for vector environments")
    if limit is not None:
        kwargs["max_episode_steps"] = limit
    unknown = sorted(set(kwargs) - set(envpool.make_spec(name).config._fields))
    if unknown:
        return MadePool(None, [], f"EnvPool's {name} takes no {unknown[0]}")

    def make(seed: int) -> Any:
        threads = min(num_envs, granted_cores())
        return envpool.make(name, env_type="gymnasium", num_envs=num_envs, num_threads=threads, seed=seed, **kwargs)

    env: Any = created(lambda: Pool(make), registered=registered, kwargs=kwargs, entry=None)
    return MadePool(FirstOfStack(env) if is_one_picture else env, rest)


def _ends_with_lives(configs: Sequence[WrapperConfig]) -> bool:
    return any(isinstance(config, AtariPreprocessingConfig) and config.terminal_on_life_loss for config in configs)
