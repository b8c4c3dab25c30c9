"""One batch in other forms: of another dtype, in numpy, in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from digideep.agent.policy import Sequences
from digideep.agent.rollout.batches import RolloutBatch

__all__ = ["cast", "in_numpy", "in_torch"]


def cast(batch: RolloutBatch, dtype: torch.dtype) -> RolloutBatch:
    return _each(batch, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def in_numpy(batch: RolloutBatch) -> RolloutBatch:
    return _each(batch, lambda tensor: tensor.numpy())


def in_torch(batch: RolloutBatch) -> RolloutBatch:
    return _each(batch, torch.tensor)


def _each(batch: RolloutBatch, change: Callable[[Any], Any]) -> RolloutBatch:
    """Return a batch with every array changed."""
    fields = {
        name: {slot: change(array) for slot, array in value.items()} if isinstance(value, dict) else change(value)
        for name, value in batch._asdict().items()
        if name != "sequences"
    }
    found = RolloutBatch(**fields)
    if batch.sequences is None:
        return found
    state, masks = batch.sequences
    return found._replace(sequences=Sequences({key: change(part) for key, part in state.items()}, change(masks)))
