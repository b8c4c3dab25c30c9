"""The prioritised memory draws what a dictionary of priorities would, and keeps it through saves and loads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_priority import EveryPriority
from made_chunks import Stream

from digideep.errors import (
    CheckpointError,
    NonFiniteError,
    NumbersError,
    ShapeError,
    UsageError,
)
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.types import Chunk, ChunkMeta, LiveSegments, SampleSpec, Segment
from digideep.utility.node import build, node


def prioritized(capacity: int, **fields: Any) -> PrioritizedBuffer:
    return PrioritizedBuffer(PrioritizedBufferConfig(capacity=capacity, **fields), name="train")


def filled(capacity: int, chunks: int, *, seed: int = 0) -> tuple[PrioritizedBuffer, Stream]:
    """Return a memory whose priorities were changed after each chunk, and the stream that goes on."""
    memory, stream, rng = prioritized(capacity), Stream(num_envs=3, steps=40, seed=seed), np.random.default_rng(seed)
    for _ in range(chunks):
        memory.store(stream.chunk())
        batch = memory.sample(SampleSpec(64), rng)
        memory.update_priorities(batch["/indices"], rng.random(64), batch["/generations"])
    return memory, stream


def kept(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as a checkpoint keeps it: a copy."""
    segments = [Segment(s.name, {key: array.copy() for key, array in s.arrays.items()}) for s in state["segments"]]
    return {**state, "segments": LiveSegments(segments)}


def check_equal(one: PrioritizedBuffer, other: PrioritizedBuffer, *, indices: bool = True) -> None:
    for spec in (SampleSpec(200, beta=0.5), SampleSpec(200, 3), SampleSpec(200, 1, 7)):
        expected, found = (memory.sample(spec, np.random.default_rng(7)) for memory in (one, other))
        assert expected.keys() == found.keys()
        for key, array in expected.items():
            if indices or key != "/indices":
                assert found[key].tobytes() == array.tobytes(), key


