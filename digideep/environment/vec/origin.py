"""What an episode began with, as a few words of shared memory that outlive the process which wrote them.

An episode can be walked to again from the seed of its reset, or from the state of the generator before a reset without
one. A worker that dies can no longer be asked for either.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["WORDS", "forget", "read_origin", "write_origin"]

Array: TypeAlias = np.ndarray[Any, Any]

WORDS = 7  # kind; then the seed, or state and increment of a PCG64 in halves and what it has left over
_UNKNOWN, _SEEDED, _GENERATOR = 0, 1, 2
_LOW = (1 << 64) - 1


def write_origin(words: Array, bare: Any, *, seed: int) -> None:
    """Note in `words`, uint64 [WORDS], what the environment `bare` is about to begin an episode with.

    Gymnasium's generators are all of one kind; of another kind, or of none, nothing is known. Neither is it where the
    environment draws from another one than Gymnasium's, or where an episode goes on with the game of the one before,
    which the environment says by `goes_on`.
    """
    if seed >= 0:
        words[0], words[1] = _SEEDED, seed
        return
    rng = getattr(bare, "_np_random", None)
    if (
        not (type(rng) is np.random.Generator and type(rng.bit_generator) is np.random.PCG64)
        or getattr(bare, "goes_on", False)
        or getattr(bare, "np_random", rng) is not rng
    ):
        words[0] = _UNKNOWN
        return
    state: Any = rng.bit_generator.state
    position, increment = state["state"]["state"], state["state"]["inc"]
    halves = [position >> 64, position & _LOW, increment >> 64, increment & _LOW]
    words[:] = np.array([_GENERATOR, *halves, state["has_uint32"], state["uinteger"]], np.uint64)


def forget(words: Array) -> None:
    """Note that nobody knows what these episodes began with; `words` is [..., WORDS]."""
    words[..., 0] = _UNKNOWN


def read_origin(words: Array) -> dict[str, Any] | None:
    """Return `seed`, or `rng`, the state of the generator before a reset without a seed; None where unknown."""
    kind, *values = (int(word) for word in words)
    if kind == _SEEDED:
        return {"seed": values[0], "rng": None}
    if kind != _GENERATOR:
        return None
    numbers = {"state": values[0] << 64 | values[1], "inc": values[2] << 64 | values[3]}
    state = {"bit_generator": "PCG64", "state": numbers, "has_uint32": values[4], "uinteger": values[5]}
    return {"seed": None, "rng": state}
