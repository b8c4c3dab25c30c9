"""Reading sessions: `load(path)` gives a `Loader`, which reads data only; `load_crash(path)` a loss that went bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from digideep.post.load import load
from digideep.post.loader import Loader

if TYPE_CHECKING:
    from digideep.post.crash import Crash, load_crash

__all__ = ["Crash", "Loader", "load", "load_crash"]


def __getattr__(name: str) -> Any:
    if name in ("Crash", "load_crash"):  # with torch, which reading logs needs no more than reading checkpoints
        from digideep.post import crash

        return getattr(crash, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
