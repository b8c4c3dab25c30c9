"""Configurations of memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from digideep.utility.node import Config

__all__ = ["MemoryConfig", "RollBufferConfig"]


@dataclass(frozen=True)
class MemoryConfig(Config):
    """What stands at `/memory/<name>`: where chunks are kept."""


@dataclass(frozen=True)
class RollBufferConfig(MemoryConfig):
    """A memory of the newest chunk only, for on-policy methods."""

    builds: ClassVar[str] = "digideep.memory.rollbuffer:RollBuffer"
