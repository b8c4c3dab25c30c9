"""Gymnasium's spaces as plain data, and the way of values between an environment and the slab.

Nested Dict and Tuple spaces are flattened once into ordered slots: keys joined by "/", elements of a tuple numbered. A
single array has the slot "observation" or, as an action, "".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from digideep.environment.wrappers.action import Transform, to_environment
from digideep.errors import EnvironmentFailure, SpaceError, one_line
from digideep.spec import ArraySpec, EnvSpec

__all__ = [
    "SINGLE_ACTION",
    "SINGLE_OBSERVATION",
    "ActionReader",
    "ObservationWriter",
    "action_slots",
    "batch_of_actions",
    "discrete_start",
    "env_spec",
    "leaf_values",
    "observation_slots",
    "plain_box",
    "sample_action",
    "space_leaves",
    "space_parts",
]

Array = np.ndarray[Any, Any]

# What makes numbers of spaces that are not digideep's to know, by their names.
_WRAPPERS = {
    "MissionSpace": 'add {"type": "digideep.environment.wrappers.config:MiniGridConfig"} to /env/wrappers, which shows '
    "the grid without its text"
}

SINGLE_OBSERVATION = "observation"
SINGLE_ACTION = ""
"""Slots of spaces that are one array."""


def env_spec(env: gymnasium.Env[Any, Any], *, id: str) -> EnvSpec:
    """Return what `env` shows and takes, in the environment's own units.

    Raises:
        SpaceError: a space is of a kind that no slot can hold; the message names it.
        EnvironmentFailure: it has no such space, or reading it raised.
    """
    limit = env.spec.max_episode_steps if env.spec is not None else None
    return EnvSpec(
        id=id,
        observations=observation_slots(_space_of(env, "observation_space", id=id), id=id),
        actions=action_slots(_space_of(env, "action_space", id=id), id=id),
        max_episode_steps=limit,
    )


def _space_of(env: gymnasium.Env[Any, Any], name: str, *, id: str) -> spaces.Space[Any]:
    try:
        return getattr(env, name)  # type: ignore[no-any-return]
    except Exception as error:
        raise EnvironmentFailure(
            f"environment {id}: expected the attribute {name}, found that reading it raised {type(error).__name__}: "
            f"{one_line(error, limit=200)}; set it in __init__"
        ) from error


def observation_slots(space: spaces.Space[Any], *, id: str) -> dict[str, ArraySpec]:
    """Return the slots of an observation space, ordered by the space; float64 boxes become float32."""
    return _slots(space, single=SINGLE_OBSERVATION, where=f"{id}: observation space")


def action_slots(space: spaces.Space[Any], *, id: str) -> dict[str, ArraySpec]:
    """Return the slots of an action space as the slab holds them: boxes float32, integers int64, bits int8."""
    dtypes = {"box": "float32", "discrete": "int64", "multi_discrete": "int64", "multi_binary": "int8"}
    slots = _slots(space, single=SINGLE_ACTION, where=f"{id}: action space")
    return {slot: spec._replace(dtype=dtypes[spec.kind]) for slot, spec in slots.items()}


class ObservationWriter:
    """Writes what an environment shows into the slab, and checks it against what the environment declared."""

    def __init__(self, space: spaces.Space[Any], spec: EnvSpec) -> None:
        self._space = space
        self._leaves = dict(space_leaves(space, single=SINGLE_OBSERVATION, where=spec.id))
        # Only a single box is worth a path of its own: it is what nearly every environment shows.
        self._box = space if isinstance(space, spaces.Box) and space.shape else None

    def write(self, observation: Any, rows: Mapping[str, Array], index: int) -> None:
        """Write the observation of environment `index` into `rows`, arrays `[N, ...]` by slot.

        Raises:
            EnvironmentFailure: structure, type, shape, dtype or range differ from the space; the message names the
                slot, what was expected and what was found.
        """
        box = self._box
        if (
            box is not None
            and type(observation) is np.ndarray
            and observation.dtype == box.dtype
            and observation.shape == box.shape
        ):
            rows[SINGLE_OBSERVATION][index] = observation
            return
        for slot, value in leaf_values(observation, self._space, slot="", single=SINGLE_OBSERVATION):
            rows[slot][index] = _checked(value, self._leaves[slot], where=f"observation '/observations/{slot}'")


class ActionReader:
    """Makes the actions an environment takes from the arrays of the slab."""

    def __init__(self, space: spaces.Space[Any], spec: EnvSpec, transform: Transform = "clip") -> None:
        self._space = space
        self._transform: Transform = transform
        self._leaves = [
            (leaf, spec.actions[leaf.slot])
            for leaf in space_leaves(space, single=SINGLE_ACTION, where=f"{spec.id}: action")
        ]

    def batch(self, actions: Mapping[str, Array]) -> list[Any]:
        """Return the actions of all environments, from raw samples `[N, ...]` by slot; never views of those."""
        columns = {
            leaf.slot: _column(actions[leaf.slot], spec, leaf.space, self._transform) for leaf, spec in self._leaves
        }
        if SINGLE_ACTION in columns:
            return columns[SINGLE_ACTION]
        n = len(next(iter(columns.values())))
        return [_nested(self._space, columns, i, slot="") for i in range(n)]

    def read(self, actions: Mapping[str, Array], index: int) -> Any:
        """Return the action of environment `index`: an integer, an array of the space's dtype, a dict or a tuple."""
        return self.batch({slot: array[index : index + 1] for slot, array in actions.items()})[0]


