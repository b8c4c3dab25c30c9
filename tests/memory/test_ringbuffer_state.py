"""What a ring memory saves: a cursor, and blocks that are written once."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_chunks import EveryRow, Stream

from digideep.errors import CheckpointError, UsageError
from digideep.memory import blocks
from digideep.memory.blocks import block_rows
from digideep.memory.config import RingBufferConfig, RollBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.memory.rollbuffer import RollBuffer
from digideep.types import Chunk, ChunkMeta, LiveSegments, SampleSpec, Segment


def ring(capacity: int) -> RingBuffer:
    return RingBuffer(RingBufferConfig(capacity=capacity), name="train")


def filled(capacity: int, chunks: int, *, steps: int = 40, seed: int = 0) -> tuple[RingBuffer, Stream]:
    memory, stream = ring(capacity), Stream(num_envs=3, steps=steps, seed=seed)
    for _ in range(chunks):
        memory.store(stream.chunk())
    return memory, stream


def kept(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as a checkpoint keeps it: a copy."""
    segments = [Segment(s.name, {key: array.copy() for key, array in s.arrays.items()}) for s in state["segments"]]
    return {"cursor": dict(state["cursor"]), "segments": LiveSegments(segments)}


def batches(memory: RingBuffer) -> list[np.ndarray[Any, Any]]:
    specs = (SampleSpec(200), SampleSpec(200, 3), SampleSpec(200, 1, 7))
    return [array for spec in specs for _, array in sorted(memory.sample(spec, np.random.default_rng(7)).items())]


def check_equal(one: RingBuffer, other: RingBuffer) -> None:
    for expected, found in zip(batches(one), batches(other), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len(one) == len(other)


# The rings have 367 rows in blocks of 52: before the first block is full, before the ring is, and wrapped at
# several places.
@pytest.mark.parametrize("chunks", [1, 5, 9, 10, 14, 19, 31])
def test_a_loaded_memory_behaves_as_the_saved_one_from_the_next_call_on(chunks: int) -> None:
    memory, stream = filled(1100, chunks)
    loaded = ring(1100)

    loaded.load_state_dict(kept(memory.state_dict()))

    check_equal(memory, loaded)
    for _ in range(12):
        chunk = stream.chunk()
        memory.store(chunk)
        loaded.store(chunk)
        check_equal(memory, loaded)


@pytest.mark.parametrize("chunks", [0, 1, 9, 10, 31])
def test_what_was_loaded_is_saved_again_under_the_same_names(chunks: int) -> None:
    memory, stream = filled(1100, chunks)
    loaded = ring(1100)
    for each in (memory, loaded):
        each.reserve(stream.chunk().arrays)
    saved = kept(memory.state_dict())

    loaded.load_state_dict(saved)

    again = loaded.state_dict()
    assert again["cursor"] == saved["cursor"]
    assert again["segments"].names == saved["segments"].names
    for expected, found in zip(saved["segments"], again["segments"], strict=True):
        assert expected.arrays.keys() == found.arrays.keys()
        for key, array in expected.arrays.items():
            np.testing.assert_array_equal(found.arrays[key], array)


def test_a_save_after_a_few_transitions_has_one_new_segment() -> None:
    memory, _ = filled(1100, 31)
    short = Stream(num_envs=3, steps=3, seed=9)
    before = memory.state_dict()["segments"]
    names = before.names
    contents = {s.name: {key: array.copy() for key, array in s.arrays.items()} for s in before}

    memory.store(short.chunk())  # nine transitions

    after = memory.state_dict()["segments"]
    new = [segment for segment in after if segment.name not in names]
    assert len(names) == len(after) == 8
    assert len(new) == 1
    for segment in after:
        if segment.name in contents:
            for key, array in contents[segment.name].items():
                np.testing.assert_array_equal(segment.arrays[key], array)


def test_a_save_looks_at_the_open_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, _ = filled(1100, 31)
    seen = []

    def spy(content: memoryview, value: int) -> int:
        seen.append(content.nbytes)
        return zlib.crc32(content, value)

    monkeypatch.setattr(blocks, "zlib", SimpleNamespace(crc32=spy))

    segments = list(memory.state_dict()["segments"])

    # The checksum of a block is made when it is complete, and not while training waits.
    sizes = [sum(array.nbytes for array in segment.arrays.values()) for segment in segments]
    assert sum(seen) in sizes and len(sizes) == 8


def test_a_name_never_stands_for_two_contents() -> None:
    seen: dict[str, bytes] = {}
    for seed in range(3):  # three memories, as after a loss of the first two
        memory, stream = filled(1100, 0, seed=seed)
        for _ in range(40):
            memory.store(stream.chunk())
            for segment in memory.state_dict()["segments"]:
                content = b"".join(array.tobytes() for _, array in sorted(segment.arrays.items()))
                assert seen.setdefault(segment.name, content) == content


@pytest.mark.parametrize("chunks", [4, 9, 31])
@pytest.mark.parametrize("capacity", [120, 600, 1101, 5000])
def test_with_another_capacity_the_newest_transitions_are_kept(chunks: int, capacity: int) -> None:
    memory, stream = ring(1100), Stream(num_envs=3, steps=40)
    fitting = min(1100, capacity) // 3 + 1
    every = EveryRow(num_envs=3, rows=fitting)
    for _ in range(chunks):
        chunk = stream.chunk()
        memory.store(chunk)
        every.store(chunk)
    loaded = ring(capacity)

    loaded.load_state_dict(kept(memory.state_dict()))

    expected = {tuple(window.observations) for window in every.windows(4).values()}
    drawn = loaded.sample(SampleSpec(20_000, 3), np.random.default_rng(0))["/observations/observation"][..., 0]
    assert {tuple(window) for window in drawn.tolist()} == expected
    assert len(loaded) == len(expected)
    loaded.store(stream.chunk())
    again = ring(capacity)
    again.load_state_dict(kept(loaded.state_dict()))
    check_equal(loaded, again)


def test_loading_holds_on_to_nothing_and_replaces_what_was_there() -> None:
    memory, _ = filled(1100, 5)
    other, _ = filled(1100, 31, seed=4)
    saved = kept(memory.state_dict())

    other.load_state_dict(saved)
    for segment in saved["segments"]:
        for array in segment.arrays.values():
            array[...] = 0

    check_equal(memory, other)


def test_an_empty_state_empties_a_memory() -> None:
    memory, _ = filled(1100, 5)

    memory.load_state_dict(ring(1100).state_dict())

    assert len(memory) == 0 and len(memory.state_dict()["segments"]) == 0


class Streamed:
    """Segments that are made one at a time, in the same buffers, as a reader of files makes them."""

    def __init__(self, segments: LiveSegments) -> None:
        self.names = segments.names
        self._segments = segments
        self.iterations = 0

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Segment]:
        self.iterations += 1
        for segment in self._segments:
            arrays = {key: array.copy() for key, array in segment.arrays.items()}
            yield Segment(segment.name, arrays)
            for array in arrays.values():
                array[...] = 0


