"""A minibatch of a rollout as named arrays, and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from digideep.agent.crash import CrashBatch, Origin, crash_of
from digideep.agent.modules import named_arrays
from digideep.agent.policy import Policy, Sequences
from digideep.agent.rollout.batches import RolloutBatch
from digideep.errors import UsageError
from digideep.model.distributions import Either
from digideep.model.observations import as_tensor
from digideep.spec import EnvSpec

__all__ = ["bad_numbers", "batch_of", "crash_batch", "first_bad"]

Array: TypeAlias = np.ndarray[Any, Any]

_SLOTS = ("observations", "actions")
_HIDDEN = "sequences/hidden_state"


def bad_numbers(figures: Either, *more: float, names: Sequence[str]) -> str:
    """Return names and values of the figures `[F]`, and of a gradient's norm after them, that are not finite."""
    found = (*figures.tolist(), *more)
    if math.isfinite(sum(found)):
        return ""
    told = (*names, "norm of the gradient")
    return ", ".join(f"{name} {value}" for name, value in zip(told, found, strict=False) if not math.isfinite(value))


def first_bad(
    figures: Sequence[Either], norms: Sequence[torch.Tensor | float], *, names: Sequence[str]
) -> tuple[int, str]:
    """Return the first step of an update with a number that is not finite, and its `bad_numbers`."""
    for step, (figure, norm) in enumerate(itertools.zip_longest(figures, norms, fillvalue=0.0)):
        if bad := bad_numbers(figure, float(norm), names=names):
            return step, bad
    raise AssertionError("one step is bad, or nobody would ask")


def crash_batch(
    batch: RolloutBatch,
    figures: Either,
    *,
    policy: Policy,
    origin: Origin,
    names: Sequence[str],
) -> CrashBatch:
    """Return a minibatch and the weights that it met, as plain data.

    Its arrays are `/batch/observations/<slot>`, `/batch/actions/<slot>`, `/batch/<field of RolloutBatch>` and
    `/policy/<parameter>`; with sequences also `/batch/sequences/masks` and `/batch/sequences/hidden_state/<key>`.
    """
    told = dict(zip(names, figures.tolist(), strict=True))
    return crash_of(_arrays(batch), told, weights=named_arrays(policy), origin=origin)


def _arrays(batch: RolloutBatch) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, value in batch._replace(sequences=None)._asdict().items():
        parts = {f"{name}/{slot}": tensor for slot, tensor in value.items()} if name in _SLOTS else {name: value}
        found.update({path: _own(array) for path, array in parts.items() if array is not None})
    if batch.sequences is not None:
        found["sequences/masks"] = _own(batch.sequences.masks)
        found.update({f"{_HIDDEN}/{key}": _own(array) for key, array in batch.sequences.hidden_state.items()})
    return found


def _own(array: Either) -> Array:
    return np.array(array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array, order="C")


def batch_of(arrays: Mapping[str, Array], *, spec: EnvSpec, device: torch.device | None) -> RolloutBatch:
    """Return the minibatch that `crash_batch` took apart, for torch on a device or, without one, for numpy.

    Raises:
        UsageError: an array is missing.
    """
    slots = {"observations": spec.observations, "actions": spec.actions}
    fields: dict[str, Any] = {}
    try:
        for name in RolloutBatch._fields:
            if name == "sequences":
                fields[name] = _sequences(arrays, device)
            elif name in slots:
                fields[name] = {slot: _placed(arrays[f"/batch/{name}/{slot}"], device) for slot in slots[name]}
            else:
                fields[name] = _placed(arrays[f"/batch/{name}"], device)
    except KeyError as error:
        raise UsageError(f"crash batch: expected an array {error}, found none") from None
    return RolloutBatch(**fields)


def _sequences(arrays: Mapping[str, Array], device: torch.device | None) -> Sequences | None:
    if "/batch/sequences/masks" not in arrays:
        return None
    prefix = f"/batch/{_HIDDEN}/"
    hidden = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    masks = _placed(arrays["/batch/sequences/masks"], device)
    return Sequences({key: _placed(array, device) for key, array in hidden.items()}, masks)


def _placed(array: Array, device: torch.device | None) -> Either:
    return np.array(array) if device is None else as_tensor(array, device=device)