def sample_action(specs: Mapping[str, ArraySpec], rng: np.random.Generator) -> dict[str, Array]:
    """Return random raw actions `[1, ...]` by slot: uniform where bounds are finite, else standard normal."""
    actions: dict[str, Array] = {}
    for slot, spec in specs.items():
        shape = (1, *spec.shape)
        if spec.kind == "box" and spec.bounded:
            low, high = (np.broadcast_to(np.reshape(b, _bound_shape(b, spec)), shape) for b in (spec.low, spec.high))
            actions[slot] = _uniform(low, high, rng, dtype=np.dtype(spec.dtype))
        elif spec.kind == "box":
            actions[slot] = rng.standard_normal(shape).astype(spec.dtype)
        else:
            n = 2 if spec.kind == "multi_binary" else np.reshape(spec.n, spec.shape)
            actions[slot] = rng.integers(0, n, size=shape).astype(spec.dtype)
    return actions


def plain_box(space: spaces.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Return shape and dtype of an observation space that is one box; None for all others."""
    return (space.shape, np.dtype(space.dtype)) if isinstance(space, spaces.Box) and space.shape else None


def discrete_start(spec: EnvSpec) -> int | None:
    """Return what is added to an action that is one integer; None for all other actions."""
    only = spec.actions.get(SINGLE_ACTION)
    return only.start if only is not None and only.kind == "discrete" else None


class _Leaf(NamedTuple):
    slot: str
    space: spaces.Space[Any]


def space_leaves(space: spaces.Space[Any], *, single: str, where: str) -> list[_Leaf]:
    """Return the parts of a space that are one array each, with their slots; `single` is that of the space itself."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [_Leaf(single, space)]
    leaves = list(_nested_leaves(space, prefix="", where=where))
    names = [leaf.slot for leaf in leaves]
    if not leaves:
        raise SpaceError(f"{where}: expected at least one array, found the empty space {space}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SpaceError(f"{where}: two parts of the space have the name {twice!r}; rename one of them")
    return leaves


def _nested_leaves(space: spaces.Space[Any], *, prefix: str, where: str) -> Iterator[_Leaf]:
    for key, part in space_parts(space):
        if not isinstance(key, str) or not key:
            raise SpaceError(f"{where}: expected non-empty strings as keys of a Dict space, found {key!r}")
        slot = f"{prefix}/{key}" if prefix else key
        if isinstance(part, spaces.Dict | spaces.Tuple):
            yield from _nested_leaves(part, prefix=slot, where=where)
        else:
            yield _Leaf(slot, part)


def space_parts(space: spaces.Space[Any]) -> list[tuple[str, spaces.Space[Any]]]:
    """Return the parts of a Dict or Tuple space by key, elements of a tuple numbered; none of other spaces."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return [(str(i), part) for i, part in enumerate(space.spaces)]
    return []


def _slots(space: spaces.Space[Any], *, single: str, where: str) -> dict[str, ArraySpec]:
    leaves = space_leaves(space, single=single, where=where)
    return {leaf.slot: _array_spec(leaf, where=where) for leaf in leaves}


def _array_spec(leaf: _Leaf, *, where: str) -> ArraySpec:
    space, named = leaf.space, f" in {leaf.slot!r}" if leaf.slot else ""
    if isinstance(space, spaces.Box):
        dtype = np.dtype(space.dtype)
        if dtype.kind not in "biuf" or dtype.itemsize > 8:
            raise SpaceError(f"{where}: expected a Box of real numbers{named}, found dtype {dtype}")
        name = "float32" if dtype == np.float64 else str(dtype)
        return ArraySpec("box", space.shape, name, _flat_bounds(space.low), _flat_bounds(space.high))
    if isinstance(space, spaces.Discrete):
        return ArraySpec("discrete", (), "int64", n=(int(space.n),), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        starts = {int(start) for start in np.ravel(space.start)}
        if len(starts) > 1:
            raise SpaceError(f"{where}: expected one start for all elements of a MultiDiscrete{named}, found {space}")
        n = tuple(int(x) for x in np.ravel(space.nvec))
        return ArraySpec("multi_discrete", space.shape, str(np.dtype(space.dtype)), n=n, start=starts.pop())
    if isinstance(space, spaces.MultiBinary):
        return ArraySpec("multi_binary", space.shape, str(np.dtype(space.dtype)))
    kinds = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
    hint = _WRAPPERS.get(type(space).__name__, "leave it out, or turn it into numbers, by a wrapper in /env/wrappers")
    found = type(space).__name__ if " at 0x" in repr(space) else one_line(space, limit=200)
    raise SpaceError(f"{where}: expected {kinds}, found {found}{named}; {hint}")


def _flat_bounds(bound: Array) -> tuple[float, ...]:
    flat = tuple(float(x) for x in np.ravel(bound))
    return flat[:1] if len(set(flat)) == 1 else flat


def _uniform(low: Array, high: Array, rng: np.random.Generator, *, dtype: np.dtype[Any]) -> Array:
    """Return numbers between the bounds in a type that may be too small for these."""
    largest = float(np.finfo(dtype).max) if dtype.kind == "f" else np.inf
    low, high = low.clip(-largest, largest), high.clip(-largest, largest)
    with np.errstate(over="ignore"):
        is_wide = not np.isfinite(high - low).all()
    if not is_wide:
        return rng.uniform(low, high).astype(dtype)
    share = rng.random(low.shape)
    return np.asarray(low * (1.0 - share) + high * share).astype(dtype)


def _bound_shape(bound: tuple[float, ...], spec: ArraySpec) -> tuple[int, ...]:
    return () if len(bound) == 1 else spec.shape


def leaf_values(value: Any, space: spaces.Space[Any], *, slot: str, single: str) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of an observation by slot, as deep as its space goes.

    Raises:
        EnvironmentFailure: its structure is another.
    """
    where = f"observation '/observations/{slot}'" if slot else "observation"
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            raise EnvironmentFailure(f"{where}: expected a dict, found {_kind(value)}")
        if value.keys() != space.spaces.keys():
            raise EnvironmentFailure(
                f"{where}: expected the keys {sorted(map(str, space.spaces))}, found {sorted(map(str, value))}"
            )
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            raise EnvironmentFailure(f"{where}: expected a tuple of {len(space.spaces)}, found {_kind(value)}")
    else:
        yield slot or single, value
        return
    for key, part in space_parts(space):
        element = value[int(key)] if isinstance(space, spaces.Tuple) else value[key]
        yield from leaf_values(element, part, slot=f"{slot}/{key}" if slot else key, single=single)


def _checked(value: Any, space: spaces.Space[Any], *, where: str) -> Any:
    if isinstance(space, spaces.Discrete):
        return _checked_discrete(value, space, where=where)
    shape, dtype = space.shape or (), np.dtype(space.dtype)
    if not shape and isinstance(value, int | float | np.generic):
        value = np.asarray(value, dtype=dtype if isinstance(value, int | float) else None)
    if not isinstance(value, np.ndarray):
        raise EnvironmentFailure(f"{where}: expected a numpy array {shape} of {dtype}, found {_kind(value)}")
    if value.shape != shape or not np.can_cast(value.dtype, dtype):
        raise EnvironmentFailure(
            f"{where}: expected shape {shape} of {dtype}, found {value.shape} of {value.dtype}; "
            f"return what observation_space declares"
        )
    if isinstance(space, spaces.MultiDiscrete):
        value = value - space.start
        if ((value < 0) | (value >= space.nvec)).any():
            raise EnvironmentFailure(f"{where}: expected values inside {space}, found {one_line(value, limit=80)}")
    return value


def _checked_discrete(value: Any, space: spaces.Discrete, *, where: str) -> int:
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if not isinstance(value, int | np.integer | np.bool_):
        raise EnvironmentFailure(f"{where}: expected an integer, found {_kind(value)}")
    number = int(value) - int(space.start)
    if not 0 <= number < int(space.n):
        low, high = int(space.start), int(space.start + space.n) - 1
        raise EnvironmentFailure(f"{where}: expected an integer from {low} to {high}, found {int(value)}")
    return number


def _kind(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    return "None" if value is None else f"{type(value).__name__} {one_line(repr(value), limit=60)}"


def batch_of_actions(raw: Array, spec: ArraySpec, space: spaces.Space[Any], transform: Transform) -> Array:
    """Return the actions `[N, ...]` of a space that is one array, in the environment's units and type; never a view."""
    values = to_environment(raw, spec, transform)
    dtype = np.dtype(space.dtype)
    if isinstance(space, spaces.Box) and dtype.kind == "b":
        values = np.rint(values)
    elif isinstance(space, spaces.Box) and dtype.kind in "iu":
        # Cut first: a float outside an integer's range has no meaning as one.
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values.astype(np.float64)), limits.min, np.nextafter(float(limits.max) + 1.0, 0.0))
    if values.dtype == dtype:
        return values
    values = values.astype(dtype)
    # Policies count in 32 bits, in which a bound of another type may lie beyond itself.
    if isinstance(space, spaces.Box) and transform != "none" and dtype.kind != "b":
        return values.clip(space.low, space.high)
    return values


def _column(raw: Array, spec: ArraySpec, space: spaces.Space[Any], transform: Transform) -> list[Any]:
    if isinstance(space, spaces.Discrete):
        return to_environment(raw, spec, transform).tolist()  # type: ignore[no-any-return]
    converted = batch_of_actions(raw, spec, space, transform)
    return list(converted) if converted.ndim > 1 else [converted[i, ...] for i in range(len(converted))]


def _nested(space: spaces.Space[Any], columns: Mapping[str, list[Any]], index: int, *, slot: str) -> Any:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = {
            key: _nested(part, columns, index, slot=f"{slot}/{key}" if slot else key)
            for key, part in space_parts(space)
        }
        return tuple(parts.values()) if isinstance(space, spaces.Tuple) else parts
    return columns[slot][index]
