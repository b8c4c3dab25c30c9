"""Spaces as plain data: what an environment shows and takes, known without the library it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from digideep.errors import ShapeError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ArraySpec", "EnvSpec", "Kind", "spec_from_plain", "spec_to_plain", "validate"]

_SIZE_LIMIT = 1 << 31  # elements of one array; a shape beyond it comes from a damaged or hostile file

Kind: TypeAlias = Literal["box", "discrete", "multi_discrete", "multi_binary"]


class ArraySpec(NamedTuple):
    """One array of a space.

    `kind` says what the numbers mean. `box`: reals or bytes of `shape`, with `low` and `high` as flat tuples (one
    number each, or one an element). `discrete`: an integer in `range(n[0])`, shape `()`. `multi_discrete`: integers,
    element `i` of the flattened array in `range(n[i])`. `multi_binary`: zeros and ones.
    """

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    n: tuple[int, ...] = ()
    start: int = 0  # of a discrete space: what the environment calls 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def flat_size(self) -> int:
        """Number of inputs a network gets: elements, one-hot for discrete ones."""
        return sum(self.n) if self.kind in ("discrete", "multi_discrete") else self.size

    @property
    def bounded(self) -> bool:
        """Whether every element of a box has finite bounds."""
        return bool(self.low) and all(math.isfinite(x) for x in (*self.low, *self.high))


class EnvSpec(NamedTuple):
    """What an environment shows and takes.

    Nested spaces are flattened once into ordered slots. An action space that is one array has the slot `""`, an
    observation space that is one array the slot `"observation"`.
    """

    id: str
    observations: Mapping[str, ArraySpec]
    actions: Mapping[str, ArraySpec]
    max_episode_steps: int | None = None


def validate(value: np.ndarray[Any, Any], spec: ArraySpec, *, where: str) -> None:
    """Check shape and dtype of one array.

    Raises:
        ShapeError: `value` differs from `spec`; the message begins with `where`.
    """
    if value.shape != spec.shape:
        raise ShapeError(f"{where}: expected shape {spec.shape}, found {value.shape}")
    if str(value.dtype) != spec.dtype:
        raise ShapeError(f"{where}: expected dtype {spec.dtype}, found {value.dtype}")


def spec_to_plain(spec: EnvSpec) -> dict[str, Any]:
    """Return a specification as plain data without infinities: slots in their order, as a list of mappings."""
    return {
        "id": spec.id,
        "observations": [_array_to_plain(slot, array) for slot, array in spec.observations.items()],
        "actions": [_array_to_plain(slot, array) for slot, array in spec.actions.items()],
        "max_episode_steps": spec.max_episode_steps,
    }


def _array_to_plain(slot: str, array: ArraySpec) -> dict[str, Any]:
    bounds = {name: [x if math.isfinite(x) else str(x) for x in getattr(array, name)] for name in ("low", "high")}
    return {"slot": slot, **array._asdict(), "shape": list(array.shape), "n": list(array.n), **bounds}


def spec_from_plain(plain: Mapping[str, Any]) -> EnvSpec:
    """Return the specification that `spec_to_plain` made plain.

    Raises:
        ShapeError: it holds something else.
    """
    try:
        steps = plain["max_episode_steps"]
        return EnvSpec(
            id=str(plain["id"]),
            observations={entry["slot"]: _array_from_plain(entry) for entry in plain["observations"]},
            actions={entry["slot"]: _array_from_plain(entry) for entry in plain["actions"]},
            max_episode_steps=None if steps is None else int(steps),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ShapeError(
            f"env_spec: expected what spec_to_plain writes, found {type(error).__name__} ({error})"
        ) from error


def _array_from_plain(entry: Mapping[str, Any]) -> ArraySpec:
    kinds = get_args(Kind)
    shape, n = tuple(int(x) for x in entry["shape"]), tuple(int(x) for x in entry["n"])
    if entry["kind"] not in kinds or len(shape) > 16 or not all(0 <= x <= _SIZE_LIMIT for x in (*shape, *n)):
        raise ValueError(f"kind {entry['kind']!r}, shape {shape}")
    if math.prod(shape) > _SIZE_LIMIT or sum(n) > _SIZE_LIMIT:
        raise ValueError(f"shape {shape} is too large")
    return ArraySpec(
        kind=entry["kind"],
        shape=shape,
        dtype=str(entry["dtype"]),
        low=tuple(float(x) for x in entry["low"]),
        high=tuple(float(x) for x in entry["high"]),
        n=n,
        start=int(entry["start"]),
    )
