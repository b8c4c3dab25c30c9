"""A small state that changes with every save, and the check that what was loaded is exactly one of these states.

The state of save `n` follows from `n` alone. It has what real ones have: arrays of an agent, statistics, plain
values, and a memory of three sealed blocks, of which a save writes the newest and links the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from digideep.pipeline.checkpoint import Checkpoint, CheckpointMeta, CheckpointStore, Component
from digideep.pipeline.filesystem import REAL
from digideep.types import LiveSegments, Segment

__all__ = ["META", "SESSION", "check", "components", "retain", "save", "store_at"]

SESSION = "session"
META = CheckpointMeta(
    epoch=1, cycle=2, frame=3, episode=4, exactness="exact", parent=None, versions={"numpy": "2.4"}, threads={},
    device="cpu", params_sha256="ab" * 32,
)  # fmt: skip
_BLOCKS = 3


def _block(index: int, *, rows: int) -> np.ndarray:
    return np.full((rows, 4), index, dtype="float32") + np.arange(4, dtype="float32")


def _blocks(number: int) -> range:
    return range(max(0, number - _BLOCKS), number)


def components(number: int, *, rows: int = 25) -> list[Component]:
    """Return the state of save `number`; `rows` sets its size, 16 bytes each in every array."""
    sealed = [Segment(f"{index:05d}-{rows}", {"rows": _block(index, rows=rows)}) for index in _blocks(number)]
    memory = {"cursor": number * rows, "head": _block(number, rows=2), "segments": LiveSegments(sealed)}
    return [
        Component("agents.agent", "ppo", 1, {"w": np.full((rows, 4), number, dtype="float32"), "updates": number}),
        Component("statistics", "running", 1, {"mean": np.full(3, float(number))}),
        Component("memory.train", "ringbuffer", 1, memory),
        Component("runner", "runner", 1, {"cycle": number, "pending": ["test"]}),
    ]


def check(loaded: Checkpoint, *, rows: int = 25) -> int:
    """Return the number of a checkpoint whose content is exactly that of `components`.

    Raises:
        AssertionError: it is not.
    """
    number, state = loaded.number, loaded.components
    assert state["agents.agent"]["updates"] == state["runner"]["cycle"] == number, number
    assert state["runner"]["pending"] == ["test"], number
    assert np.array_equal(state["agents.agent"]["w"], np.full((rows, 4), number, dtype="float32")), number
    assert state["statistics"]["mean"].tolist() == [float(number)] * 3, number
    memory = state["memory.train"]
    assert memory["cursor"] == number * rows and np.array_equal(memory["head"], _block(number, rows=2)), number
    found = [(segment.name, segment.arrays["rows"].copy()) for segment in memory["segments"]]
    assert [name for name, _ in found] == [f"{index:05d}-{rows}" for index in _blocks(number)], number
    for index, (_, array) in zip(_blocks(number), found, strict=True):
        assert np.array_equal(array, _block(index, rows=rows)), (number, index)
    return number


def store_at(directory: Path | str, *, run_id: str = "run", fs: Any = REAL) -> CheckpointStore:
    """Return the store of a directory."""
    return CheckpointStore(directory, session_id=SESSION, run_id=run_id, fs=fs)


def save(store: CheckpointStore, number: int, *, rows: int = 25) -> Path:
    """Commit the state of save `number`."""
    return store.save(number, components(number, rows=rows), meta=META, logs={})


def retain(store: CheckpointStore) -> None:
    """Keep the newest two, each tenth, and the third, which is the best one."""
    store.retain(keep_last=2, keep_best=1, keep_every=10, best=[3])
