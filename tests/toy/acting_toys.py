"""The toy trainings that come with digideep, run by a runner that does what tests ask for at some moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from toy_parts import ActingRunnerConfig

Params: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]


def acting(gen_params: Params) -> Params:
    """Return `gen_params` with another runner."""

    def generate(cpanel: Mapping[str, Any]) -> dict[str, Any]:
        tree = gen_params(cpanel)
        kind = f"{ActingRunnerConfig.__module__}:{ActingRunnerConfig.__qualname__}"
        return {**tree, "runner": {**tree["runner"], "type": kind}}

    return generate