def test_saving_and_loading_need_the_memory_of_one_segment() -> None:
    # 2.5 GB of replay memory once took 17 GB to save.
    chunk = Stream(num_envs=8, steps=500).chunk()
    memory, loaded = ring(400_000), ring(400_000)
    for _ in range(120):
        memory.store(chunk)
    loaded.reserve(chunk.arrays)
    whole = sum(array.nbytes for segment in memory.state_dict()["segments"] for array in segment.arrays.values())
    segments = Streamed(memory.state_dict()["segments"])
    tracemalloc.start()

    state = memory.state_dict()
    loaded.load_state_dict({**state, "segments": segments})

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert whole > 10_000_000
    assert peak < 1_500_000
    assert segments.iterations == 1
    check_equal(memory, loaded)


def test_segments_have_about_400_kilobytes_and_are_never_too_many() -> None:
    assert block_rows(1_000_000, row_bytes=100) == 4096
    assert block_rows(100_000_000, row_bytes=100) == 100_000  # a thousand of ten megabytes
    assert block_rows(500, row_bytes=200) == 62  # a small memory is saved in parts too
    assert block_rows(50, row_bytes=10**7) == 1
    assert block_rows(1000, row_bytes=0) == 4 << 10


def test_another_number_of_environments_is_refused_with_the_way_out() -> None:
    memory, _ = filled(1100, 2)
    other = ring(1100)
    other.reserve(Stream(num_envs=2, steps=40).chunk().arrays)

    with pytest.raises(UsageError, match=r"/memory/train: expected 3 environments .*, found 2; start a new session"):
        other.load_state_dict(memory.state_dict())


def test_rows_of_another_kind_or_number_are_refused() -> None:
    memory, _ = filled(1100, 9)
    state = kept(memory.state_dict())
    segments = list(state["segments"])
    name = segments[0].name

    def changed(arrays: Any) -> dict[str, Any]:
        return {**state, "segments": LiveSegments([Segment(name, arrays), *segments[1:]])}

    first = segments[0].arrays
    doubled = {**first, "/rewards": first["/rewards"].astype(np.float64)}
    shorter = {key: array[:-1] for key, array in first.items()}
    lame = {key: array for key, array in first.items() if key != "/masks"}
    for broken, message in (
        (changed(doubled), r"expected \(3,\) float32 under '/rewards', found \(3,\) float64"),
        (changed(shorter), r"expected \d+ rows, found \[\d+\]"),
        (changed(lame), r"expected \(3,\) float32 under '/masks', found nothing"),
        ({**state, "segments": LiveSegments(segments[1:])}, "expected 7 blocks, found 6"),
    ):
        loaded = ring(1100)
        loaded.store(Stream(num_envs=3, steps=40).chunk())
        with pytest.raises(CheckpointError, match=f"memory.train.*: {message}"):
            loaded.load_state_dict(broken)
    with pytest.raises(CheckpointError, match="expected the key '/masks'"):
        ring(1100).load_state_dict(changed(lame))


def test_the_state_of_another_kind_of_memory_is_refused() -> None:
    roll = RollBuffer(RollBufferConfig(), name="train")
    memory, _ = filled(1100, 1)

    for loading, state in ((roll, memory.state_dict()), (memory, roll.state_dict())):
        with pytest.raises(CheckpointError, match=r"memory.train: expected the parts .*was /memory/train/type changed"):
            loading.load_state_dict(state)


def test_a_state_knows_generations_and_the_next_chunk_continues_them() -> None:
    memory, stream = filled(1100, 3)
    loaded = ring(1100)
    loaded.load_state_dict(kept(memory.state_dict()))
    assert loaded.sample(SampleSpec(1), np.random.default_rng(0))["/generations"].tolist() == [3]

    loaded.store(Chunk(stream.chunk().arrays, ChunkMeta(0, 0, 0, 0)))

    assert loaded.sample(SampleSpec(1), np.random.default_rng(0))["/generations"].tolist() == [4]
