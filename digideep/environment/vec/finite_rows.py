"""Whether what an environment has just written is finite, looked at before anybody else sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from digideep.environment.vec.outcome import NotFinite

__all__ = ["check_finite"]


def check_finite(row: Mapping[str, Any], i: int, *, slots: Sequence[str]) -> None:
    """Check that environment `i` of a row has finite numbers in the `slots`.

    Raises:
        NotFinite: it has not.
    """
    for slot in slots:
        bad = ~np.isfinite(row[slot][i])
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            raise NotFinite(f"/observations/{slot}", float(np.ravel(row[slot][i])[position]), position)
