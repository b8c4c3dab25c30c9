"""Actions at the environment's door: from the raw sample in the slab to what the environment takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from digideep.errors import SpaceError
from digideep.spec import ArraySpec

__all__ = ["Transform", "spec_for_agent", "to_environment"]

Transform: TypeAlias = Literal["clip", "rescale", "none"]


def to_environment(raw: np.ndarray[Any, Any], spec: ArraySpec, transform: Transform) -> np.ndarray[Any, Any]:
    """Return actions in the environment's units.

    Args:
        raw: [..., *spec.shape] what the policy sampled. It is never changed: the memory keeps it.
        spec: of the environment (not what `spec_for_agent` returns).
        transform: of box actions. `clip` cuts at the bounds; `rescale` cuts at [-1, 1] and then maps -1 to the lower
            and 1 to the upper bound; `none` changes nothing. Other kinds only get the environment's `start`.

    Returns:
        A new array of the same shape.
    """
    if spec.kind != "box":
        return raw + np.asarray(spec.start, dtype=raw.dtype)  # type: ignore[no-any-return]
    if transform == "none" or not spec.low:
        return raw.copy()
    low, high = _bounds(spec.low, spec.high, spec.shape, raw.dtype)
    if transform == "clip":
        return raw.clip(low, high)  # half the time of np.clip
    unit = raw.clip(-1.0, 1.0)
    share = (unit + 1.0) * 0.5
    span = _span(spec.low, spec.high, spec.shape, raw.dtype)
    scaled = low + share * span if span is not None else low * (1.0 - share) + high * share
    # The clip is for the rounding of the line before it, which may step over a bound.
    return scaled.clip(low, high)


def spec_for_agent(actions: Mapping[str, ArraySpec], transform: Transform) -> dict[str, ArraySpec]:
    """Return the action slots as the agent sees them: with `rescale`, every box is [-1, 1].

    Raises:
        SpaceError: `rescale` is asked of a box that has an infinite bound.
    """
    if transform != "rescale":
        return dict(actions)
    seen: dict[str, ArraySpec] = {}
    for slot, spec in actions.items():
        if spec.kind == "box" and not spec.bounded and spec.flat_size:
            raise SpaceError(
                f"/env/action_transform: expected finite bounds for 'rescale', found low {spec.low} and high "
                f"{spec.high} in action {slot!r}; use 'clip' or 'none', and a method that takes such actions, as PPO "
                f"and A2C do"
            )
        seen[slot] = spec._replace(low=(-1.0,), high=(1.0,)) if spec.kind == "box" else spec
    return seen


@lru_cache
def _bounds(
    low: tuple[float, ...], high: tuple[float, ...], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    lower, upper = (_cast(np.asarray(bound), dtype) for bound in (low, high))
    return lower.reshape(shape if lower.size > 1 else ()), upper.reshape(shape if upper.size > 1 else ())


@lru_cache
def _span(
    low: tuple[float, ...], high: tuple[float, ...], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any] | None:
    """Return how far the bounds lie apart; None where one such distance is beyond what `dtype` holds."""
    lower, upper = _bounds(low, high, shape, dtype)
    with np.errstate(over="ignore"):
        span = np.asarray(upper - lower)
    return span if np.isfinite(span).all() else None


def _cast(bound: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a bound in another type; a finite one that is too large for it becomes the largest that it holds."""
    if dtype.kind == "f":
        largest = float(np.finfo(dtype).max)
        bound = np.where(np.isfinite(bound), bound.clip(-largest, largest), bound)
    return bound.astype(dtype)
