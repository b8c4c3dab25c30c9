"""The toy on a disk that hangs for ever in every save but the first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from toy_params import cpanel, gen_params

from digideep.pipeline.checkpoint import CheckpointStore

__all__ = ["cpanel", "gen_params"]

_commit = CheckpointStore.commit


def _hang(self: CheckpointStore, number: int, *arguments: Any, **options: Any) -> Path:
    while number > 0:
        time.sleep(60.0)
    return _commit(self, number, *arguments, **options)


CheckpointStore.commit = _hang  # type: ignore[method-assign]
