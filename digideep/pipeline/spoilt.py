"""Checkpoints that are whole but for a memory: which ones, and how to go on without what it held."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from digideep.errors import CheckpointError
from digideep.pipeline.fsio import FileSystem
from digideep.pipeline.verified import Vouched, damage_by_file

__all__ = ["Spoilt", "advice", "first_that_may_go", "spoilt_memories"]

_SHOWN = 10  # files of a memory that a message names


class Spoilt(NamedTuple):
    """A checkpoint that is whole but for memories: its number, and what is wrong with each by component."""

    number: int
    reasons: Mapping[str, str]


def spoilt_memories(
    paths: Mapping[int, Path], *, session_id: str, vouched: Vouched | None, fs: FileSystem
) -> Iterator[Spoilt]:
    """Yield those of the damaged checkpoints in which nothing but memories is damaged, the latest first."""
    for number in sorted(paths, reverse=True):
        try:
            manifest, damage = damage_by_file(
                paths[number], number=number, session_id=session_id, vouched=vouched, fs=fs
            )
        except CheckpointError:
            continue
        reasons = {}
        for name, entry in manifest["components"].items():
            found = [damage.pop(file) for file in entry["files"] if file in damage and name.startswith("memory.")]
            if found:
                more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
                reasons[name] = f"the memory {_short(name)!r} ({', '.join(found[:_SHOWN])}{more})"
        if reasons and not damage:
            yield Spoilt(number, reasons)


def first_that_may_go(spoilt: Collection[Spoilt], droppable: Collection[str]) -> Spoilt | None:
    """Return the latest of which every damaged memory is `droppable`."""
    return next((one for one in spoilt if set(one.reasons) <= set(droppable)), None)


def advice(spoilt: Spoilt) -> str:
    """Return which settings let a run go on from a checkpoint without its damaged memories."""
    settings = " and ".join(f'/memory/{_short(name)}/on_damage to "drop"' for name in spoilt.reasons)
    found = " and ".join(spoilt.reasons.values())
    return f"checkpoint-{spoilt.number} is whole but for {found}; to go on without what was in it, set {settings}"


def _short(component: str) -> str:
    return component.partition(".")[2]