def test_a_node_builds_the_memory_by_its_name() -> None:
    memory = build(node(PrioritizedBufferConfig, capacity=50), where="/memory/train", name="train")

    assert isinstance(memory, PrioritizedBuffer) and len(memory) == 0


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("breaks", [0.0, 0.3])
@pytest.mark.parametrize("capacity", [12, 20, 47, 10_000])  # one chunk exactly; wrapped at odd places; never full
def test_draws_are_those_of_a_dictionary_of_priorities(
    capacity: int, breaks: float, on_disk: bool, tmp_path: Path
) -> None:
    stream, rng = Stream(num_envs=3, steps=4, seed=capacity, breaks=breaks), np.random.default_rng(capacity)
    memory = prioritized(capacity, on_disk=str(tmp_path) if on_disk else False)
    every = EveryPriority(num_envs=3, rows=capacity // 3 + 1)

    for number in range(14):
        chunk = stream.chunk()
        memory.store(chunk)
        every.store(chunk)
        batch = memory.sample(SampleSpec(60), np.random.default_rng(number))
        assert batch["/indices"].tolist() == every.draw(60, np.random.default_rng(number))
        assert len(every.priorities) == len(memory)
        values = rng.integers(1, 40, size=60) / 8.0  # their sums are exact
        memory.update_priorities(batch["/indices"], values, batch["/generations"])
        every.update(batch["/indices"], values)
        again = memory.sample(SampleSpec(60), np.random.default_rng(99))["/indices"]
        assert again.tolist() == every.draw(60, np.random.default_rng(99))


@pytest.mark.parametrize("breaks", [0.0, 0.5])
def test_priorities_of_what_was_overwritten_or_taken_out_since_are_left_alone(breaks: float) -> None:
    # An agent that learns beside the sampling tells its errors some chunks late.
    stream, rng = Stream(num_envs=3, steps=4, seed=3, breaks=breaks), np.random.default_rng(0)
    memory, every = prioritized(30), EveryPriority(num_envs=3, rows=11)
    late: list[Any] = []
    left = 0

    for number in range(40):
        chunk = stream.chunk()
        memory.store(chunk)
        every.store(chunk)
        late.append(memory.sample(SampleSpec(20), rng))
        batch = late.pop(0) if len(late) > number % 4 else late[0]
        values = rng.integers(1, 40, size=20) / 8.0
        left += sum((i % 3, i // 3) not in every.priorities for i in batch["/indices"].tolist())
        memory.update_priorities(batch["/indices"], values, batch["/generations"])
        every.update(batch["/indices"], values)
        drawn = memory.sample(SampleSpec(60), np.random.default_rng(number))["/indices"]
        assert drawn.tolist() == every.draw(60, np.random.default_rng(number))

    assert left > 20


def test_transitions_are_drawn_as_often_as_their_priorities_say() -> None:
    stream, every = Stream(num_envs=3, steps=4, seed=5), EveryPriority(num_envs=3, rows=11)
    memory, rng = prioritized(30), np.random.default_rng(2)
    for _ in range(7):
        chunk = stream.chunk()
        memory.store(chunk)
        every.store(chunk)
    indices = np.array(sorted(every.chances()))
    values = rng.uniform(0.1, 3.0, size=len(indices))
    memory.update_priorities(indices, values, np.full(len(indices), 7))
    every.update(indices, values)

    counts = Counter(index for _ in range(400) for index in memory.sample(SampleSpec(50), rng)["/indices"].tolist())

    chances = every.chances()
    assert counts.keys() == chances.keys()
    statistic = sum((counts[index] - 20_000 * p) ** 2 / (20_000 * p) for index, p in chances.items())
    assert statistic < 2 * len(chances)  # of as many degrees of freedom, less one
    assert max(chances.values()) > 10 * min(chances.values())


def test_importance_weights_make_up_for_the_draws() -> None:
    stream, memory = Stream(num_envs=3, steps=40), prioritized(1000)
    memory.store(stream.chunk())
    indices = np.unique(memory.sample(SampleSpec(500), np.random.default_rng(0))["/indices"])
    values = 0.5 + np.arange(len(indices)) % 4
    memory.update_priorities(indices, values, np.full(len(indices), 1))
    priority = dict(zip(indices.tolist(), values.tolist(), strict=True))
    total = sum(priority.values())

    for beta in (0.0, 0.4, 1.0):
        batch = memory.sample(SampleSpec(64, beta=beta), np.random.default_rng(1))
        chances = np.array([priority[index] / total for index in batch["/indices"].tolist()])
        expected = (1.0 / (len(memory) * chances)) ** beta
        np.testing.assert_allclose(batch["/importance"], expected / expected.max(), rtol=1e-6)
        assert batch["/importance"].dtype == np.float32 and batch["/importance"].max() == 1.0


def test_with_the_whole_correction_a_weighted_mean_is_that_of_uniform_draws() -> None:
    chunk, memory = Stream(num_envs=3, steps=40).chunk(), prioritized(1000)
    memory.store(chunk)
    rewards = np.sign(chunk.arrays["/rewards"])
    real = chunk.arrays["/masks"][:, 1:] == 1.0
    envs, rows = np.nonzero(real)
    memory.update_priorities(rows * 3 + envs, 2.5 + 2.0 * rewards[envs, rows], np.full(len(rows), 1))

    batches = [memory.sample(SampleSpec(256, beta=1.0), np.random.default_rng(seed)) for seed in range(40)]

    weights = np.concatenate([batch["/importance"] for batch in batches])
    drawn = np.sign(np.concatenate([batch["/rewards"][:, 0] for batch in batches]))
    uniform = float(rewards[envs, rows].mean())
    assert np.average(drawn, weights=weights) == pytest.approx(uniform, abs=0.02)
    assert drawn.mean() > uniform + 0.5


def test_importance_is_given_where_an_exponent_is_and_never_left_from_before() -> None:
    memory, _ = filled(1100, 2)
    rng = np.random.default_rng(0)

    batch = memory.sample(SampleSpec(8, beta=0.5), rng)
    again = memory.sample(SampleSpec(8), rng, out=batch)

    assert again is batch and "/importance" not in batch
    assert "/importance" in memory.sample(SampleSpec(8, beta=0.0), rng, out=batch)
    ring = RingBuffer(RingBufferConfig(1000), name="train")
    ring.store(Stream().chunk())
    assert "/importance" not in ring.sample(SampleSpec(8, beta=0.5), rng)


def test_new_transitions_have_the_greatest_priority_so_far() -> None:
    memory, stream = prioritized(12), Stream(num_envs=3, steps=4, seed=1)
    memory.store(stream.chunk())
    batch = memory.sample(SampleSpec(20), np.random.default_rng(0))
    memory.update_priorities(batch["/indices"], np.full(20, 7.0), batch["/generations"])
    assert memory.state_dict()["greatest"] == 7.0
    for _ in range(3):  # what had it is gone
        memory.store(stream.chunk())
        batch = memory.sample(SampleSpec(20), np.random.default_rng(0))
        memory.update_priorities(batch["/indices"], np.full(20, 0.5), batch["/generations"])

    memory.store(stream.chunk())

    priorities = memory.state_dict()["priorities"]
    assert set(priorities[priorities > 0].tolist()) <= {0.5, 7.0} and 7.0 in priorities


@pytest.mark.parametrize(
    ("values", "error", "found"),
    [
        ([1.0, float("nan"), 2.0], NonFiniteError, "found nan at 1, 1 such of 3"),
        ([float("inf"), 1.0, float("inf")], NonFiniteError, "found inf at 0, 2 such of 3"),
        ([1.0, 2.0, -0.5], NumbersError, "found -0.5 at 2, 1 such of 3"),
        ([1.0, 1e300, 1.0], NumbersError, "found 1e"),
    ],
)
def test_values_that_are_no_priorities_are_refused_in_one_line(
    values: list[float], error: type[NumbersError], found: str
) -> None:
    memory, _ = filled(1100, 1)
    batch = memory.sample(SampleSpec(3), np.random.default_rng(0))
    before = memory.state_dict()

    with pytest.raises(error, match=r"^memory 'train': expected priorities from 0 to 1e\+200, ") as raised:
        memory.update_priorities(batch["/indices"], np.array(values), batch["/generations"])

    assert found in str(raised.value) and "\n" not in str(raised.value) and raised.type is error
    np.testing.assert_array_equal(memory.state_dict()["priorities"], before["priorities"])
    assert memory.state_dict()["greatest"] == before["greatest"]


def test_as_many_priorities_as_indices_are_expected() -> None:
    memory, _ = filled(1100, 1)
    batch = memory.sample(SampleSpec(3), np.random.default_rng(0))

    with pytest.raises(ShapeError, match=r"expected as many priorities as indices \(3,\), found \(2,\)"):
        memory.update_priorities(batch["/indices"], np.ones(2), batch["/generations"])


def without_priorities(memory: PrioritizedBuffer) -> np.ndarray[Any, Any]:
    """Set all priorities of a memory of one chunk to 0 and return the indices of its transitions."""
    every = np.unique(memory.sample(SampleSpec(5000), np.random.default_rng(0))["/indices"])
    assert len(every) == len(memory)
    memory.update_priorities(every, np.zeros(len(every)), np.ones(len(every)))
    return every


def test_a_priority_of_zero_is_not_drawn_where_another_one_has_more() -> None:
    memory, _ = filled(1100, 1)
    every = without_priorities(memory)

    memory.update_priorities(every[:1], np.full(1, 0.1), np.ones(1))

    assert set(memory.sample(SampleSpec(50), np.random.default_rng(0))["/indices"].tolist()) == {every[0]}


def test_without_a_priority_above_zero_every_transition_is_equally_likely() -> None:
    memory, _ = filled(1100, 1)
    every = without_priorities(memory)
    rng = np.random.default_rng(1)

    batches = [memory.sample(SampleSpec(500, beta=0.5), rng) for _ in range(40)]

    counts = Counter(index for batch in batches for index in batch["/indices"].tolist())
    assert counts.keys() == set(every.tolist())
    expected = 20_000 / len(every)
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 2 * len(every)
    assert all((batch["/importance"] == 1.0).all() and batch["/importance"].dtype == np.float32 for batch in batches)
    assert "/importance" not in memory.sample(SampleSpec(500), rng, out=batches[0])


def test_a_loaded_memory_without_priorities_draws_the_same_bits_as_the_saved_one() -> None:
    memory, stream = filled(1100, 1)
    every = without_priorities(memory)
    loaded = prioritized(1100)

    loaded.load_state_dict(kept(memory.state_dict()))

    check_equal(memory, loaded)
    for each in (memory, loaded):
        each.update_priorities(every[:9], np.arange(9.0), np.ones(9))
    check_equal(memory, loaded)
    chunk = stream.chunk()
    for each in (memory, loaded):
        each.store(chunk)
    check_equal(memory, loaded)


# The rings have 367 rows in blocks of 52: before the first block is full, before the ring is, and wrapped at
# several places.
@pytest.mark.parametrize("chunks", [0, 1, 5, 9, 10, 14, 19, 31])
def test_a_loaded_memory_draws_the_same_bits_as_the_saved_one(chunks: int) -> None:
    memory, stream = filled(1100, chunks)
    loaded = prioritized(1100)

    loaded.load_state_dict(kept(memory.state_dict()))

    rng = np.random.default_rng(1)
    for _ in range(12):
        chunk = stream.chunk()
        for each in (memory, loaded):
            each.store(chunk)
        check_equal(memory, loaded)
        batch = memory.sample(SampleSpec(64), rng)
        values = rng.random(64) * 2
        for each in (memory, loaded):
            each.update_priorities(batch["/indices"], values, batch["/generations"])
        check_equal(memory, loaded)
        assert memory.state_dict()["greatest"] == loaded.state_dict()["greatest"]


def test_a_saved_state_is_not_touched_by_what_comes_after() -> None:
    memory, stream = filled(1100, 5)
    state = memory.state_dict()
    before = state["priorities"].copy()

    memory.store(stream.chunk())
    batch = memory.sample(SampleSpec(64), np.random.default_rng(0))
    memory.update_priorities(batch["/indices"], np.full(64, 3.0), batch["/generations"])

    np.testing.assert_array_equal(state["priorities"], before)


@pytest.mark.parametrize("chunks", [4, 9, 31])
@pytest.mark.parametrize("capacity", [120, 600, 1101, 5000])
def test_with_another_capacity_the_newest_transitions_keep_their_priorities(chunks: int, capacity: int) -> None:
    memory, stream, rng = prioritized(1100), Stream(num_envs=3, steps=40), np.random.default_rng(0)
    every = EveryPriority(num_envs=3, rows=min(1100, capacity) // 3 + 1)
    for _ in range(chunks):
        chunk = stream.chunk()
        memory.store(chunk)
        every.store(chunk)
        batch = memory.sample(SampleSpec(64), rng)
        values = rng.integers(1, 40, size=64) / 8.0
        memory.update_priorities(batch["/indices"], values, batch["/generations"])
        every.update(batch["/indices"], values)
    loaded = prioritized(capacity)

    loaded.load_state_dict(kept(memory.state_dict()))

    # Rows are numbered anew: the first one that is kept is row 0, or stays what it was.
    oldest = max(0, 40 * chunks + 1 - min(1100, capacity) // 3 - 1)
    shift = 0 if 40 * chunks + 1 == loaded.state_dict()["cursor"]["total"] else oldest
    priorities = loaded.state_dict()["priorities"]
    expected = {((row - shift) % loaded.state_dict()["cursor"]["rows"], env): value
                for (env, row), value in every.priorities.items()}  # fmt: skip
    found = {(int(place), int(env)): float(priorities[place, env]) for place, env in np.argwhere(priorities > 0)}
    assert found == expected
    again = prioritized(capacity)
    loaded.store(stream.chunk())
    again.load_state_dict(kept(loaded.state_dict()))
    check_equal(loaded, again)


def test_indices_drawn_before_a_load_name_other_rows_and_are_left_alone() -> None:
    memory, stream = filled(1100, 31)
    batch = memory.sample(SampleSpec(64), np.random.default_rng(0))
    small, _ = filled(1100, 40, seed=3)
    later = small.sample(SampleSpec(64), np.random.default_rng(0))

    small.load_state_dict(kept(memory.state_dict()))
    small.store(stream.chunk())
    before = small.state_dict()["priorities"]
    small.update_priorities(later["/indices"] % 300 + 3 * (31 * 40 - 200), np.full(64, 9.0), later["/generations"])
    np.testing.assert_array_equal(small.state_dict()["priorities"], before)

    small.update_priorities(batch["/indices"], np.full(64, 9.0), batch["/generations"])
    assert 9.0 in small.state_dict()["priorities"]


def test_what_is_no_state_of_priorities_is_refused() -> None:
    memory, _ = filled(1100, 9)
    good = kept(memory.state_dict())
    priorities = good["priorities"]
    ring = RingBuffer(RingBufferConfig(1100), name="train")
    for broken in (
        {"priorities": priorities[:-1]},
        {"priorities": priorities.astype(np.float32)},
        {"priorities": priorities - 1.0},
        {"priorities": priorities * np.nan},
        {"priorities": [1.0]},
        {"greatest": float("inf")},
        {"greatest": -1.0},
    ):
        with pytest.raises(CheckpointError, match=r"memory.train: expected priorities .* found others; take another"):
            prioritized(1100).load_state_dict({**good, **broken})
    for loading, state in ((ring, good), (memory, ring.state_dict())):
        with pytest.raises(CheckpointError, match=r"memory.train: expected the parts .*was /memory/train/type changed"):
            loading.load_state_dict(state)


def test_a_batch_may_be_larger_than_the_memory() -> None:
    memory = prioritized(12)
    masks = np.array([[0.0, 1.0, 0.0, 0.0]], np.float32)
    memory.store(Chunk({"/masks": masks, "/row": np.arange(4)[None]}, ChunkMeta(0, 0, 0, 0)))

    batch = memory.sample(SampleSpec(30, 2), np.random.default_rng(0))

    assert batch["/row"].tolist() == [[0, 1, 2]] * 30


def test_priorities_need_room_in_memory_wherever_the_rows_lie(tmp_path: Path) -> None:
    config = PrioritizedBufferConfig(capacity=10**11, on_disk=str(tmp_path))
    memory = PrioritizedBuffer(config, name="train")

    with pytest.raises(UsageError, match=r"/memory/train/capacity: expected at most the memory .* GB; lower it$"):
        config.check_room(num_envs=3, n_steps=4, where="/memory/train")
    with pytest.raises(UsageError, match=r"; lower it$"):
        memory.reserve(Stream().chunk().arrays)
    assert list(tmp_path.iterdir()) == []
