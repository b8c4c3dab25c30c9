"""A small store with a memory in segments, and a file system that counts what becomes of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_meta import META

from digideep.pipeline.checkpoint import Checkpoint, CheckpointStore, Component
from digideep.pipeline.filesystem import RealFileSystem
from digideep.types import LiveSegments, Segment


class CountingFileSystem(RealFileSystem):
    """Notes which files are written, read and linked, and raises what it was given for some calls."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.read: list[str] = []
        self.linked: list[str] = []
        self.refused: dict[str, int] = {}

    def _note(self, call: str, path: Path, names: list[str]) -> None:
        number = self.refused.get(call)
        if number is not None:
            raise OSError(number, os.strerror(number), str(path))
        names.append(path.name)

    def create(self, path: Path, *, mode: int) -> int:
        self._note("create", path, self.written)
        return super().create(path, mode=mode)

    def open_for_reading(self, path: Path) -> int:
        self._note("open_for_reading", path, self.read)
        return super().open_for_reading(path)

    def link(self, source: Path, target: Path) -> None:
        self._note("link", target, self.linked)
        super().link(source, target)


def memory(blocks: Sequence[int], *, rows: int = 8) -> Component:
    segments = [Segment(f"{index:05d}-{rows}", {"/rows": np.full((rows, 3), index, "float32")}) for index in blocks]
    state = {"total": len(blocks), "segments": LiveSegments(segments), "open": np.zeros(2), "$odd": 1}
    return Component("memory.train", "ringbuffer", 1, state)


def parts(number: int, blocks: Sequence[int]) -> list[Component]:
    return [Component("agents.agent", "ppo", 1, {"w": np.full(4, number, "float32")}), memory(blocks)]


def store_in(directory: Path, fs: Any = None, *, run_id: str = "run") -> CheckpointStore:
    return CheckpointStore(
        directory / "checkpoints", session_id="session", run_id=run_id, fs=RealFileSystem() if fs is None else fs
    )


def save(store: CheckpointStore, number: int, blocks: Sequence[int]) -> Path:
    return store.save(number, parts(number, blocks), meta=META, logs={})


def blocks_in(loaded: Checkpoint) -> list[int]:
    return [int(segment.arrays["/rows"][0, 0]) for segment in loaded.components["memory.train"]["segments"]]


def segment_file(index: int, *, rows: int = 8) -> str:
    return f"memory.train.{index:05d}-{rows}.safetensors"


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    with path.open("r+b") as file:
        file.write(content)
