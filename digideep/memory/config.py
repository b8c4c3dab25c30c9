"""Configurations of memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from digideep.utility.node import Config

__all__ = ["RollBufferConfig"]


@dataclass(frozen=True)
class RollBufferConfig(Config):
    """A memory of the newest chunk only, for on-policy methods."""

    builds: ClassVar[str] = "digideep.memory.rollbuffer:RollBuffer"
