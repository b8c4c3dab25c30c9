"""A rollout as rows, and shuffled minibatches of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from digideep.agent.policy import Sequences
from digideep.agent.sampling import minibatch_slices, normalized, shares, time_major
from digideep.model.distributions import Either
from digideep.model.observations import as_tensor

__all__ = ["Pieces", "Rollout", "RolloutBatch", "make_rollout", "minibatches", "ordered_minibatches", "own_array"]

Array: TypeAlias = np.ndarray[Any, Any]

_LOG_PROBS, _VALUES, _ADVANTAGES, _RETURNS, _WEIGHTS = range(5)


class RolloutBatch(NamedTuple):
    """Rows of a rollout: observations and raw actions by slot `[B, ...]`, everything else `[B]`; in numpy or torch.

    `log_probs` and `values` are those of the policy that acted; `advantages` are normalised if the configuration says
    so; `shares` are the weights of the rows in means. With `sequences` the rows are those of whole sequences, the steps
    of one time side by side, which a recurrent network needs.
    """

    observations: dict[str, Either]
    actions: dict[str, Either]
    log_probs: Either
    values: Either
    advantages: Either
    returns: Either
    shares: Either
    sequences: Sequences | None = None


class Pieces(NamedTuple):
    """All sequences that a rollout is cut into, `Q` of `L` steps, and which rows their steps are, `[L, Q]`."""

    sequences: Sequences
    rows: Array


class Rollout(NamedTuple):
    """All `R = T * N` rows of a chunk: observations and actions in numpy or on a device, figures `[5, R]` in numpy.

    `pieces` are for recurrent networks.
    """

    observations: dict[str, Either]
    actions: dict[str, Either]
    figures: Array
    pieces: Pieces | None = None

    @property
    def values(self) -> Array:
        """Return the values `[R]` of the policy that acted."""
        return np.asarray(self.figures[_VALUES])

    @property
    def returns(self) -> Array:
        """Return the targets `[R]` of the value function."""
        return np.asarray(self.figures[_RETURNS])

    @property
    def weights(self) -> Array:
        """Return 1.0 for real transitions and 0.0 for others, `[R]`."""
        return np.asarray(self.figures[_WEIGHTS])


def own_array(arrays: Mapping[str, Array], key: str, *, prefix: str) -> Array:
    """Return the agent's own array where there are several agents, else the one of all."""
    own = arrays.get(f"{prefix}/{key}")
    return arrays[f"/{key}"] if own is None else own


def make_rollout(
    *,
    observations: Mapping[str, Array],
    actions: Mapping[str, Array],
    log_probs: Array,
    values: Array,
    advantages: Array,
    weights: Array,
    device: torch.device | None,
    channels_last: bool = False,
) -> Rollout:
    """Return the rollout of `[N, T, ...]` arrays, for torch on a device or, without one, for numpy.

    The returns are advantages plus values. With `channels_last` pictures `[R, channels, height, width]` get the
    channels of a pixel side by side in memory, and minibatches keep that: turned once as bytes, not often as floats.
    """
    figures = np.empty((5, values.size), np.float32)
    for row, array in zip(figures, (log_probs, values, advantages, advantages + values, weights), strict=True):
        row[:] = time_major(array)
    rows = _rows(observations, device)
    if channels_last:
        rows = {slot: _pixelwise(tensor) for slot, tensor in rows.items()}
    return Rollout(rows, _rows(actions, device), figures)


def minibatches(rollout: Rollout, rng: np.random.Generator, *, size: int, normalize: bool) -> Iterator[RolloutBatch]:
    """Yield every row once, shuffled."""
    order = rng.permutation(rollout.figures.shape[1])
    return ordered_minibatches(rollout, order, size=size, normalize=normalize)


def ordered_minibatches(rollout: Rollout, order: Array, *, size: int, normalize: bool) -> Iterator[RolloutBatch]:
    """Yield the rows `order` of a rollout; each gather copies a whole epoch, so that minibatches are slices."""
    rows = len(order)
    figures = rollout.figures.take(order, axis=1)
    whole = rows - rows % size
    # All whole minibatches at once, then the smaller last one.
    for few in (figures[:, :whole].reshape(len(figures), whole // size, size), figures[:, whole:]):
        if few.size:
            few[_WEIGHTS] = shares(few[_WEIGHTS])
            if normalize:
                few[_ADVANTAGES] = normalized(few[_ADVANTAGES], few[_WEIGHTS])
    observations = {slot: _taken(array, order) for slot, array in rollout.observations.items()}
    actions = {slot: _taken(array, order) for slot, array in rollout.actions.items()}
    tensor = next((array for array in observations.values() if isinstance(array, torch.Tensor)), None)
    table: Either = figures if tensor is None else torch.from_numpy(figures).to(tensor.device)
    for part in minibatch_slices(rows, size):
        yield RolloutBatch(
            {slot: array[part] for slot, array in observations.items()},
            {slot: array[part] for slot, array in actions.items()},
            *table[:, part],
        )


def _rows(arrays: Mapping[str, Array], device: torch.device | None) -> dict[str, Either]:
    rows = {slot: time_major(array) for slot, array in arrays.items()}
    return rows if device is None else {slot: as_tensor(array, device) for slot, array in rows.items()}


def _pixelwise(tensor: Either) -> Either:
    is_picture = isinstance(tensor, torch.Tensor) and tensor.dim() == 4
    return tensor.contiguous(memory_format=torch.channels_last) if is_picture else tensor


def _taken(array: Either, order: Array) -> Either:
    if not isinstance(array, torch.Tensor):
        return array.take(order, axis=0)
    index = torch.from_numpy(order).to(array.device)
    if array.dim() == 4 and not array.is_contiguous():  # index_select would turn it back
        return array.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return array.index_select(0, index)
