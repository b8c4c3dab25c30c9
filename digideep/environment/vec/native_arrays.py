"""The arrays of a vector environment, on their way to the slab and back, checked against what it declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from digideep.environment.spaces import (
    SINGLE_ACTION,
    SINGLE_OBSERVATION,
    batch_of_actions,
    leaf_values,
    space_leaves,
    space_parts,
)
from digideep.environment.vec.slab import Slab
from digideep.environment.wrappers.action import Transform
from digideep.errors import EnvironmentFailure, one_line
from digideep.spec import EnvSpec

__all__ = ["ActionBatch", "ObservationBatch", "check_flags", "info_of", "write_rewards"]

Array: TypeAlias = np.ndarray[Any, Any]


class ObservationBatch:
    """Writes what `num_envs` environments show together.

    Args:
        space: of one environment.
        spec: of one environment.
        num_envs: how many.
    """

    def __init__(self, space: spaces.Space[Any], spec: EnvSpec, *, num_envs: int) -> None:
        self._space = space
        self._num_envs = num_envs
        self._leaves = {leaf.slot: leaf.space for leaf in space_leaves(space, single=SINGLE_OBSERVATION, where=spec.id)}

    def single(self, slab: Slab) -> list[Array] | None:
        """Return the rows of a space that is one box whose arrays the slab holds as they come; None for others."""
        space = self._space
        rows = slab.observations.get(SINGLE_OBSERVATION)
        if not isinstance(space, spaces.Box) or rows is None or np.dtype(space.dtype) != rows.dtype:
            return None
        return list(rows)

    def write(self, observations: Any, rows: Mapping[str, Array]) -> None:
        """Write observations of all environments, batched as Gymnasium batches a space, into `rows` by slot.

        Raises:
            EnvironmentFailure: structure, type, shape, dtype or range differ from the space; the message names the
                slot, what was expected and what was found.
        """
        for slot, value in leaf_values(observations, self._space, slot="", single=SINGLE_OBSERVATION):
            rows[slot][...] = self._checked(value, self._leaves[slot], where=f"observation '/observations/{slot}'")

    def _checked(self, value: Any, space: spaces.Space[Any], *, where: str) -> Array:
        shape, dtype = (self._num_envs, *(space.shape or ())), np.dtype(space.dtype)
        if not isinstance(value, np.ndarray):
            raise EnvironmentFailure(f"{where}: expected a numpy array {shape} of {dtype}, found {_found(value)}")
        if value.shape != shape or not np.can_cast(value.dtype, dtype):
            raise EnvironmentFailure(
                f"{where}: expected shape {shape} of {dtype}, found {value.shape} of {value.dtype}; "
                f"return what observation_space declares"
            )
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            value = value - space.start
            limit = space.n if isinstance(space, spaces.Discrete) else space.nvec
            if ((value < 0) | (value >= limit)).any():
                raise EnvironmentFailure(f"{where}: expected values inside {space}, found {one_line(value, limit=80)}")
        return np.asarray(value)


class ActionBatch:
    """Makes what a vector environment takes from the arrays of the slab.

    Args:
        space: of one environment.
        spec: of one environment.
        transform: of box actions.
    """

    def __init__(self, space: spaces.Space[Any], spec: EnvSpec, transform: Transform = "clip") -> None:
        self._space, self._spec, self._transform = space, spec, transform

    def read(self, actions: Mapping[str, Array]) -> Any:
        """Return the actions of all environments, batched as Gymnasium batches a space; never views of those."""
        if SINGLE_ACTION in self._spec.actions:
            return batch_of_actions(
                actions[SINGLE_ACTION], self._spec.actions[SINGLE_ACTION], self._space, self._transform
            )
        return self._nested(self._space, actions, slot="")

    def _nested(self, space: spaces.Space[Any], actions: Mapping[str, Array], *, slot: str) -> Any:
        if not isinstance(space, spaces.Dict | spaces.Tuple):
            return batch_of_actions(actions[slot], self._spec.actions[slot], space, self._transform)
        found = {
            key: self._nested(part, actions, slot=f"{slot}/{key}" if slot else key) for key, part in space_parts(space)
        }
        return tuple(found.values()) if isinstance(space, spaces.Tuple) else found


def write_rewards(rewards: Any, row: Array) -> None:
    """Write the rewards of all environments into `row`, float32 [N].

    One that float32 cannot hold becomes infinite.

    Raises:
        EnvironmentFailure: they are no array of N numbers.
    """
    if not isinstance(rewards, np.ndarray) or rewards.shape != row.shape or rewards.dtype.kind not in "biuf":
        raise EnvironmentFailure(f"rewards: expected an array {row.shape} of numbers, found {_found(rewards)}")
    with np.errstate(over="ignore"):
        row[...] = rewards


def check_flags(terminated: Any, truncated: Any, *, num_envs: int) -> None:
    """Check that flags are one bool an environment.

    Raises:
        EnvironmentFailure: they are not.
    """
    for flags, name in ((terminated, "terminated"), (truncated, "truncated")):
        if not isinstance(flags, np.ndarray) or flags.shape != (num_envs,) or flags.dtype != np.bool_:
            raise EnvironmentFailure(f"{name}: expected an array ({num_envs},) of bool, found {_found(flags)}")


def info_of(infos: Mapping[str, Any], env: int, *, num_envs: int) -> dict[str, Any]:
    """Return the info of one environment from those that Gymnasium batches: `x` by environment, `_x` says whose it is.

    Without `_x` an entry is everybody's where it has one element an environment, as those of ale-py have. What has
    neither belongs to no environment and is left out.
    """
    found: dict[str, Any] = {}
    for key, value in infos.items():
        owners: Any = infos.get(f"_{key}")
        if not isinstance(key, str) or (key.startswith("_") and key[1:] in infos):
            continue
        if _is_batch(owners, num_envs) and not owners[env]:
            continue
        if isinstance(value, Mapping):
            found[key] = info_of(value, env, num_envs=num_envs)
        elif _is_batch(value, num_envs):
            found[key] = value[env]
    return found


def _is_batch(value: Any, num_envs: int) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and len(value) == num_envs
    return isinstance(value, list | tuple) and len(value) == num_envs


def _found(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    return "None" if value is None else f"{type(value).__name__} {one_line(repr(value), limit=60)}"
