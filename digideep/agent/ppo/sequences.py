"""A rollout cut into sequences, and shuffled minibatches of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from digideep.agent.policy import Sequences
from digideep.agent.rollout.batches import Pieces, Rollout, RolloutBatch, ordered_minibatches
from digideep.model.distributions import Either
from digideep.model.observations import as_tensor

__all__ = ["cut", "sequence_minibatches"]

Array: TypeAlias = np.ndarray[Any, Any]


def cut(hidden_state: Mapping[str, Array], masks: Array, *, length: int, device: torch.device | None) -> Pieces:
    """Return the sequences of a chunk: its `T` steps in pieces of `length`, those of all environments side by side.

    Args:
        hidden_state: `[N, T, ...]` by key, each row before acting.
        masks: `[N, T]`.
        length: divides `T`.
        device: for torch, or None for numpy.

    Returns:
        `Q = N * T / length` sequences; number `k * N + n` is the piece `k` of environment `n`.
    """
    rows = _by_step(np.arange(masks.size).reshape(masks.shape[::-1]), length)
    by_step = _by_step(masks.T, length)
    firsts = {key: array[:, ::length].swapaxes(0, 1) for key, array in hidden_state.items()}
    # Copies: the chunk is a view of what the next one overwrites.
    states = {key: np.array(array).reshape((-1, *array.shape[2:])) for key, array in firsts.items()}
    if device is None:
        return Pieces(Sequences(dict(states), by_step), rows)
    on_device = {key: as_tensor(array, device) for key, array in states.items()}
    return Pieces(Sequences(dict(on_device), as_tensor(by_step, device)), rows)


def sequence_minibatches(
    rollout: Rollout, rng: np.random.Generator, *, size: int, normalize: bool
) -> Iterator[RolloutBatch]:
    """Yield every sequence once, shuffled, in minibatches of at most `size` rows, and at least one sequence.

    The last one may have fewer than the others. The rows of a minibatch are the first step of each of its sequences,
    then the second of each, and so on.
    """
    assert rollout.pieces is not None
    (states, masks), rows = rollout.pieces
    length, count = rows.shape
    picked, each = rng.permutation(count), max(size // length, 1)
    groups = [picked[start : start + each] for start in range(0, count, each)]
    order = np.concatenate([rows[:, group].ravel() for group in groups])
    batches = ordered_minibatches(rollout, order, size=each * length, normalize=normalize)
    for group, batch in zip(groups, batches, strict=True):
        beginning = {key: _taken(array, group, axis=0) for key, array in states.items()}
        yield batch._replace(sequences=Sequences(beginning, _taken(masks, group, axis=1)))


def _by_step(array: Array, length: int) -> Array:
    """Return `[T, N]` as `[length, T / length * N]`."""
    steps, num_envs = array.shape
    pieces = array.reshape(steps // length, length, num_envs)
    return np.ascontiguousarray(pieces.swapaxes(0, 1).reshape(length, -1))


def _taken(array: Either, index: Array, *, axis: int) -> Either:
    if isinstance(array, torch.Tensor):
        return array.index_select(axis, torch.from_numpy(index).to(array.device))
    return array.take(index, axis=axis)
