"""Where two trees of plain data and arrays differ first, and whether a state has the parts that it should have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from digideep.errors import CheckpointError, one_line
from digideep.types import Segments

__all__ = ["check_parts", "first_difference"]

_SHOWN = 80  # characters of a value


def first_difference(left: Any, right: Any, *, path: str = "") -> str:
    """Return the path of the first difference of two trees, with both values; empty if they are equal to the bit.

    Types count (`1` is not `1.0`), so do the dtypes and shapes of arrays; NaN equals NaN; the order of keys is no
    difference.
    """
    where = path or "/"
    if type(left) is not type(right):
        return f"{where}: {_short(left)} of type {type(left).__name__}, {_short(right)} of type {type(right).__name__}"
    if hasattr(type(left), "names"):  # segments, which may be larger than what fits twice
        return _first_in_segments(left, right, path=path)
    if isinstance(left, Mapping):
        if left.keys() != right.keys():
            return f"{where}: keys {_short(list(left))}, {_short(list(right))}"
        pairs = [(key, left[key], right[key]) for key in left]
    elif isinstance(left, list | tuple):
        if len(left) != len(right):
            return f"{where}: {len(left)} elements, {len(right)} elements"
        pairs = [(i, *pair) for i, pair in enumerate(zip(left, right, strict=True))]
    else:
        return "" if _equal(left, right) else f"{where}: {_short(left)}, {_short(right)}"
    differences = (first_difference(a, b, path=f"{path}/{key}") for key, a, b in pairs)
    return next((difference for difference in differences if difference), "")


def check_parts(state: Mapping[str, Any], expected: Collection[str], *, where: str, advice: str = "") -> None:
    """Check that the keys of a state are the expected ones.

    Raises:
        CheckpointError: a part is missing or surplus; the message ends with `advice`.
    """
    if set(state) != set(expected):
        found = f"expected the parts {sorted(expected)}, found {sorted(state)}"
        raise CheckpointError(f"{where}: {found}; {advice}" if advice else f"{where}: {found}")


def _first_in_segments(left: Segments, right: Segments, *, path: str) -> str:
    if left.names != right.names:
        return f"{path or '/'}: segments {_short(left.names)}, {_short(right.names)}"
    pairs = zip(left, right, strict=True)
    differences = (first_difference(dict(a.arrays), dict(b.arrays), path=f"{path}/{a.name}") for a, b in pairs)
    return next((difference for difference in differences if difference), "")


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
    return bool(left == right or (left != left and right != right))


def _short(value: Any) -> str:
    return one_line(" ".join(repr(value).split()), limit=_SHOWN)
