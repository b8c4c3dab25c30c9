"""All action slots as one vector in [-1, 1], for methods whose policies give real numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from digideep.errors import SpaceError
from digideep.spec import ArraySpec

__all__ = ["ActionVector"]

Array: TypeAlias = np.ndarray[Any, Any]


class ActionVector:
    """Joins the slots of an action space, each a box within [-1, 1], into `[B, size]`, and splits it again.

    Args:
        actions: specs by slot, as the agent sees them.
        method: its name, for messages.

    Raises:
        SpaceError: a slot is no box of floats, or has other bounds; the message names it and says what to do.
    """

    def __init__(self, actions: Mapping[str, ArraySpec], *, method: str) -> None:
        if not actions:
            raise SpaceError(f"action space: expected at least one box for {method}, found none; use another method")
        for slot, spec in actions.items():
            _check(slot, spec, method)
        self._specs = dict(actions)
        self.size = sum(spec.flat_size for spec in actions.values())

    def join(self, actions: Mapping[str, Array]) -> Array:
        """Return actions by slot `[B, ...]` as `[B, size]` float32."""
        parts = [actions[slot].reshape(len(actions[slot]), -1) for slot in self._specs]
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return joined.astype(np.float32, copy=False)

    def split(self, vector: Array) -> dict[str, Array]:
        """Return `[B, size]` as actions by slot `[B, ...]` in the slots' own dtypes."""
        found: dict[str, Array] = {}
        start = 0
        for slot, spec in self._specs.items():
            part = vector[:, start : start + spec.flat_size]
            found[slot] = part.reshape(len(vector), *spec.shape).astype(spec.dtype, copy=False)
            start += spec.flat_size
        return found


def _check(slot: str, spec: ArraySpec, method: str) -> None:
    where = f"action space: slot {slot!r}" if slot else "action space"
    if spec.kind != "box" or not spec.dtype.startswith("float") or spec.flat_size == 0:
        raise SpaceError(
            f"{where}: expected a box of real numbers for {method}, found {spec.kind} of shape {spec.shape} and dtype "
            f"{spec.dtype}; use another method, such as PPO"
        )
    if not spec.bounded or any(low != -1.0 for low in spec.low) or any(high != 1.0 for high in spec.high):
        low, high = min(spec.low, default=-math.inf), max(spec.high, default=math.inf)
        way_out = "set /env/action_transform to rescale" if spec.bounded else "use another method, such as PPO"
        raise SpaceError(
            f"{where}: expected a box within [-1, 1] for {method}, found one from {low:g} to {high:g}; {way_out}"
        )
