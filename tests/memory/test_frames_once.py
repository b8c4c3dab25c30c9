"""A memory that keeps each picture once gives what one gives that keeps whole stacks, to the bit."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from made_chunks import Pictures

from digideep.errors import ConfigError, DigideepError, UsageError
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.types import Chunk, LiveSegments, SampleSpec, Segment

SPECS = {
    "one step": SampleSpec(200),
    "five steps": SampleSpec(200, n_step=5),
    "sequences": SampleSpec(200, 1, 9),
    "both ends": SampleSpec(200, n_step=5, ends=True),
    "some keys": SampleSpec(200, n_step=2, keys=("/observations/observation", "/rewards")),
}


def pair(capacity: int, *, stack: int = 4, prioritized: bool = False) -> tuple[RingBuffer, RingBuffer]:
    """Return a memory of whole stacks and one of single pictures."""
    if prioritized:
        configs = (PrioritizedBufferConfig(capacity), PrioritizedBufferConfig(capacity, frame_stack=stack))
        whole, once = (PrioritizedBuffer(config, name="train") for config in configs)
        return whole, once
    return (
        RingBuffer(RingBufferConfig(capacity), name="train"),
        RingBuffer(RingBufferConfig(capacity, frame_stack=stack), name="train"),
    )


def contents(memory: RingBuffer, spec: SampleSpec) -> set[bytes]:
    """Return every window there is, as the bytes of its arrays: with equal priorities none is left out."""
    batch = memory.sample(spec._replace(batch_size=2 * len(memory)), np.random.default_rng(0))
    arrays = [batch[key] for key in sorted(batch.keys() - {"/indices", "/generations"})]
    return {b"".join(array[row].tobytes() for array in arrays) for row in range(2 * len(memory))}


def check_equal(whole: RingBuffer, once: RingBuffer, *, seed: int = 1) -> None:
    """Check that both draw the same windows; indices count the rows before the first one too."""
    assert len(whole) == len(once)
    if isinstance(whole, PrioritizedBuffer):  # draws depend on where the rows lie
        for name in ("one step", "both ends", "sequences"):
            assert len(contents(whole, SPECS[name])) == len(whole)
            assert contents(whole, SPECS[name]) == contents(once, SPECS[name])
        return
    for name, spec in SPECS.items():
        expected, found = (memory.sample(spec, np.random.default_rng(seed)) for memory in (whole, once))
        assert expected.keys() == found.keys()
        for key, array in expected.items():
            if key == "/indices":
                assert len(set((found[key] - array).tolist())) == 1
            else:
                assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape), (name, key)
                assert found[key].tobytes() == array.tobytes(), (name, key)


def kept(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as a checkpoint keeps it: a copy."""
    segments = [Segment(s.name, {key: array.copy() for key, array in s.arrays.items()}) for s in state["segments"]]
    return {**state, "segments": LiveSegments(segments)}


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("breaks", [0.0, 0.3])
@pytest.mark.parametrize("capacity", [12, 20, 47, 10_000])  # one chunk exactly; wrapped at odd places; never full
def test_windows_are_those_of_whole_stacks(capacity: int, breaks: float, prioritized: bool) -> None:
    whole, once = pair(capacity, prioritized=prioritized)
    pictures = Pictures(seed=capacity, breaks=breaks)

    for _ in range(12):
        chunk = pictures.chunk()
        whole.store(chunk)
        once.store(chunk)
        check_equal(whole, once)


@pytest.mark.parametrize("stack", [1, 2, 3, 7])
def test_any_number_of_pictures_can_be_a_stack_of_numbers_too(stack: int) -> None:
    for shape in ((), (5,), (3, 1, 2)):
        whole, once = pair(40, stack=stack)
        pictures = Pictures(stack=stack, shape=shape, breaks=0.1)
        for _ in range(9):
            chunk = pictures.chunk()
            whole.store(chunk)
            once.store(chunk)
            check_equal(whole, once)


@pytest.mark.parametrize("stack", [2, 4, 8])
def test_a_memory_that_begins_in_the_middle_of_episodes_knows_their_first_stacks(stack: int) -> None:
    # As after a resume without what the memory held.
    whole, once = pair(30, stack=stack)
    pictures = Pictures(stack=stack, opens=False)

    for _ in range(8):
        chunk = pictures.chunk()
        whole.store(chunk)
        once.store(chunk)
        check_equal(whole, once)


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("chunks", [1, 3, 9, 10, 31])
@pytest.mark.parametrize("capacity", [12, 90, 100, 101, 500])
def test_a_loaded_memory_goes_on_as_one_of_whole_stacks(capacity: int, chunks: int, prioritized: bool) -> None:
    whole, once = pair(100, prioritized=prioritized)
    pictures = Pictures(breaks=0.1)
    for _ in range(chunks):
        chunk = pictures.chunk()
        whole.store(chunk)
        once.store(chunk)
    loaded = pair(capacity, prioritized=prioritized)

    for memory, saved in zip(loaded, (whole, once), strict=True):
        memory.load_state_dict(kept(saved.state_dict()))

    check_equal(*loaded)
    for _ in range(12):
        chunk = pictures.chunk()
        for memory in loaded:
            memory.store(chunk)
        check_equal(*loaded)


