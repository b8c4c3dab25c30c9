"""A rollout as rows, and shuffled minibatches of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from digideep.agent.ppo.losses import PPOBatch
from digideep.agent.sampling import minibatch_slices, normalized, shares, time_major
from digideep.model.observations import as_tensor

__all__ = ["Rollout", "make_rollout", "minibatches", "own_array"]

Array: TypeAlias = np.ndarray[Any, Any]

_LOG_PROBS, _VALUES, _ADVANTAGES, _RETURNS, _WEIGHTS = range(5)


class Rollout(NamedTuple):
    """All `R = T * N` rows of a chunk: observations and actions on the device, figures `[5, R]` in numpy."""

    observations: dict[str, torch.Tensor]
    actions: dict[str, torch.Tensor]
    figures: Array

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
    device: torch.device,
) -> Rollout:
    """Return the rollout of `[N, T, ...]` arrays; the returns are advantages plus values."""
    rows = [log_probs, values, advantages, advantages + values, weights]
    return Rollout(
        observations={slot: as_tensor(time_major(array), device) for slot, array in observations.items()},
        actions={slot: as_tensor(time_major(array), device) for slot, array in actions.items()},
        figures=np.stack([time_major(row).astype(np.float32, copy=False) for row in rows]),
    )


def minibatches(rollout: Rollout, rng: np.random.Generator, *, size: int, normalize: bool) -> Iterator[PPOBatch]:
    """Yield every row once, shuffled; each gather copies a whole epoch, so that minibatches are slices."""
    rows = rollout.figures.shape[1]
    order = rng.permutation(rows)
    figures = rollout.figures[:, order]
    slices = minibatch_slices(rows, size)
    for part in slices:
        share = shares(figures[_WEIGHTS, part])
        figures[_WEIGHTS, part] = share
        if normalize:
            figures[_ADVANTAGES, part] = normalized(figures[_ADVANTAGES, part], share)
    any_tensor = next(iter(rollout.observations.values()))
    index = torch.from_numpy(order).to(any_tensor.device)
    observations = {slot: tensor.index_select(0, index) for slot, tensor in rollout.observations.items()}
    actions = {slot: tensor.index_select(0, index) for slot, tensor in rollout.actions.items()}
    table = torch.from_numpy(figures).to(any_tensor.device)
    for part in slices:
        yield PPOBatch(
            {slot: tensor[part] for slot, tensor in observations.items()},
            {slot: tensor[part] for slot, tensor in actions.items()},
            *table[:, part].unbind(0),
        )
