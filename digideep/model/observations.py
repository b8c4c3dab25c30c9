"""Observation slots as the inputs of a network: one flat row of numbers for each observation.

Boxes are flattened, bytes scaled from [0, 255] to [0, 1], discrete values become one-hot, bits become 0 and 1; slots
follow one another in the order of the space. The same is written down twice, for torch and for numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.errors import ConfigError, SpaceError
from digideep.spec import ArraySpec

__all__ = ["BYTE", "FlatObservations", "as_tensor", "flat_rows", "flat_size", "policy_slots", "zero_observations"]

Array: TypeAlias = np.ndarray[Any, Any]

BYTE = 1.0 / 255.0
"""What bytes are multiplied by."""

_FLOAT32 = np.dtype(np.float32)


def flat_size(observations: Mapping[str, ArraySpec]) -> int:
    """Return the number of inputs that the slots become.

    Raises:
        SpaceError: there is no slot, or one without elements.
    """
    for slot, spec in observations.items():
        if spec.flat_size == 0:
            raise SpaceError(
                f"observation space: expected elements in slot {slot!r}, found the shape {spec.shape}; leave it out"
            )
    if not observations:
        raise SpaceError("observation space: expected at least one slot, found none; show something")
    return sum(spec.flat_size for spec in observations.values())


def policy_slots(observations: Mapping[str, ArraySpec], critic_only: Sequence[str]) -> dict[str, ArraySpec]:
    """Return the slots that a policy sees: all but those that only the critic may see.

    Raises:
        ConfigError: `critic_only` names a slot that there is not, or leaves none.
    """
    for slot in critic_only:
        if slot not in observations:
            raise ConfigError(
                f"critic_observations: expected some of {sorted(observations)}, found {slot!r}; name one of these slots"
            )
    seen = {slot: spec for slot, spec in observations.items() if slot not in critic_only}
    if critic_only and not seen:
        raise ConfigError(
            f"critic_observations: expected at least one slot left for the policy, found all of "
            f"{sorted(observations)}; leave one out"
        )
    return seen


def zero_observations(observations: Mapping[str, ArraySpec], rows: int) -> dict[str, Array]:
    """Return `rows` observations of zeros, as environments would give them."""
    return {slot: np.zeros((rows, *spec.shape), dtype=spec.dtype) for slot, spec in observations.items()}


def flat_rows(
    observations: Mapping[str, Array], specs: Mapping[str, ArraySpec], *, dtype: np.dtype[Any] = _FLOAT32
) -> Array:
    """Return `[B, flat_size]` rows of `dtype`; a single slot of such rows comes back as it is."""
    if len(specs) == 1:
        ((slot, spec),) = specs.items()
        return _flat_slot(observations[slot], spec, dtype)
    return np.concatenate([_flat_slot(observations[slot], spec, dtype) for slot, spec in specs.items()], axis=1)


def as_tensor(array: Array, device: torch.device) -> torch.Tensor:
    """Return an array on `device`; on the CPU the memory is shared where torch can."""
    contiguous = np.ascontiguousarray(array)
    # torch warns about memory that it must not write to.
    return torch.from_numpy(contiguous if contiguous.flags.writeable else contiguous.copy()).to(device)


class FlatObservations(nn.Module):
    """Turns slots of observations into `[B, size]`, in the dtype of the module it is part of."""

    _unit: torch.Tensor

    def __init__(self, observations: Mapping[str, ArraySpec]) -> None:
        super().__init__()
        self.size = flat_size(observations)
        self.specs = dict(observations)
        # Follows .double() and .to(device) with its module; no weight, so it is not part of the state.
        self.register_buffer("_unit", torch.ones(()), persistent=False)

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return `[B, size]`."""
        parts = [self._flat(observations[slot], spec) for slot, spec in self.specs.items()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _flat(self, value: torch.Tensor, spec: ArraySpec) -> torch.Tensor:
        dtype = self._unit.dtype
        if spec.kind in ("discrete", "multi_discrete"):
            columns = value.reshape(len(value), -1).long() + _offsets(spec, value.device)
            return value.new_zeros((len(value), sum(spec.n)), dtype=dtype).scatter_(1, columns, 1.0)
        flat = value if value.dim() == 2 else value.reshape(len(value), -1)
        if spec.kind == "box" and spec.dtype == "uint8":
            return flat.to(dtype) * BYTE
        return flat if flat.dtype == dtype else flat.to(dtype)


def _offsets(spec: ArraySpec, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.cumsum((0, *spec.n[:-1]))).to(device)


def _flat_slot(value: Array, spec: ArraySpec, dtype: np.dtype[Any]) -> Array:
    rows = len(value)
    if spec.kind in ("discrete", "multi_discrete"):
        columns = value.reshape(rows, -1).astype(np.int64) + np.cumsum((0, *spec.n[:-1]))
        encoded = np.zeros((rows, sum(spec.n)), dtype)
        np.put_along_axis(encoded, columns, 1.0, axis=1)
        return encoded
    flat = value if value.ndim == 2 else value.reshape(rows, -1)
    if spec.kind == "box" and spec.dtype == "uint8":
        return np.asarray(flat.astype(dtype) * dtype.type(BYTE))
    return flat if flat.dtype == dtype else flat.astype(dtype)
