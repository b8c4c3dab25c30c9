"""Arrays of a state that were made with infinities, which a save may therefore find in them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["ConstantArray", "constant"]

Array: TypeAlias = np.ndarray[Any, Any]

_NONE = np.zeros(0, np.float32)


class ConstantArray(np.ndarray[Any, Any]):
    """An array of which some numbers are infinite and learnt by nobody: an attention mask, say.

    It is for `pipeline.contents`, which saves an array of its bits and refuses infinities of other arrays.

    Attributes:
        made: what it held when the module that it belongs to was made.
    """

    made: Array

    def __array_finalize__(self, other: Any) -> None:
        """Take over the mark of the array that this one is a copy or a part of; a part has another shape than that."""
        self.made = getattr(other, "made", _NONE)

    def bad(self) -> Array:
        """Return where numbers are neither finite nor the infinities with which it was made."""
        held, made = self.view(np.ndarray), self.made
        is_kept = np.isinf(made) & (held == made) if held.shape == made.shape else False
        return np.asarray(~np.isfinite(held) & ~np.asarray(is_kept))


def constant(array: Array, *, made: Array) -> ConstantArray:
    """Return the same memory, marked as made with the infinities of `made`."""
    marked = array.view(ConstantArray)
    marked.made = made
    return marked
