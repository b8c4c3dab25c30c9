"""What every memory promises; a new one is added to MEMORIES."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digideep.errors import CheckpointError, DigideepError, ShapeError
from digideep.memory.base import Memory
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig, RollBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.memory.rollbuffer import RollBuffer
from digideep.types import Chunk, ChunkMeta, SampleSpec

STACK = 3  # counts in an observation


def ring(capacity: int, **fields: Any) -> Callable[[], Memory]:
    return lambda: RingBuffer(RingBufferConfig(capacity=capacity, **fields), name="train")


def prioritized(capacity: int, **fields: Any) -> Callable[[], Memory]:
    return lambda: PrioritizedBuffer(PrioritizedBufferConfig(capacity=capacity, **fields), name="train")


MEMORIES: dict[str, Callable[[], Memory]] = {
    "roll": lambda: RollBuffer(RollBufferConfig(), name="train"),
    "ring": ring(1000),
    "ring, full with one chunk": ring(36),
    "ring, on disk": ring(50, on_disk=tempfile.gettempdir()),
    "ring, frames once": ring(36, frame_stack=STACK),
    "prioritised": prioritized(1000),
    "prioritised, full with one chunk": prioritized(36),
    "prioritised, frames once, on disk": prioritized(50, frame_stack=STACK, on_disk=tempfile.gettempdir()),
}


@pytest.fixture(params=MEMORIES)
def make(request: pytest.FixtureRequest) -> Callable[[], Memory]:
    return MEMORIES[request.param]


def counting_chunk(lengths: list[list[int]], *, steps: int, start: int = 0) -> Chunk:
    """Environments that count up from `start` and by one a step, with one unreal row after each episode.

    The observation of row t is a stack of counts, the newest of them t + start, as FrameStack makes it; `/ranks` is the
    environment, rewards repeat the count, and so does the hidden state, with the environment.
    """
    rows = (steps + 1, len(lengths))
    slab = {
        "/observations/observation": np.zeros((*rows, STACK), np.float32),
        "/ranks": np.zeros(rows, np.int64),
        "/rewards": np.zeros(rows, np.float32),
        "/masks": np.ones(rows, np.float32),
        "/agents/agent/hidden_state/h": np.zeros((*rows, 2), np.float32),
    }
    for env, episodes in enumerate(lengths):
        counts = np.arange(start, start + steps + 1)
        slab["/rewards"][:, env] = counts
        slab["/ranks"][:, env] = env
        opens = np.cumsum([0, *(length + 1 for length in episodes)])
        slab["/masks"][opens[opens <= steps], env] = 0.0
        first = start + opens[np.searchsorted(opens, np.arange(steps + 1), side="right") - 1]
        for place in range(STACK):
            slab["/observations/observation"][:, env, place] = np.maximum(counts - STACK + 1 + place, first)
        slab["/agents/agent/hidden_state/h"][:, env] = np.stack((counts, np.full(steps + 1, env)), axis=1)
    return Chunk({key: value.swapaxes(0, 1) for key, value in slab.items()}, ChunkMeta(0, 0, 0, 0))


def sample(memory: Memory, *, n_step: int = 1, sequence: int = 0, size: int = 500, seed: int = 0) -> Any:
    return memory.sample(SampleSpec(size, n_step, sequence), np.random.default_rng(seed))


LENGTHS = [[3, 1, 1, 4, 20], [5, 5, 20], [30]]  # the second episode of the second environment ends at T-1


def test_the_last_chunk_is_the_newest_and_is_not_copied(make: Callable[[], Memory]) -> None:
    memory = make()
    first, second = counting_chunk(LENGTHS, steps=12), counting_chunk(LENGTHS, steps=12, start=100)

    memory.store(first)
    memory.store(second)

    assert memory.last_chunk().arrays["/rewards"][0, 0] == 100.0
    assert memory.last_chunk() is second


def test_windows_begin_with_every_real_transition_and_no_other(make: Callable[[], Memory]) -> None:
    memory = make()
    memory.store(counting_chunk(LENGTHS, steps=12))

    batch = sample(memory, size=3000)

    starts = {(rank, int(row)) for rank, row in zip(batch["/ranks"][:, 0], batch["/rewards"][:, 0], strict=True)}
    unreal = {(0, 3), (0, 5), (0, 7), (1, 5), (1, 11)}
    assert starts == {(env, row) for env in range(3) for row in range(12)} - unreal
    assert (batch["/weights"][:, 0] == 1.0).all() and (batch["/masks"][:, 1] == 1.0).all()


@pytest.mark.parametrize(("n_step", "sequence", "window"), [(1, 0, 2), (3, 0, 4), (2, 5, 6), (1, 20, 21)])
def test_every_window_counts_up_in_one_environment_until_the_newest_row(
    make: Callable[[], Memory], n_step: int, sequence: int, window: int
) -> None:
    memory = make()
    memory.store(counting_chunk(LENGTHS, steps=12))

    batch = sample(memory, n_step=n_step, sequence=sequence)

    rows = batch["/observations/observation"][:, :, -1]
    assert rows.shape == (500, window) == batch["/weights"].shape
    np.testing.assert_array_equal(rows, np.minimum(rows[:, :1] + np.arange(window), 12.0))
    assert (batch["/ranks"] == batch["/ranks"][:, :1]).all()


def test_rows_inside_a_window_have_weight_zero_exactly_where_they_are_not_real(make: Callable[[], Memory]) -> None:
    memory = make()
    chunk = counting_chunk(LENGTHS, steps=12)
    memory.store(chunk)

    batch = sample(memory, sequence=6)

    for ranks, rows, weights in zip(batch["/ranks"], batch["/rewards"], batch["/weights"], strict=True):
        for rank, row, weight in zip(ranks, rows.astype(int), weights, strict=True):
            real = row < 12 and chunk.arrays["/masks"][rank, row + 1] == 1.0
            assert weight == float(real)


def test_a_window_ends_at_the_newest_row_as_at_an_unreal_one(make: Callable[[], Memory]) -> None:
    memory = make()
    memory.store(counting_chunk([[30]], steps=2))

    batch = sample(memory, n_step=4, size=50)

    picked = batch["/rewards"][:, 0] == 1.0
    np.testing.assert_array_equal(batch["/rewards"][picked][0], [1.0, 2.0, 2.0, 2.0, 2.0])
    np.testing.assert_array_equal(batch["/masks"][picked][0], [1.0, 1.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(batch["/weights"][picked][0], [1.0, 0.0, 0.0, 0.0, 0.0])


def test_observations_keep_the_counts_before_them_and_never_those_of_another_episode(
    make: Callable[[], Memory],
) -> None:
    memory, chunk = make(), counting_chunk(LENGTHS, steps=12)
    memory.store(chunk)

    batch = sample(memory, sequence=6)

    expected = chunk.arrays["/observations/observation"][batch["/ranks"], batch["/rewards"].astype(int)]
    np.testing.assert_array_equal(batch["/observations/observation"], expected)


def test_a_sequence_begins_with_the_hidden_state_of_its_first_row(make: Callable[[], Memory]) -> None:
    memory = make()
    memory.store(counting_chunk(LENGTHS, steps=12))

    batch = sample(memory, sequence=6)

    hidden = batch["/agents/agent/hidden_state/h"]
    assert hidden.shape == (500, 7, 2)
    np.testing.assert_array_equal(hidden[:, 0, 0], batch["/rewards"][:, 0])
    np.testing.assert_array_equal(hidden[:, 0, 1], batch["/ranks"][:, 0])


@pytest.mark.parametrize(("n_step", "sequence"), [(1, 0), (3, 0), (1, 5), (20, 0)])
def test_both_ends_of_a_window_are_where_it_begins_and_where_its_real_transitions_lead_to(
    make: Callable[[], Memory], n_step: int, sequence: int
) -> None:
    memory = make()
    memory.store(counting_chunk(LENGTHS, steps=12))
    spec = SampleSpec(500, n_step, sequence)

    whole = memory.sample(spec, np.random.default_rng(3))
    batch = memory.sample(spec._replace(ends=True), np.random.default_rng(3))

    assert batch["/observations/observation"].shape == (500, 2, STACK)
    for row, weights in enumerate(whole["/weights"].tolist()):
        last = weights[:-1].index(0.0) if 0.0 in weights[:-1] else len(weights) - 1
        expected = whole["/observations/observation"][row, [0, last]]
        np.testing.assert_array_equal(batch["/observations/observation"][row], expected)
    for key in whole.keys() - {"/observations/observation"}:
        np.testing.assert_array_equal(batch[key], whole[key])


def test_only_the_keys_that_are_asked_for_are_given(make: Callable[[], Memory]) -> None:
    memory = make()
    memory.store(counting_chunk(LENGTHS, steps=12))
    spec = SampleSpec(50, n_step=3)

    whole = memory.sample(spec, np.random.default_rng(3))
    batch = memory.sample(spec._replace(keys=("/rewards", "/ranks")), np.random.default_rng(3))

    assert batch.keys() == {"/rewards", "/ranks", "/weights", "/indices", "/generations"}
    for key, array in batch.items():
        np.testing.assert_array_equal(array, whole[key])
    masks = memory.sample(spec._replace(keys=("/masks",)), np.random.default_rng(3))["/masks"]
    np.testing.assert_array_equal(masks, whole["/masks"])
    with pytest.raises(ShapeError, match=r"memory 'train': expected one of the keys \['/agents.* found '/colour'"):
        memory.sample(spec._replace(keys=("/rewards", "/colour")), np.random.default_rng(3))


def test_sampling_changes_nothing_in_the_memory(make: Callable[[], Memory]) -> None:
    memory = make()
    chunk = counting_chunk(LENGTHS, steps=12)
    before = {key: array.copy() for key, array in chunk.arrays.items()}
    memory.store(chunk)

    batch = sample(memory, sequence=20)
    batch["/rewards"][:] = -1.0

    for key, array in before.items():
        np.testing.assert_array_equal(memory.last_chunk().arrays[key], array)
    assert (sample(memory, sequence=20)["/rewards"] >= 0.0).all()


def test_the_same_generator_gives_the_same_batch_and_out_is_filled_in_place(make: Callable[[], Memory]) -> None:
    memory = make()
    memory.store(counting_chunk(LENGTHS, steps=12))
    first, other = sample(memory, n_step=3, size=20), sample(memory, n_step=3, size=20, seed=1)
    assert not np.array_equal(first["/indices"], other["/indices"])
    kept = dict(other)

    again = memory.sample(SampleSpec(20, 3), np.random.default_rng(0), out=other)

    assert again is other
    for key, array in first.items():
        assert again[key] is kept[key]
        np.testing.assert_array_equal(again[key], array)


def test_making_room_stores_nothing_and_checks_the_chunk_to_come(make: Callable[[], Memory], tmp_path: Path) -> None:
    memory, chunk = make(), counting_chunk(LENGTHS, steps=12)

    memory.reserve(chunk.arrays, directory=tmp_path)

    with pytest.raises(DigideepError, match="expected a chunk, found none"):
        memory.last_chunk()
    with pytest.raises(ShapeError, match="expected the key '/masks'"):
        memory.reserve({"/rewards": chunk.arrays["/rewards"]}, directory=tmp_path)
    memory.store(chunk)
    assert memory.last_chunk() is chunk


def test_generations_tell_windows_of_different_chunks_apart(make: Callable[[], Memory]) -> None:
    memory = make()
    memory.store(counting_chunk(LENGTHS, steps=12))
    first = sample(memory, size=4)["/generations"]
    memory.store(counting_chunk(LENGTHS, steps=12))

    second = sample(memory, size=4)["/generations"]

    assert first.shape == (4,) and len(set(first.tolist())) == 1
    assert (second > first).all()


def test_a_loaded_memory_behaves_as_the_saved_one_from_the_next_chunk_on(make: Callable[[], Memory]) -> None:
    memory, loaded = make(), make()
    memory.store(counting_chunk(LENGTHS, steps=12))

    loaded.load_state_dict(memory.state_dict())
    for each in (memory, loaded):
        each.store(counting_chunk(LENGTHS, steps=12, start=50))

    expected, found = sample(memory, n_step=2), sample(loaded, n_step=2)
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array)


def test_a_state_of_another_kind_of_memory_is_refused(make: Callable[[], Memory]) -> None:
    memory = make()

    for state in ({}, {**memory.state_dict(), "colour": 1}):
        with pytest.raises(CheckpointError, match=r"memory.train: expected the parts .*was /memory/train/type changed"):
            memory.load_state_dict(state)


def test_chunks_that_break_the_law_are_refused_with_key_and_shape(make: Callable[[], Memory]) -> None:
    memory, chunk = make(), counting_chunk(LENGTHS, steps=12)
    short = {**chunk.arrays, "/rewards": chunk.arrays["/rewards"][:, :-1]}
    without = {key: array for key, array in chunk.arrays.items() if key != "/masks"}

    with pytest.raises(ShapeError, match=r"'/rewards' has shape \(3, 12\), expected \(3, 13, ...\)"):
        memory.store(Chunk(short, chunk.meta))
    with pytest.raises(ShapeError, match="expected the key '/masks'"):
        memory.store(Chunk(without, chunk.meta))
    with pytest.raises(ShapeError, match=r"'/masks' has shape \(3, 1\)"):
        memory.store(Chunk({key: array[:, :1] for key, array in chunk.arrays.items()}, chunk.meta))


def test_a_memory_without_real_transitions_says_so(make: Callable[[], Memory]) -> None:
    memory, chunk = make(), counting_chunk(LENGTHS, steps=12)
    with pytest.raises(DigideepError, match="expected a chunk, found none"):
        memory.last_chunk()
    chunk.arrays["/masks"][:] = 0.0
    chunk.arrays["/observations/observation"][:] = 5.0
    memory.store(chunk)

    with pytest.raises(DigideepError, match=r"expected real transitions in .*, found none"):
        sample(memory)
