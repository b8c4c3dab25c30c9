"""What a step may return beside the observation: checked, turned into plain numbers, and told in one form of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from digideep.errors import EnvironmentFailure, one_line

__all__ = ["check_info", "describe", "episode_metrics", "flag", "number"]


def number(value: Any, name: str) -> float:
    """Return a number as float.

    Raises:
        EnvironmentFailure: it is an array, a text, None or anything else that is no single number.
    """
    if isinstance(value, (int, float, np.number, np.bool_)) and not isinstance(value, np.complexfloating):
        return float(value)
    raise EnvironmentFailure(f"{name}: expected a number, found {_found(value)}")


def flag(value: Any, name: str) -> bool:
    """Return a flag as bool.

    Raises:
        EnvironmentFailure: it is neither a bool nor numpy's.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise EnvironmentFailure(f"{name}: expected a bool, found {_found(value)}")


def check_info(info: Any) -> None:
    """Check that an info is a dictionary.

    Raises:
        EnvironmentFailure: it is something else.
    """
    if not isinstance(info, Mapping):
        raise EnvironmentFailure(f"info: expected a dict, found {_found(info)}")


def episode_metrics(info: Mapping[str, Any], keys: Sequence[str]) -> dict[str, float]:
    """Return the numbers in `info["metrics"]` and the `keys` of the last info of an episode; absent ones are left out.

    Raises:
        EnvironmentFailure: `metrics` is no dictionary, or one of the values is no number.
    """
    metrics = info.get("metrics", {})
    if not isinstance(metrics, Mapping):
        raise EnvironmentFailure(f"info['metrics']: expected a dict of numbers, found {_found(metrics)}")
    result = {str(key): number(value, f"info['metrics'][{key!r}]") for key, value in metrics.items()}
    for key in keys:
        if key in info:
            result[key] = number(info[key], f"info[{key!r}]")
    return result


def describe(id: str, *, env: int, worker: int, seed: int, number: int, step: int) -> str:
    """Return which environment, where and when, in the words of every message."""
    return (
        f"environment {env} ({id}, worker {worker}, seed {seed if seed >= 0 else 'none'}, "
        f"episode {max(number, 0)}, step {step})"
    )


def _found(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    return f"{type(value).__name__} {one_line(repr(value), limit=60)}"
