"""Whether there is room for a memory, asked before anything of it is made."""

from __future__ import annotations

from pathlib import Path

from digideep.errors import UsageError, one_line
from digideep.utility.memory_limit import memory_limit_bytes

__all__ = ["LEAST_BYTES", "PRIORITY_BYTES", "check_directory", "check_memory", "shown_bytes"]

LEAST_BYTES = 12
"""What the smallest transition takes: reward, mask and termination."""

PRIORITY_BYTES = 16
"""What the priority of a transition takes, with its part of the sums."""


def check_memory(needed: int, *, where: str, way_out: str = "") -> None:
    """Refuse more bytes than the machine has, or the control group of this process.

    Args:
        needed: bytes.
        where: the memory's node.
        way_out: what to do; by default there are two things.

    Raises:
        UsageError: the message has both figures.
    """
    limit = memory_limit_bytes()
    if needed > limit:
        raise UsageError(
            f"{where}/capacity: expected at most the memory of this machine or its control group ("
            f"{shown_bytes(limit)}), found at least {shown_bytes(needed)}; "
            f"{way_out or f'lower it, or set {where}/on_disk'}"
        )


def shown_bytes(count: int) -> str:
    """Return a size as messages show it: `72.0 GB`, and below a tenth of that in megabytes."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def check_directory(directory: Path, *, where: str) -> None:
    """Refuse a directory for the file of a memory that is none.

    Raises:
        UsageError: it is none.
    """
    if not directory.is_dir():
        found = one_line(directory)
        raise UsageError(f"{where}/on_disk: expected true, false or a directory, found {found!r}; make it first")
