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


def wrapper_configs(
    nodes: Sequence[Mapping[str, Any]], *, where: str = "/env/wrappers", allowed: Iterable[str] = BUILT_IN
) -> list[WrapperConfig]:
    """Return the configurations of the list of wrappers at `where`, innermost first.

    Raises:
        ConfigError: one of the nodes is wrong, or is that of no wrapper.
        TrustError: one names a class outside the `allowed` packages.
    """
    return [
        configure(node, where=f"{where}/{index}", allowed=allowed, expected=WrapperConfig)
        for index, node in enumerate(nodes)
    ]


def wrap(
    env: gymnasium.Env[Any, Any],
    configs: Sequence[WrapperConfig],
    *,
    where: str = "/env/wrappers",
    first: int = 0,
    allowed: Iterable[str] = BUILT_IN,
) -> gymnasium.Env[Any, Any]:
    """Return `env` inside wrappers, the first of `configs` innermost; `first` is its place in the list at `where`.

    Raises:
        ConfigError: a configuration builds no wrapper of Gymnasium.
        TrustError: the class that one builds lies outside the `allowed` packages.
    """
    for index, config in enumerate(configs, start=first):
        here = f"{where}/{index}/type"
        if isinstance(config, AtariPreprocessingConfig):
            raise ConfigError(
                f"{here}: expected AtariPreprocessingConfig as the innermost wrapper, found it at place {index}; "
                f"move it to place 0"
            )
        if not config.builds:
            raise ConfigError(f"{here}: expected a class that says what it builds, found none; set its 'builds'")
        cls = resolve(config.builds, where=here, allowed=allowed)
        if not (isinstance(cls, type) and issubclass(cls, gymnasium.Wrapper)):
            raise ConfigError(f"{here}: expected the class of a gymnasium.Wrapper, found {config.builds}; name one")
        env = cls(env, config)  # type: ignore[call-arg]
    return env
