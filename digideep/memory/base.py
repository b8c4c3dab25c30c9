"""The contract of memories: chunks go in, windows of real transitions come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from digideep.errors import ConfigError, ShapeError
from digideep.types import Batch, Chunk, SampleSpec, StateDict

__all__ = ["IMPORTANCE", "MASK_KEY", "Memory", "check_chunk", "check_keys", "put"]

Array: TypeAlias = np.ndarray[Any, Any]

MASK_KEY = "/masks"

IMPORTANCE = "/importance"
"""Key of a batch's importance weights, where a memory does not draw uniformly."""


class Memory(ABC):
    """Keeps chunks by reference or by copy; knows shapes and one key, that of the masks.

    A transition `t` is real if and only if `masks[t+1] == 1`. Windows begin with a real transition and have
    `max(n_step, sequence) + 1` rows of raw values. Rows that hold no real transition have weight 0; a window that
    reaches the newest row ends there as at an unreal one. Targets are made by the agent.
    """

    mask_key: str = MASK_KEY

    def reserve(self, arrays: Mapping[str, Array], *, directory: Path) -> None:
        """Check what chunks will look like and make room for them, before the first one is sampled.

        Args:
            arrays: those of a chunk, `[N, T+1, ...]` each; what they hold is meaningless.
            directory: of the session, for a memory that lies on disk.

        Raises:
            UsageError: there is less memory than that, or the chunk does not fit.
            StorageError: there is less space than that on the disk.
        """
        check_chunk(arrays, mask_key=self.mask_key, name=type(self).__name__)

    @abstractmethod
    def store(self, chunk: Chunk) -> None:
        """Take in a chunk.

        Raises:
            ShapeError: its arrays do not agree on `[N, T+1, ...]`, or it has no masks.
        """

    @abstractmethod
    def last_chunk(self) -> Chunk:
        """Return the newest chunk."""

    @abstractmethod
    def sample(self, spec: SampleSpec, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """Return `spec.batch_size` windows, drawn with replacement.

        Returns:
            Every key of the chunk, or those of `spec.keys`, as `[B, W, ...]` with `W = max(n_step, sequence) + 1`;
            `/indices` `[B]` and `/generations` `[B]`, which `update_priorities` takes back; `/weights` `[B, W]`, 0.0
            where a row holds no real transition. With `spec.ends` observations are `[B, 2, ...]`: the first row of a
            window, and the row that its first transition leads to, together with the real ones that follow it without
            a break. A memory that does not draw uniformly adds `/importance` `[B]` where there is a `spec.beta`. With
            `out` its arrays are written into and it is returned.

        Raises:
            DigideepError: there is no real transition, or a key of `spec.keys` is in no chunk.
        """

    def update_priorities(self, indices: Array, values: Array, generation: Array) -> None:
        """Set the priorities of sampled windows; those that were overwritten since are left out.

        Raises:
            ConfigError: this memory draws uniformly.
        """
        raise ConfigError(f"{type(self).__name__}: expected a memory with priorities, found one that draws uniformly")

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return arrays and cursor together, so that they cannot disagree; large ones as `Segments` under one key."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned."""


def check_chunk(arrays: Mapping[str, Array], *, mask_key: str, name: str) -> None:
    """Check that arrays obey the chunk law.

    Raises:
        ShapeError: they do not agree on `[N, T+1, ...]`, or there are no masks; the message names the memory and key.
    """
    masks = arrays.get(mask_key)
    if masks is None:
        raise ShapeError(f"memory {name!r}: expected the key {mask_key!r}, found {sorted(arrays)}")
    if masks.ndim != 2 or masks.shape[1] < 2:
        raise ShapeError(f"memory {name!r}: key {mask_key!r} has shape {masks.shape}, expected (num_envs, n_steps + 1)")
    for key, array in arrays.items():
        if array.shape[:2] != masks.shape:
            raise ShapeError(
                f"memory {name!r}: key {key!r} has shape {array.shape}, "
                f"expected ({masks.shape[0]}, {masks.shape[1]}, ...) = (num_envs, n_steps + 1, ...)"
            )


def check_keys(wanted: Iterable[str], there: Mapping[str, Array], *, name: str) -> None:
    """Check that the keys to be drawn are in chunks.

    Raises:
        ShapeError: one is not; the message names it and the memory.
    """
    for key in wanted:
        if key not in there:
            raise ShapeError(f"memory {name!r}: expected one of the keys {sorted(there)} to draw, found {key!r}")


def put(batch: Batch, key: str, value: Array, *, dtype: Any = None) -> None:
    """Write an array into the one that a batch has under a key, or make it that one."""
    target = batch.get(key)
    if target is None:
        batch[key] = np.ascontiguousarray(value, dtype)
    else:
        target[...] = value
