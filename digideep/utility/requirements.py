"""Whether the packages are there without which nothing can be trained or played."""

from __future__ import annotations

import importlib.util
import sys

from digideep.errors import UsageError, one_line

__all__ = ["NEEDED", "check_packages"]

NEEDED = ("torch", "numpy", "gymnasium", "psutil")
"""Modules that every training imports, sooner or later; each is named like its distribution."""


def check_packages() -> None:
    """Check that they are installed, without importing them.

    Raises:
        UsageError: one is not; another Python than that of digideep's environment runs, most likely.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"python: expected the packages that digideep needs, found no {', '.join(missing)} for "
            f"{one_line(sys.executable, limit=200)}; use the environment that has them (. .venv/bin/activate), or "
            f"install them into this one: pip install -e . in the clone of digideep"
        )
