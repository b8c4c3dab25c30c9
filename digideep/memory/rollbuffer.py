"""The memory of on-policy methods: the newest chunk, by reference."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from digideep.errors import DigideepError
from digideep.memory.base import Memory, check_chunk, check_keys, put
from digideep.memory.config import RollBufferConfig
from digideep.memory.frames import OBSERVATIONS
from digideep.types import Batch, Chunk, SampleSpec, StateDict
from digideep.utility.differences import check_parts

__all__ = ["RollBuffer"]

Array: TypeAlias = np.ndarray[Any, Any]


class RollBuffer(Memory):
    """Holds the newest chunk, a view of the explorer's slab; storing moves a reference and copies nothing.

    Args:
        config: nothing to set.
        name: what error messages call this memory.
    """

    def __init__(self, config: RollBufferConfig, *, name: str) -> None:
        self._config = config
        self._name = name
        self._chunk: Chunk | None = None
        self._starts: Array | None = None
        self._generation = 0

    def store(self, chunk: Chunk) -> None:
        """Take in a chunk, in place of the one before."""
        check_chunk(chunk.arrays, mask_key=self.mask_key, name=self._name)
        self._chunk = chunk
        self._starts = None  # found when somebody samples: most on-policy agents never do
        self._generation += 1

    def last_chunk(self) -> Chunk:
        """Return the newest chunk.

        Raises:
            DigideepError: nothing was stored since this memory was made or loaded.
        """
        if self._chunk is None:
            raise DigideepError(f"memory {self._name!r}: expected a chunk, found none; store one first")
        return self._chunk

    def sample(self, spec: SampleSpec, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """Return windows of the newest chunk that begin with real transitions, each equally likely.

        Rows beyond the newest one repeat it, with mask 0 and weight 0, so that nothing before them looks real.
        """
        arrays = self.last_chunk().arrays
        keys = arrays if spec.keys is None else spec.keys
        check_keys(keys, arrays, name=self._name)
        masks = arrays[self.mask_key]
        starts = self._real_starts(masks)
        picked = starts[rng.integers(len(starts), size=spec.batch_size)]
        last = masks.shape[1] - 1
        envs, firsts = np.divmod(picked, last + 1)
        steps = firsts[:, None] + np.arange(max(spec.n_step, spec.sequence) + 1)
        beyond, steps = steps > last, np.minimum(steps, last)
        real = (masks[envs[:, None], np.minimum(steps + 1, last)] == 1.0) & (steps < last)
        ending = _ends(steps, real) if spec.ends else steps
        batch: Batch = {} if out is None else out
        for key in keys:
            rows = ending if key.startswith(OBSERVATIONS) else steps
            put(batch, key, arrays[key][envs[:, None], rows])
        if self.mask_key in keys:
            batch[self.mask_key][beyond] = 0.0
        put(batch, "/weights", real, dtype=np.float32)
        put(batch, "/indices", picked)
        put(batch, "/generations", np.full(spec.batch_size, self._generation, dtype=np.int64))
        return batch

    def state_dict(self) -> StateDict:
        """Return the number of chunks stored so far.

        The chunk is not in it: it is spent when its cycle ends, nothing is saved before that, and the rows that the
        next chunk begins with are part of the explorer's state.
        """
        return {"generation": self._generation}

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned; the next thing to come is a chunk."""
        advice = f"was /memory/{self._name}/type changed?"
        check_parts(state, ("generation",), where=f"memory.{self._name}", advice=advice)
        self._generation = int(state["generation"])
        self._chunk = self._starts = None

    def _real_starts(self, masks: Array) -> Array:
        if self._starts is None:
            real = np.zeros(masks.shape, dtype=bool)
            real[:, :-1] = masks[:, 1:] == 1.0
            self._starts = np.flatnonzero(real)
        if len(self._starts) == 0:
            raise DigideepError(f"memory {self._name!r}: expected real transitions in the chunk, found none")
        return self._starts


def _ends(steps: Array, real: Array) -> Array:
    """Return the first row of each window and the one that the real transitions from there on lead to, `[B, 2]`."""
    count = np.logical_and.accumulate(real[:, :-1], axis=1).sum(axis=1)
    return np.stack((steps[:, 0], steps[:, 0] + count), axis=1)
