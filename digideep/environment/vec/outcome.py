"""What a step may return beside the observation: checked, turned into plain numbers, and told in one form of words."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from digideep.environment.vec.hang import Hang
from digideep.errors import DigideepError, EnvironmentFailure, one_line
from digideep.utility.monitoring import MAX_METRICS

__all__ = ["NotFinite", "check_info", "describe", "episode_metrics", "flag", "number", "told"]


class NotFinite(Exception):
    """A number that is none, by key, value and flat index, before it is known of which environment it is."""

    def __init__(self, key: str, value: float, position: int) -> None:
        super().__init__(f"expected finite numbers in {key}, found {value} (first bad index {position})")


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
    # One more than is kept of a run, so that whoever keeps them notices.
    few = itertools.islice(metrics.items(), MAX_METRICS + 1)
    result = {_text(key): number(value, f"info['metrics'][{key!r}]") for key, value in few}
    for key in keys:
        if key in info:
            result[key] = number(info[key], f"info[{key!r}]")
    return result


def _text(name: Any) -> str:
    """Return a name as text that every file can hold: with `?` for half of a surrogate pair."""
    return str(name).encode("utf-8", "replace").decode("utf-8")


def describe(id: str, *, env: int, worker: int, seed: int, number: int, step: int) -> str:
    """Return which environment, where and when, in the words of every message."""
    return (
        f"environment {env} ({id}, worker {worker}, seed {seed if seed >= 0 else 'none'}, "
        f"episode {max(number, 0)}, step {step})"
    )


def told(error: BaseException) -> str:
    """Return an exception on one line: its text alone where that is ours, else with its class before it."""
    text = one_line(error, limit=500)
    if isinstance(error, DigideepError | NotFinite | Hang):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _found(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    return f"{type(value).__name__} {one_line(repr(value), limit=60)}"
