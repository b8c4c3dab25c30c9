"""The ring memory gives what a memory that keeps every row would give, and nothing else."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from made_chunks import EveryRow, Stream

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.errors import ConfigError, DigideepError, ShapeError
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.testing import CountingActor
from digideep.types import Batch, Chunk, ChunkMeta, SampleSpec
from digideep.utility.node import build, node


def ring(capacity: int, *, on_disk: bool | str = False) -> RingBuffer:
    return RingBuffer(RingBufferConfig(capacity=capacity, on_disk=on_disk), name="train")


def check_batch(batch: Batch, expected: EveryRow, *, window: int, num_envs: int) -> set[tuple[int, int]]:
    """Check each window of a batch against the one that has to be there, and return which ones were drawn."""
    allowed = expected.windows(window)
    drawn = set()
    for index in range(len(batch["/indices"])):
        first, env = divmod(int(batch["/indices"][index]), num_envs)
        assert (env, first) in allowed, (env, first)
        wanted = allowed[env, first]
        assert batch["/observations/observation"][index, :, 0].tolist() == wanted.observations
        assert batch["/masks"][index].tolist() == wanted.masks
        assert batch["/weights"][index].tolist() == wanted.weights
        drawn.add((env, first))
    return drawn


def test_a_node_builds_the_ring_by_its_name() -> None:
    memory = build(node(RingBufferConfig, capacity=50), where="/memory/train", name="train")

    assert isinstance(memory, RingBuffer) and len(memory) == 0


@pytest.mark.parametrize("breaks", [0.0, 0.3])
@pytest.mark.parametrize("capacity", [12, 20, 47, 10_000])  # one chunk exactly; wrapped at odd places; never full
def test_windows_are_those_of_a_memory_that_keeps_every_row(capacity: int, breaks: float) -> None:
    stream = Stream(num_envs=3, steps=4, seed=capacity, breaks=breaks)
    memory, every = ring(capacity), EveryRow(num_envs=3, rows=capacity // 3 + 1)
    rng = np.random.default_rng(1)

    for _ in range(12):
        chunk = stream.chunk()
        memory.store(chunk)
        every.store(chunk)
        for window, spec in ((2, SampleSpec(300)), (6, SampleSpec(300, n_step=5)), (9, SampleSpec(300, 1, 8))):
            drawn = check_batch(memory.sample(spec, rng), every, window=window, num_envs=3)
            assert len(drawn) > 0.5 * min(len(memory), 100)
        assert len(memory) == len(every.windows(2))


def test_every_real_transition_is_equally_likely_and_no_other_is_drawn() -> None:
    stream, every = Stream(num_envs=3, steps=4, seed=5), EveryRow(num_envs=3, rows=11)
    memory = ring(30)
    for _ in range(7):
        chunk = stream.chunk()
        memory.store(chunk)
        every.store(chunk)
    size = 20_000

    batch = memory.sample(SampleSpec(size), np.random.default_rng(0))

    counts = Counter((int(i) % 3, int(i) // 3) for i in batch["/indices"])
    assert counts.keys() == every.windows(2).keys()
    mean = size / len(counts)
    assert all(abs(count - mean) < 5 * mean**0.5 for count in counts.values())


def test_few_real_transitions_among_many_rows_are_equally_likely_too() -> None:
    steps = 400
    slab = {
        "/masks": np.zeros((steps + 1, 2), np.float32),
        "/row": np.tile(np.arange(steps + 1)[:, None], (1, 2)),
    }
    slab["/masks"][[5, 6, 399], [0, 1, 1]] = 1.0
    memory = ring(2000)
    memory.store(Chunk({key: array.swapaxes(0, 1) for key, array in slab.items()}, ChunkMeta(0, 0, 0, 0)))

    batch = memory.sample(SampleSpec(3000), np.random.default_rng(0))

    assert len(memory) == 3
    counts = Counter(batch["/row"][:, 0].tolist())
    assert counts.keys() == {4, 5, 398} and min(counts.values()) > 900


def test_successors_at_the_end_of_an_episode_are_the_observations_it_ended_with() -> None:
    # The memory of some systems gives the first observation of the next episode instead.
    explorer = Explorer(
        ExplorerConfig(
            env=node(
                EnvConfig,
                model_name="digideep.testing:Counting-v0",
                env_kwargs={"lengths": [1, 1, 3, 2, 7, 1, 13], "ends": "alternate"},
            ),
            num_envs=3,
            n_steps=6,
        ),
        mode="train",
        seed=3,
    )
    memory = ring(100)
    rng = np.random.default_rng(0)
    seen = set()
    try:
        explorer.set_actors({"agent": CountingActor()})
        for _ in range(20):
            memory.store(explorer.update())
            batch = memory.sample(SampleSpec(100, sequence=5), rng)
            counts = batch["/observations/observation"][:, :, 0].astype(int)
            newest = counts.max()
            expected = np.minimum(counts[:, :1] + np.arange(6), newest)
            np.testing.assert_array_equal(counts, expected)  # exactly the next integers
            real = batch["/weights"] == 1.0
            np.testing.assert_array_equal(batch["/rewards"][:, :-1][real[:, :-1]], counts[:, 1:][real[:, :-1]])
            assert (batch["/weights"][:, 0] == 1.0).all()
            seen |= set(batch["/terminations"][:, 0].tolist())
    finally:
        explorer.close()

    assert seen == {0.0, 1.0}
    assert counts.min() > 20  # the oldest rows went


def test_rows_keep_their_types_and_bits() -> None:
    stream, memory = Stream(num_envs=2, steps=4), ring(50)
    chunk = stream.chunk()
    memory.store(chunk)

    batch = memory.sample(SampleSpec(20), np.random.default_rng(0))

    assert {key: array.dtype for key, array in chunk.arrays.items()} == {key: batch[key].dtype for key in chunk.arrays}
    assert batch["/observations/image"].shape == (20, 2, 2, 3)
    first, env = np.divmod(batch["/indices"], 2)
    for offset in (0, 1):
        np.testing.assert_array_equal(
            batch["/agents/agent/actions"][:, offset], chunk.arrays["/agents/agent/actions"][env, first + offset]
        )


def test_a_memory_on_disk_gives_the_same_batches_and_leaves_no_file(tmp_path: Path) -> None:
    plain, disk = ring(60), ring(60, on_disk=str(tmp_path))
    stream, other = Stream(seed=2), Stream(seed=2)
    for _ in range(9):
        plain.store(stream.chunk())
        disk.store(other.chunk())

    first, second = (memory.sample(SampleSpec(64, 3), np.random.default_rng(4)) for memory in (plain, disk))

    for key, array in first.items():
        np.testing.assert_array_equal(second[key], array)
    assert list(tmp_path.iterdir()) == []


def test_sampling_and_storing_cost_the_same_in_a_memory_of_a_million() -> None:
    # A scan of the masks alone would take four million bytes and some milliseconds a sample.
    stream = Stream(num_envs=8, steps=125, seed=1)
    memory = ring(1_000_000)
    chunk = stream.chunk()
    for _ in range(1000):
        memory.store(chunk)
    spec, rng = SampleSpec(256, 3), np.random.default_rng(0)
    batch = memory.sample(spec, rng)

    tracemalloc.start()
    began = time.perf_counter()
    for _ in range(20):
        memory.sample(spec, rng, out=batch)
    taken_s = (time.perf_counter() - began) / 20
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(memory) > 700_000
    assert peak < 100_000
    assert taken_s < 0.02  # measured: 0.24 ms


def test_a_given_batch_is_filled_without_another_of_its_size() -> None:
    steps = 8
    slab = {"/masks": np.ones((steps + 1, 2), np.float32), "/frames": np.zeros((steps + 1, 2, 64, 64), np.uint8)}
    memory = ring(100)
    memory.store(Chunk({key: array.swapaxes(0, 1) for key, array in slab.items()}, ChunkMeta(0, 0, 0, 0)))
    rng = np.random.default_rng(0)
    batch = memory.sample(SampleSpec(256, 3), rng)  # four megabytes
    tracemalloc.start()

    again = memory.sample(SampleSpec(256, 3), rng, out=batch)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert again is batch
    assert peak < 200_000 < batch["/frames"].nbytes


def test_a_chunk_that_is_more_than_the_capacity_is_refused_before_training() -> None:
    memory, chunk = ring(11), Stream(num_envs=3, steps=4).chunk()

    with pytest.raises(ConfigError, match=r"/memory/train/capacity: expected at least one chunk, 12 .*found 11"):
        memory.reserve(chunk.arrays)


def test_a_chunk_of_other_arrays_than_before_is_refused_by_key() -> None:
    memory, chunk = ring(100), Stream().chunk()
    memory.store(chunk)
    other = {**chunk.arrays, "/rewards": chunk.arrays["/rewards"].astype(np.float64)}

    with pytest.raises(ShapeError, match=r"expected \(3,\) float32 .* under '/rewards', found \(3,\) float64"):
        memory.store(Chunk(other, chunk.meta))


def test_reserving_stores_nothing() -> None:
    memory, chunk = ring(100), Stream().chunk()

    memory.reserve(chunk.arrays)

    assert len(memory) == 0
    with pytest.raises(DigideepError, match="expected real transitions in it, found none"):
        memory.sample(SampleSpec(1), np.random.default_rng(0))
