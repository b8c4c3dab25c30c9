"""How much memory this process uses and may use, by the control group that it is in."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["GroupMemory", "group_memory", "memory_limit_bytes"]

_TABLE = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60  # version 1 writes a number of about this size where there is none
_V2 = ("memory.current", "memory.max")
_V1 = ("memory.usage_in_bytes", "memory.limit_in_bytes")


class GroupMemory(NamedTuple):
    """Memory of a control group in bytes: None where it cannot be read; `limit` is 0 where there is none."""

    usage: int | None
    limit: int | None


def group_memory(*, table: Path = _TABLE, root: Path = _ROOT) -> GroupMemory:
    """Return what the control group of this process uses and may use, the narrowest one above it counted.

    Args:
        table: of the groups of this process, as the kernel shows it.
        root: where the hierarchies are mounted.
    """
    try:
        lines = [line.split(":", 2) for line in table.read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return GroupMemory(None, None)
    entries = [line for line in lines if len(line) == 3]
    version_1 = next((path for _, kinds, path in entries if "memory" in kinds.split(",")), None)
    if version_1 is not None:
        return _narrowest(root / "memory", version_1, _V1)
    version_2 = next((path for number, kinds, path in entries if number == "0" and not kinds), None)
    return GroupMemory(None, None) if version_2 is None else _narrowest(root, version_2, _V2)


def memory_limit_bytes(*, table: Path = _TABLE, root: Path = _ROOT) -> int:
    """Return the bytes that this process and its relatives may use: those of the machine, or of its group if fewer.

    Args:
        table, root: as for `group_memory`.
    """
    import psutil

    machine = int(psutil.virtual_memory().total)
    return min(machine, group_memory(table=table, root=root).limit or machine)


def _narrowest(mount: Path, path: str, names: tuple[str, str]) -> GroupMemory:
    """Look from the group upwards: inside a container the path may be one of outside, where only the root is seen."""
    found = None
    group = mount / path.lstrip("/")
    for directory in (group, *group.parents):
        usage, limit = (_number(directory / name) for name in names)
        if limit is not None and (found is None or 0 < limit < (found.limit or _NO_LIMIT)):
            found = GroupMemory(usage, limit)
        if directory == mount:
            break
    return found or GroupMemory(_number(mount / names[0]), None)


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
        value = 0 if text == "max" else int(text)
    except (OSError, ValueError):
        return None
    return value if 0 <= value < _NO_LIMIT else 0
