"""Configurations of memories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from digideep.errors import ConfigError
from digideep.memory.room import LEAST_BYTES, PRIORITY_BYTES, check_directory, check_memory
from digideep.utility.node import Config, setting

__all__ = ["MemoryConfig", "PrioritizedBufferConfig", "RingBufferConfig", "RollBufferConfig"]


@dataclass(frozen=True)
class MemoryConfig(Config):
    """What stands at `/memory/<name>`: where chunks are kept."""

    def check_room(self, *, num_envs: int, n_steps: int, where: str) -> None:
        """Refuse what cannot work with chunks of `num_envs` times `n_steps`, before any of them is made.

        Raises:
            UsageError: it cannot; the message begins with `where`.
        """


@dataclass(frozen=True)
class RollBufferConfig(MemoryConfig):
    """A memory of the newest chunk only, for on-policy methods."""

    builds: ClassVar[str] = "digideep.memory.rollbuffer:RollBuffer"


@dataclass(frozen=True)
class RingBufferConfig(MemoryConfig):
    """A memory of the newest transitions of all environments, drawn from uniformly, for off-policy methods."""

    builds: ClassVar[str] = "digideep.memory.ringbuffer:RingBuffer"

    capacity: int = setting(
        100_000,
        "newest transitions that are kept, of all environments together",
        unit="transitions",
        low=1,
        high=10**12,
    )
    on_disk: bool | str = setting(
        False, "whether they lie in a file instead of in memory: true, beside the session; or a directory for the file"
    )
    on_damage: Literal["stop", "drop"] = setting(
        "stop", "what a resume does where its files are damaged in every checkpoint: end, or go on without them"
    )
    frame_stack: int = setting(
        0,
        "pictures in each observation, as its first axis, the newest last: each is then kept once; 0: observations "
        "are kept as they are",
        low=0,
        high=1000,
    )

    def __post_init__(self) -> None:
        """Check that a directory has a name."""
        super().__post_init__()
        if self.on_disk == "":
            raise ConfigError("RingBufferConfig/on_disk: expected true, false or a directory, found ''; name one")

    def check_room(self, *, num_envs: int, n_steps: int, where: str) -> None:
        """Refuse less room than one chunk takes, more than the machine has, and a directory that does not exist."""
        if self.capacity < num_envs * n_steps:
            raise ConfigError(
                f"{where}/capacity: expected at least one chunk, {num_envs * n_steps} transitions, "
                f"found {self.capacity}; raise it, or lower num_envs or n_steps"
            )
        if isinstance(self.on_disk, str):
            check_directory(Path(self.on_disk), where=where)
        elif not self.on_disk:
            check_memory(self.capacity * LEAST_BYTES, where=where)


@dataclass(frozen=True)
class PrioritizedBufferConfig(RingBufferConfig):
    """A memory of the newest transitions of all environments, drawn from in proportion to their priorities."""

    builds: ClassVar[str] = "digideep.memory.prioritized:PrioritizedBuffer"

    def check_room(self, *, num_envs: int, n_steps: int, where: str) -> None:
        """Refuse what a ring refuses, and more priorities than the machine has memory for, wherever the rows lie."""
        super().check_room(num_envs=num_envs, n_steps=n_steps, where=where)
        check_memory(self.capacity * PRIORITY_BYTES, where=where, way_out="lower it")
