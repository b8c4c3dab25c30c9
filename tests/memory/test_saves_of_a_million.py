"""A save after ten new transitions in a memory of a million costs what is new, through the store of checkpoints."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.pipeline.checkpoint import CheckpointMeta, CheckpointStore, Component
from digideep.types import Chunk, ChunkMeta, SampleSpec

MILLION = 1_000_000
FACTS = CheckpointMeta(
    epoch=1, cycle=1, frame=1, episode=1, exactness="exact", parent=None, versions={}, threads={}, device="cpu",
    params_sha256="0" * 64,
)  # fmt: skip
PRIORITIES = "memory.train.safetensors"


class Cost(NamedTuple):
    """Bytes of a checkpoint that no other one shares, without priorities; those of all of it; and seconds."""

    new: int
    whole: int
    taken_s: float


def chunk(steps: int, *, seed: int) -> Chunk:
    """Return steps of one pendulum, say."""
    rng = np.random.default_rng(seed)
    arrays = {
        "/observations/observation": rng.standard_normal((1, steps + 1, 3)).astype(np.float32),
        "/agents/agent/actions": rng.standard_normal((1, steps + 1, 1)).astype(np.float32),
        "/masks": (rng.random((1, steps + 1)) < 0.995).astype(np.float32),
        "/rewards": rng.standard_normal((1, steps + 1)).astype(np.float32),
        "/terminations": np.zeros((1, steps + 1), np.float32),
    }
    return Chunk(arrays, ChunkMeta(0, 0, 0, 0))


def save(store: CheckpointStore, memory: RingBuffer, number: int) -> Cost:
    began = time.perf_counter()
    components = [Component("memory.train", "memory", 1, memory.state_dict())]
    path = store.save(number, components, meta=FACTS._replace(cycle=number), logs={})
    taken_s = time.perf_counter() - began
    sizes = {file.name: file.stat() for file in path.iterdir()}
    new = sum(found.st_size for name, found in sizes.items() if found.st_nlink == 1 and name != PRIORITIES)
    return Cost(new, sum(found.st_size for found in sizes.values()), taken_s)


@pytest.mark.parametrize("kind", ["ring", "prioritised"])
def test_a_save_after_ten_transitions_is_under_a_megabyte_and_a_fifth_of_a_second(kind: str, tmp_path: Path) -> None:
    memory = (
        RingBuffer(RingBufferConfig(MILLION), name="train")
        if kind == "ring"
        else PrioritizedBuffer(PrioritizedBufferConfig(MILLION), name="train")
    )
    for seed in range(11):
        memory.store(chunk(100_000, seed=seed))
    assert len(memory) > 0.99 * MILLION
    store = CheckpointStore(tmp_path / "checkpoints", session_id="one", run_id="first")
    first = save(store, memory, 1)
    block = memory.state_dict()["cursor"]["block"]

    costs = []
    for number in range(2, 6):
        if number == 4:  # the ten transitions end a block and begin another one
            head = memory.state_dict()["cursor"]["total"] - 1
            memory.store(chunk(block - (head % (MILLION + 1)) % block - 5, seed=99))
            save(store, memory, 100)
        memory.store(chunk(10, seed=number))
        costs.append(save(store, memory, number if number < 4 else number + 100))

    assert first.new > 27_000_000
    assert all(cost.whole > 27_000_000 for cost in costs)
    assert max(cost.new for cost in costs) < 1_000_000
    assert min(cost.taken_s for cost in costs) < 0.2  # measured: 0.03 s, with a million priorities 0.06 s
    loaded = type(memory)(memory._config, name="train")  # type: ignore[arg-type]
    saved = CheckpointStore(tmp_path / "checkpoints", session_id="one", run_id="second").load(105)
    loaded.load_state_dict(saved.components["memory.train"])
    expected, found = (m.sample(SampleSpec(256, 3), np.random.default_rng(1)) for m in (memory, loaded))
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array)
