"""Reading sessions: `load(path)` gives a `Loader`, which reads data only."""

from __future__ import annotations

from digideep.post.load import load
from digideep.post.loader import Loader

__all__ = ["Loader", "load"]
