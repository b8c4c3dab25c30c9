"""Looks for NaN and infinity in what environments gave, cheaply, and says exactly where the first one is."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.environment.vec.base import Place, traced
from digideep.environment.vec.outcome import describe
from digideep.environment.vec.slab import Slab
from digideep.errors import NonFiniteError

__all__ = ["Bad", "first_bad", "is_finite", "not_finite"]

Array: TypeAlias = np.ndarray[Any, Any]


class Bad(NamedTuple):
    """The first number that is none: its key, row, environment, flat index within its array, and value."""

    key: str
    row: int
    env: int
    position: int
    value: float


def is_finite(array: Array) -> bool:
    """Whether every element is finite.

    The sum costs a twentieth of looking at each element. It is not finite where an element is not; where it merely
    overflows, each element is looked at.
    """
    if array.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum(dtype=np.float64 if array.itemsize < 4 else None)  # a wider sum takes three times as long
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())


def first_bad(slab: Slab, *, rows: int) -> Bad | None:
    """Return the first number that is none in `rows` steps of a slab, None if all are finite.

    Step `t` is row `t` of the rewards and row `t+1` of the observations; row 0 of the observations comes before all.
    """
    arrays = {f"/observations/{slot}": array[: rows + 1] for slot, array in slab.observations.items()}
    if all(is_finite(array) for array in arrays.values()) and is_finite(slab.rewards[:rows]):
        return None
    found = [_first(array, key) for key, array in arrays.items()]
    found.append(_first(slab.rewards[:rows], "/rewards"))
    # A reward of row t arrives together with the observation of row t+1.
    bad = [(one.row + (one.key == "/rewards"), one.env, one) for one in found if one is not None]
    return min(bad, key=lambda entry: entry[:2])[2] if bad else None


def not_finite(bad: Bad, slab: Slab, *, rows: int, worker: int, length: int) -> NonFiniteError:
    """Return the error that says in which step of which episode a number went bad.

    Its attributes `row` and `episode` say which row of the slab and which episode of the environment it was.

    Args:
        bad: what `first_bad` found.
        slab: where.
        rows: how many steps of it have been made.
        worker: that holds the environment.
        length: of the environment's episode at row 0.
    """
    masks = slab.masks[:, bad.env]
    row = bad.row + (bad.key == "/rewards")  # the row after the step that gave it
    opened = [t for t in range(1, row + 1) if masks[t] == 0]
    later = sum(1 for t in range(row + 1, rows + 1) if masks[t] == 0)
    number = int(slab.numbers[bad.env]) - later
    where = describe(
        slab.spec.id,
        env=bad.env,
        worker=worker,
        seed=int(slab.seeds[bad.env]),
        number=number,
        step=row - opened[-1] if opened else length + row,
    )
    error = NonFiniteError(
        f"{where}: expected finite numbers in {bad.key}, found {bad.value} (first bad index {bad.position})"
    )
    traced(error, "", Place(bad.env, "reset" if opened and opened[-1] == row else "step"))
    error.row, error.episode = row, number  # type: ignore[attr-defined]
    return error


def _first(array: Array, key: str) -> Bad | None:
    if array.dtype.kind != "f" or array.size == 0:  # no rewards: the first reset went bad
        return None
    flat = array.reshape(array.shape[0], array.shape[1], -1)
    places = np.argwhere(~np.isfinite(flat))
    if not len(places):
        return None
    row, env, position = (int(x) for x in places[0])
    return Bad(key=key, row=row, env=env, position=position, value=float(flat[row, env, position]))
