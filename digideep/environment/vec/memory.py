"""How much memory this run takes and may take: what is told of a worker that the kernel may have killed for it."""

from __future__ import annotations

import os

from digideep.utility.memory_limit import group_memory

__all__ = ["memory_text", "tree_memory"]

_UNAVAILABLE = "unavailable"


def tree_memory() -> int | None:
    """Return the memory in bytes of this process and all below it; None where it cannot be read."""
    import psutil

    try:
        own = psutil.Process(os.getpid())
        total = 0
        for process in (own, *own.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue  # it has ended since it was listed
        return total
    except (psutil.Error, OSError):
        return None


def memory_text() -> str:
    """Return memory and limits in words, `unavailable` for what cannot be read."""
    group = group_memory()
    limit = "no limit" if group.limit == 0 else f"limit {_told(group.limit)}"
    return f"memory: process tree {_told(tree_memory())}, cgroup {_told(group.usage)}, {limit}"


def _told(size: int | None) -> str:
    return _UNAVAILABLE if size is None else f"{size / 2**20:.0f} MB"
