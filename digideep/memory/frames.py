"""Stacked observations kept as single frames: how they are told from others, and where the frames of a stack lie.

A stack of `n` holds the last `n` frames along its first axis, the newest last; the frame that opens an episode fills
all places. So row `g` holds one frame that the rows before it do not hold, and the rest of its stack is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from digideep.errors import ConfigError, one_line
from digideep.memory.storage import Field

__all__ = ["OBSERVATIONS", "bytes_of", "first_bad_row", "frame_fields", "frame_places"]

Array: TypeAlias = np.ndarray[Any, Any]

OBSERVATIONS = "/observations/"


def frame_fields(fields: Mapping[str, Field], stack: int, *, where: str) -> dict[str, Field]:
    """Return the fields with one frame in place of each observation; as they are where `stack` is 0.

    Raises:
        ConfigError: an observation has no first axis of length `stack`.
    """
    found = dict(fields)
    for key, field in fields.items() if stack else ():
        if not key.startswith(OBSERVATIONS):
            continue
        if field.shape[1:2] != (stack,):
            fits = f"{field.shape[1]} where those are its stacks, or to 0" if len(field.shape) > 2 else "0"
            raise ConfigError(
                f"{where}/frame_stack: expected stacks of {stack} along the first axis of {one_line(key)!r}, "
                f"found the shape {field.shape[1:]}; set it to {fits}"
            )
        found[key] = Field((field.shape[0], *field.shape[2:]), field.dtype)
    return found


def frame_places(places: Array, masks: Array, *, step: int, stack: int) -> Array:
    """Return where the frames `[..., stack]` of the stacks at `places` `[...]` lie.

    Args:
        places: in the flat ring, not negative; they may run beyond its end, where it begins again.
        masks: of the flat ring, 0.0 where a row opens an episode.
        step: places from one row to the next.
        stack: frames in a stack.
    """
    found = np.empty((*places.shape, stack), np.int64)
    current = places
    for place in range(stack - 1, 0, -1):
        found[..., place] = current
        current = current - step * (masks.take(current, mode="wrap") == 1.0)
    found[..., 0] = current
    return found


def bytes_of(stacks: Array) -> Array:
    """Return stacks `[R, N, n, ...]` as `[R, N, n, words]` of the widest integers that a frame is made of."""
    whole = np.ascontiguousarray(stacks)
    rows, num_envs, stack = whole.shape[:3]
    size = whole.nbytes // max(1, rows * num_envs * stack)
    width = next(width for width in (8, 4, 2, 1) if size % width == 0)
    return whole.reshape(-1).view(np.uint8).view(f"u{width}").reshape(rows, num_envs, stack, -1)


def first_bad_row(words: Array, masks: Array, *, head: Array | None) -> tuple[int, int] | None:
    """Return row and environment of the first stack that does not go on from the row before; None where all do.

    Args:
        words: `[R, N, n, words]`.
        masks: `[R, N]`, 0.0 where a row opens an episode.
        head: `[N, n, words]` what row 0 has to be where it opens none; None: anything.
    """
    goes_on = np.empty(masks.shape, bool)
    goes_on[1:] = (words[1:, :, :-1] == words[:-1, :, 1:]).all(axis=(2, 3))
    goes_on[0] = True if head is None else (words[0] == head).all(axis=(1, 2))
    opens = masks != 1.0
    opening = words[opens]
    goes_on[opens] = (opening == opening[:, -1:]).all(axis=(1, 2))
    if goes_on.all():
        return None
    row, env = np.argwhere(~goes_on)[0]
    return int(row), int(env)
