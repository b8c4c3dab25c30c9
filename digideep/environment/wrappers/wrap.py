"""Wrappers from their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium

from digideep.environment.wrappers.config import AtariPreprocessingConfig, WrapperConfig
from digideep.errors import ConfigError
from digideep.utility.imports import BUILT_IN, resolve
from digideep.utility.node import configure

__all__ = ["wrap", "wrapper_configs"]


def wrapper_configs(nodes: Sequence[Mapping[str, Any]], *, allowed: Iterable[str] = BUILT_IN) -> list[WrapperConfig]:
    """Return the configurations of a list of wrappers, innermost first.

    Raises:
        ConfigError: one of the nodes is wrong, or is that of no wrapper.
        TrustError: one names a class outside the `allowed` packages.
    """
    return [
        configure(node, where=f"/env/wrappers/{index}", allowed=allowed, expected=WrapperConfig)
        for index, node in enumerate(nodes)
    ]


def wrap(
    env: gymnasium.Env[Any, Any],
    configs: Sequence[WrapperConfig],
    *,
    first: int = 0,
    allowed: Iterable[str] = BUILT_IN,
) -> gymnasium.Env[Any, Any]:
    """Return `env` inside wrappers, the first of `configs` innermost; `first` is the place of that one in the list.

    Raises:
        ConfigError: a configuration builds no wrapper of Gymnasium.
        TrustError: the class that one builds lies outside the `allowed` packages.
    """
    for index, config in enumerate(configs, start=first):
        where = f"/env/wrappers/{index}/type"
        if isinstance(config, AtariPreprocessingConfig):
            raise ConfigError(
                f"{where}: expected AtariPreprocessingConfig as the innermost wrapper, found it at place {index}; "
                f"move it to place 0"
            )
        if not config.builds:
            raise ConfigError(f"{where}: expected a class that says what it builds, found none; set its 'builds'")
        cls = resolve(config.builds, where=where, allowed=allowed)
        if not (isinstance(cls, type) and issubclass(cls, gymnasium.Wrapper)):
            raise ConfigError(f"{where}: expected the class of a gymnasium.Wrapper, found {config.builds}; name one")
        env = cls(env, config)  # type: ignore[call-arg]
    return env
