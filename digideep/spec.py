"""Spaces as plain data: what an environment shows and takes, known without the library it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from digideep.errors import ShapeError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ArraySpec", "EnvSpec", "Kind", "validate"]

Kind: TypeAlias = Literal["box", "discrete", "multi_discrete", "multi_binary"]


class ArraySpec(NamedTuple):
    """One array of a space.

    `kind` says what the numbers mean. `box`: reals or bytes of `shape`, with `low` and `high` as flat tuples (one number
    each, or one an element). `discrete`: an integer in `range(n[0])`, shape `()`. `multi_discrete`: integers, element
    `i` of the flattened array in `range(n[i])`. `multi_binary`: zeros and ones.
    """

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    n: tuple[int, ...] = ()
    start: int = 0  # of a discrete space: what the environment calls 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def flat_size(self) -> int:
        """Number of inputs a network gets: elements, one-hot for discrete ones."""
        return sum(self.n) if self.kind in ("discrete", "multi_discrete") else self.size

    @property
    def bounded(self) -> bool:
        """Whether every element of a box has finite bounds."""
        return bool(self.low) and all(math.isfinite(x) for x in (*self.low, *self.high))


class EnvSpec(NamedTuple):
    """What an environment shows and takes.

    Nested spaces are flattened once into ordered slots. An action space that is one array has the slot `""`, an
    observation space that is one array the slot `"observation"`.
    """

    id: str
    observations: Mapping[str, ArraySpec]
    actions: Mapping[str, ArraySpec]
    max_episode_steps: int | None = None


def validate(value: np.ndarray[Any, Any], spec: ArraySpec, *, where: str) -> None:
    """Check shape and dtype of one array.

    Raises:
        ShapeError: `value` differs from `spec`; the message begins with `where`.
    """
    if value.shape != spec.shape:
        raise ShapeError(f"{where}: expected shape {spec.shape}, found {value.shape}")
    if str(value.dtype) != spec.dtype:
        raise ShapeError(f"{where}: expected dtype {spec.dtype}, found {value.dtype}")
