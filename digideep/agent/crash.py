"""What an agent hands over when a loss or a gradient is not finite: enough to compute the same numbers again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.errors import NonFiniteError

__all__ = ["CrashBatch", "carry"]

Array: TypeAlias = np.ndarray[Any, Any]


class CrashBatch(NamedTuple):
    """A minibatch and the weights that it met.

    `arrays` are named by path: `/policy/<parameter>` and `/batch/<...>`, in the method's own words below that. `meta`
    is plain data: `agent`, `update`, `part`, `node` of the agent's configuration, `spec` of the environment, and
    `figures`, the losses and the gradient's norm as they were found.
    """

    arrays: Mapping[str, Array]
    meta: Mapping[str, Any]


def carry(error: NonFiniteError, crash_batch: CrashBatch) -> NonFiniteError:
    """Return `error` with `crash_batch` as an attribute, which is written into the session's `crash` directory."""
    error.crash_batch = crash_batch  # type: ignore[attr-defined]
    return error