def test_pong_takes_a_quarter_of_the_memory() -> None:
    chunk = Pictures(num_envs=8, steps=2, shape=(84, 84)).chunk()
    whole = 100_000 * sum(array[0, 0].nbytes for array in chunk.arrays.values())
    memory = RingBuffer(RingBufferConfig(100_000, frame_stack=4), name="train")
    tracemalloc.start()

    memory.store(chunk)

    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert whole > 2.8e9
    assert 0.25 < taken / whole < 0.255


def test_a_checkpoint_holds_each_picture_once() -> None:
    _, once = pair(1000)
    once.store(Pictures(num_envs=1, steps=100, shape=(84, 84)).chunk())

    saved = sum(array.nbytes for segment in once.state_dict()["segments"] for array in segment.arrays.values())

    assert 104 * 84 * 84 < saved < 104 * (84 * 84 + 50)


def changed(chunk: Chunk, index: tuple[int, ...]) -> Chunk:
    """Return a chunk with another number at a place of its observations."""
    observations = chunk.arrays["/observations/observation"].copy()
    observations[index] ^= 1
    return Chunk({**chunk.arrays, "/observations/observation": observations}, chunk.meta)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("row", [0, 2, 5])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_no_stack_is_refused_by_name_and_place(is_first: bool, row: int, place: int) -> None:
    whole, once = pair(100)
    pictures = Pictures(num_envs=2, steps=5, seed=4)
    if not is_first:
        chunk = pictures.chunk()
        whole.store(chunk)
        once.store(chunk)
    good = pictures.chunk()
    told = r"/memory/train/frame_stack: expected stacks of 4 frames under '/observations/observation', the newest last"

    masks = [*good.arrays["/masks"][1].tolist(), 0.0]
    if place == 3 and row > 0 and masks[row : row + 2] == [1.0, 0.0]:  # the last picture of an episode, or of all
        once.store(changed(good, (1, row, place, 1, 2)))
        return
    with pytest.raises(ConfigError, match=rf"{told} .* found another in row \d of environment 1; set it to 0"):
        once.store(changed(good, (1, row, place, 1, 2)))

    # Nothing of it was written.
    for memory in (whole, once):
        memory.store(good)
    check_equal(whole, once)


@pytest.mark.parametrize("shape", [(3, 2, 3), (), (84,)])
def test_an_observation_of_another_shape_is_refused_before_anything_is_sampled(shape: tuple[int, ...]) -> None:
    _, once = pair(100)
    arrays = {
        "/masks": np.ones((2, 5), np.float32),
        "/observations/camera": np.zeros((2, 5, 4, 2, 3), np.uint8),
        "/observations/joints": np.zeros((2, 5, *shape), np.float32),
    }

    with pytest.raises(
        ConfigError,
        match=r"/memory/train/frame_stack: expected stacks of 4 along the first axis of '/observations/joints', found",
    ):
        once.reserve(arrays)


def test_several_slots_may_be_stacks() -> None:
    whole, once = pair(40)
    pictures = Pictures(breaks=0.2)

    for _ in range(7):
        chunk = pictures.chunk()
        depths = chunk.arrays["/observations/observation"].sum(axis=-1).astype(np.float32)
        both = Chunk({**chunk.arrays, "/observations/depth": depths}, chunk.meta)
        whole.store(both)
        once.store(both)
        check_equal(whole, once)

    assert once.sample(SampleSpec(1), np.random.default_rng(0))["/observations/depth"].shape == (1, 2, 4, 2)


def test_another_number_of_pictures_than_in_the_checkpoint_is_refused() -> None:
    whole, once = pair(100)
    chunk = Pictures().chunk()
    whole.store(chunk)
    once.store(chunk)

    with pytest.raises(UsageError, match=r"/memory/train/frame_stack: expected 0 as in the checkpoint, found 4; start"):
        once.load_state_dict(whole.state_dict())
    with pytest.raises(UsageError, match=r"/memory/train/frame_stack: expected 4 as in the checkpoint, found 0; start"):
        whole.load_state_dict(once.state_dict())


def test_a_memory_without_transitions_says_so() -> None:
    _, once = pair(100)
    once.reserve(Pictures().chunk().arrays)

    with pytest.raises(DigideepError, match="expected real transitions in it, found none"):
        once.sample(SampleSpec(1), np.random.default_rng(0))


def test_a_given_batch_is_filled_without_another_of_its_size() -> None:
    _, once = pair(300)
    once.store(Pictures(num_envs=2, steps=100, shape=(64, 64)).chunk())
    rng = np.random.default_rng(0)
    batch = once.sample(SampleSpec(256, 3), rng)  # sixteen megabytes
    tracemalloc.start()

    again = once.sample(SampleSpec(256, 3), rng, out=batch)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert again is batch
    assert peak < 300_000 < batch["/observations/observation"].nbytes
