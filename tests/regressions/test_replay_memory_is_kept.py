"""What people report of replay memories, each as it must be here: the toy Q-learner through the program."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Ended, checkpoints, differences, read, rows, state
from toys import arguments

from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig, RollBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.memory.rollbuffer import RollBuffer
from digideep.pipeline.checkpoint import CheckpointMeta, CheckpointStore, Component
from digideep.types import Chunk, ChunkMeta, SampleSpec

Run = Callable[..., Ended]

IN_PROCESS = "num_workers=0"


@pytest.fixture
def straight(command: Run, tmp_path: Path) -> Path:
    """A session that was never interrupted."""
    return command(*arguments("toy_q", tmp_path, "straight", IN_PROCESS)).session


def exploration(session: Path) -> list[tuple[float, float, float]]:
    """Return first, least and greatest share of random actions of each epoch."""
    entries = [row["data"]["update/agent/epsilon"] for row in rows(session / "varlog.jsonl")]
    return [(entry["mean"], entry["min"], entry["max"]) for entry in entries]


def test_exploration_goes_on_where_it_stood(command: Run, tmp_path: Path, straight: Path) -> None:
    session = command(*arguments("toy_q", tmp_path, "stopped", IN_PROCESS, "max_exec_iter=2"), expect=75).session
    rows_before = state(session)["agents.agent"]["exploration"]["rows"]

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/max_iter=0")

    shares = exploration(session)
    assert rows_before == 4 * 32 * 4
    assert shares[2][2] < shares[1][1]  # the first one after the resume is below the last one before
    assert shares == exploration(straight)


def test_the_memory_is_not_filled_again_by_a_second_warm_up(command: Run, tmp_path: Path, straight: Path) -> None:
    # The warm-up of 200 rows ends in the second chunk; the stop comes after the third.
    argv = arguments("toy_q", tmp_path, "stopped", IN_PROCESS)
    session = command(*argv, moments={"learnt 3": ["SIGTERM"]}, expect=143).session

    command("--load-checkpoint", str(session), "--resume")

    # In each chunk after the warm-up values were learnt: once in the first epoch, twice in every later one.
    learnt = [row["data"]["update/agent/value_loss"]["num"] for row in rows(session / "varlog.jsonl")]
    assert learnt == [1, 2, 2, 2]
    assert differences(straight, session) == []


def test_every_kind_of_save_holds_the_same_parts(command: Run, tmp_path: Path) -> None:
    argv = arguments("toy_q", tmp_path, "kinds", IN_PROCESS, "keep_last=9", "save_interval=2", "save_every_s=0.000001")
    # By the calendar at 2 and 4, asked for at 3, on the way out at 5, by the clock at 6, and the last one at 8.
    moments = {"learnt 3": ["SIGUSR1"], "learnt 5": ["SIGTERM"]}
    session = command(*argv, moments=moments, expect=143).session
    command("--load-checkpoint", str(session), "--resume")

    found = {}
    for number in checkpoints(session):
        directory = session / "checkpoints" / f"checkpoint-{number}"
        parts = {name.split(".0")[0] for name in (path.name for path in directory.iterdir())}
        keys = {name: sorted(part) for name, part in state(session, number).items() if isinstance(part, dict)}
        found[number] = parts - {"memory.train"}, sorted(keys), keys["memory.train"]
        assert ("memory.train" in parts) == (number > 0)
        total = state(session, number)["memory.train"]["cursor"]["total"]
        assert total == (number * 32 + 1 if number else 0)

    assert {3, 5, 6, 8} <= found.keys()
    assert all(entry == found[8] for entry in found.values()), json.dumps({k: str(v) for k, v in found.items()})


def test_unchanged_segments_are_second_names_of_one_file_and_survive_a_copy(
    command: Run, tmp_path: Path, straight: Path
) -> None:
    argv = arguments("toy_q", tmp_path, "stopped", IN_PROCESS, "max_exec_iter=3", "keep_last=2", "keep_best=0")
    session = command(*argv, expect=75).session
    first, second = (
        {path.name: path.stat().st_ino for path in (session / "checkpoints" / name).glob("memory.*")}
        for name in ("checkpoint-4", "checkpoint-6")
    )
    shared = first.keys() & second.keys()
    assert shared and second.keys() - shared and all(first[name] == second[name] for name in shared)

    copied = tmp_path / "elsewhere" / "copied"
    copied.parent.mkdir()
    shutil.copytree(session, copied)  # each name becomes a file of its own
    shutil.rmtree(session)
    command("--load-checkpoint", str(copied), "--resume", "--trust-session", "--set", "/runner/max_iter=0")

    assert differences(straight, copied) == []


def test_memories_on_disk_and_in_memory_give_the_same_bits_and_leave_no_file(
    command: Run, tmp_path: Path, straight: Path
) -> None:
    argv = arguments("toy_q", tmp_path, "disk", IN_PROCESS, "on_disk=true", "max_exec_iter=2")
    session = command(*argv, expect=75).session
    names = {path.name for path in session.iterdir()}

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/max_iter=0", "/memory/train/on_disk=false")

    assert differences(straight, session) == []
    assert names == {path.name for path in straight.iterdir()} - {"done.lock"}


def test_a_larger_memory_is_a_setting_that_keeps_what_there_was(command: Run, tmp_path: Path) -> None:
    session = command(*arguments("toy_q", tmp_path, "grown", IN_PROCESS, "max_exec_iter=3"), expect=75).session

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/max_iter=0", "/memory/train/capacity=4000")

    # 600 transitions of four environments are 151 rows; two chunks of 32 follow.
    cursor = state(session)["memory.train"]["cursor"]
    assert (cursor["total"], cursor["rows"]) == (151 + 64, 1001)
    assert read(session / "summary.json")["state"] == "done"


PRIORITISED = [
    "/memory/train/type=digideep.memory.config:PrioritizedBufferConfig",
    "/memory/train/frame_stack=2",
    'wrappers=[{"type": "digideep.environment.wrappers.config:FrameStackConfig", "n": 2}]',
]


def test_a_prioritised_memory_of_pictures_goes_on_to_the_same_bits(command: Run, tmp_path: Path) -> None:
    straight = command(*arguments("toy_q", tmp_path, "pictures", IN_PROCESS, *PRIORITISED)).session
    argv = arguments("toy_q", tmp_path, "halved", IN_PROCESS, *PRIORITISED, "max_exec_iter=2")
    session = command(*argv, expect=75).session

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/max_iter=0")

    assert differences(straight, session) == []
    assert state(session)["memory.train"].keys() == {"cursor", "segments", "priorities", "greatest"}
    assert state(session)["memory.train"]["cursor"]["frame_stack"] == 2


FACTS = CheckpointMeta(
    epoch=1, cycle=1, frame=1, episode=1, exactness="exact", parent=None, versions={}, threads={}, device="cpu",
    params_sha256="0" * 64,
)  # fmt: skip


def made_chunk(number: int, *, steps: int = 8, size: int = 30) -> Chunk:
    """Return a chunk that opens episodes, with observations that are stacks of two pictures."""
    rng = np.random.default_rng(number)
    masks = (rng.random((2, steps + 1)) < 0.8).astype(np.float32)
    masks[:, 0] = 0.0
    pictures = rng.integers(256, size=(2, steps + 1, 4), dtype=np.uint8)
    before = np.where(masks[..., None] == 1.0, np.roll(pictures, 1, axis=1), pictures)
    arrays = {
        "/masks": masks,
        "/frames": rng.integers(256, size=(2, steps + 1, size), dtype=np.uint8),
        "/observations/observation": np.stack((before, pictures), axis=2),
    }
    return Chunk(arrays, ChunkMeta(0, 0, 0, 0))


def test_a_save_costs_what_is_new_and_a_load_the_memory_of_one_segment(tmp_path: Path) -> None:
    # Of 2.5 GB of replay memory 17 GB were needed to save it, again and again.
    memory, loaded = (RingBuffer(RingBufferConfig(capacity=20_000), name="train") for _ in range(2))
    chunk = made_chunk(0, steps=500, size=1000)
    for _ in range(25):
        memory.store(chunk)
    loaded.reserve(chunk.arrays, directory=tmp_path)
    store = CheckpointStore(tmp_path / "checkpoints", session_id="one", run_id="first")

    def save(number: int) -> int:
        """Save, and return the bytes that no other checkpoint shares."""
        components = [Component("memory.train", "memory", 1, memory.state_dict())]
        path = store.save(number, components, meta=FACTS._replace(cycle=number), logs={})
        found = [file.stat() for file in path.iterdir() if file.name.startswith("memory")]
        assert sum(entry.st_size for entry in found) > 20_000_000
        return sum(entry.st_size for entry in found if entry.st_nlink == 1)

    first = save(1)
    memory.store(made_chunk(1, steps=5, size=1000))
    tracemalloc.start()

    second = save(2)
    _, peak_of_save = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    saved = CheckpointStore(tmp_path / "checkpoints", session_id="one", run_id="second").load(2)
    loaded.load_state_dict(saved.components["memory.train"])
    _, peak_of_load = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert first > 20_000_000 > 1_500_000 > second > 0
    assert peak_of_save < 3_000_000
    assert peak_of_load - before < 3_000_000
    expected, found = (m.sample(SampleSpec(50, 3), np.random.default_rng(1)) for m in (memory, loaded))
    np.testing.assert_array_equal(found["/frames"], expected["/frames"])


MEMORIES: dict[str, Callable[[], Any]] = {
    "roll": lambda: RollBuffer(RollBufferConfig(), name="train"),
    "ring": lambda: RingBuffer(RingBufferConfig(capacity=40), name="train"),
    "wide ring": lambda: RingBuffer(RingBufferConfig(capacity=4000), name="train"),
    "ring of pictures": lambda: RingBuffer(RingBufferConfig(capacity=40, frame_stack=2), name="train"),
    "prioritised": lambda: PrioritizedBuffer(PrioritizedBufferConfig(capacity=40), name="train"),
    "wide prioritised, of pictures": lambda: PrioritizedBuffer(
        PrioritizedBufferConfig(capacity=4000, frame_stack=2), name="train"
    ),
}


@pytest.mark.parametrize("order", ["load, then reserve", "reserve, then load"])
@pytest.mark.parametrize("kind", MEMORIES)
def test_every_memory_comes_back_from_a_checkpoint_whatever_is_made_first(
    kind: str, order: str, tmp_path: Path
) -> None:
    memory, loaded = MEMORIES[kind](), MEMORIES[kind]()
    for number in range(7):
        memory.store(made_chunk(number))
        if "prioritised" in kind:
            batch = memory.sample(SampleSpec(20), np.random.default_rng(number))
            memory.update_priorities(batch["/indices"], np.arange(1.0, 21.0), batch["/generations"])
    store = CheckpointStore(tmp_path / "checkpoints", session_id="one", run_id="first")
    store.save(1, [Component("memory.train", "memory", 1, memory.state_dict())], meta=FACTS, logs={})
    saved = CheckpointStore(tmp_path / "checkpoints", session_id="one", run_id="second").load(1).components

    steps = [lambda: loaded.load_state_dict(saved["memory.train"])]
    steps.insert(order == "load, then reserve", lambda: loaded.reserve(made_chunk(0).arrays, directory=tmp_path))
    for step in steps:
        step()

    for each in (memory, loaded):
        each.store(made_chunk(7))
    expected, found = (m.sample(SampleSpec(50, 3), np.random.default_rng(1)) for m in (memory, loaded))
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array)
