"""Minibatches of a rollout: every row once an epoch, real or not, and weights that leave the unreal ones out.

All minibatches of a run have the same sizes that way, whatever the number of episode boundaries in a chunk.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["minibatch_slices", "normalized", "shares", "time_major"]

Array: TypeAlias = np.ndarray[Any, Any]

_EPSILON = 1e-8


def time_major(array: Array) -> Array:
    """Return `[N, T, ...]` as `[T * N, ...]` with the environments of one step side by side.

    For views of a time-major slab this copies nothing.
    """
    swapped = array.swapaxes(0, 1)
    return swapped.reshape((-1, *array.shape[2:]))


def minibatch_slices(rows: int, size: int) -> list[slice]:
    """Return slices that cover `rows` shuffled rows in minibatches of `size`; the last one may be smaller."""
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def shares(weights: Array) -> Array:
    """Return weights `[..., B]` divided by their sums: the share of each row in a mean; zeros where all are 0."""
    total = np.add.reduce(weights, axis=-1, keepdims=True)
    return np.asarray(weights / np.maximum(total, 1.0))


def normalized(values: Array, share: Array) -> Array:
    """Return `[..., B]` values with mean 0 and population variance 1 under the shares, in float64; 0 where those are 0.

    Equal values, and a single one, become 0.
    """
    exact, weight = values.astype(np.float64), share.astype(np.float64)
    # From one of the rows that count: a mean of large equal values is off by its rounding, which the deviation would
    # then blow up to the size of real differences.
    exact -= np.take_along_axis(exact, weight.argmax(axis=-1, keepdims=True), axis=-1)
    mean = np.add.reduce(exact * weight, axis=-1, keepdims=True)
    centred = (exact - mean) * (weight > 0.0)
    deviation = np.sqrt(np.add.reduce(centred * centred * weight, axis=-1, keepdims=True))
    return np.asarray(centred / (deviation + _EPSILON))
