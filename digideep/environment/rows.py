"""The last row of a slab, with which the next chunk begins, as part of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from digideep.environment.vec.slab import Slab
from digideep.errors import CheckpointError, UsageError, one_line
from digideep.types import StateDict

__all__ = ["check_state", "last_row", "load_last_row"]

_WHOLE, _FLAG = (int, np.integer), (bool, np.bool_)
_KINDS: Mapping[str, Any] = {
    "number": _WHOLE,
    "seed": _WHOLE,
    "length": _WHOLE,
    "return": (float, int, np.floating),
    "over": _FLAG,
    "was_seeded": _FLAG,
}

Array: TypeAlias = np.ndarray[Any, Any]


def last_row(slab: Slab, hidden: Mapping[str, Array] | None) -> StateDict:
    """Return what was seen last, and the hidden state of a policy that has one, as copies."""
    return {
        "observations": {slot: array[-1].copy() for slot, array in slab.observations.items()},
        "masks": slab.masks[-1].copy(),
        "hidden_state": None if hidden is None else {key: array[-1].copy() for key, array in hidden.items()},
    }


def load_last_row(slab: Slab, state: Mapping[str, Any], *, where: str) -> None:
    """Put back what `last_row` returned, but for the hidden state.

    Raises:
        CheckpointError: it is that of other observations.
    """
    for slot, array in slab.observations.items():
        row, saved = array[-1], state["observations"].get(slot)
        if saved is None or saved.shape != row.shape or saved.dtype != row.dtype:
            found = "nothing" if saved is None else f"{saved.shape} {saved.dtype}"
            raise CheckpointError(
                f"{where}: expected '/observations/{slot}' of {row.shape} {row.dtype}, found {found}; "
                f"is it the same environment?"
            )
        row[...] = saved
    slab.masks[-1] = state["masks"]


def check_state(state: Mapping[str, Any], *, version: int, mode: str, num_envs: int) -> None:
    """Check that a state is one that an explorer can take over.

    Raises:
        CheckpointError: it is that of another version.
        UsageError: it is that of another number of environments.
    """
    if state["version"] != version:
        raise CheckpointError(
            f"explorer.{mode}: expected a state of version {version}, found {state['version']}; it needs another "
            f"digideep"
        )
    if type(state["num_envs"]) is not int:
        found = one_line(repr(state["num_envs"]), limit=60)
        raise CheckpointError(f"explorer.{mode}/num_envs: expected a number, found {found}")
    if state["num_envs"] != num_envs:
        raise UsageError(
            f"/explorer/{mode}/num_envs: expected {state['num_envs']} as in the checkpoint, found {num_envs}; "
            f"start a new session with init_from for another number"
        )
    for saved in state.get("environments", ()) if state["is_started"] else ():
        for name, kinds in _KINDS.items():
            value = saved[name]
            if not isinstance(value, kinds) or (name != "return" and not -1 <= value < 2**62):
                found = one_line(repr(value), limit=60)
                raise CheckpointError(f"explorer.{mode}/environments/{name}: expected a number, found {found}")
