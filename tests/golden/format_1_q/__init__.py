"""One digideep session; `loader` reads it.

Importing this directory runs nothing but the few lines here and in saam.py, and imports nothing beyond the standard
library until `loader` is used.
"""

from __future__ import annotations

from typing import Any

__all__ = ["loader"]


def __getattr__(name: str) -> Any:
    if name != "loader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .saam import open_loader

    value = open_loader()
    globals()["loader"] = value  # made once: it keeps what it has read
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), "loader"])
