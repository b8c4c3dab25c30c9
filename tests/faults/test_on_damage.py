"""Damage to a replay memory is shared by many checkpoints: told by name, and the memory lost only where that is set."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, checkpoints, differences, manifest, read, rows, state
from toys import arguments

Run = Callable[..., Ended]

DROP = ["--set", "/memory/train/on_damage=drop"]


@pytest.fixture
def stopped(command: Run, tmp_path: Path) -> Path:
    """A session of four epochs that stopped after three; its two checkpoints, 4 and 6, share parts of the memory."""
    sets = ["num_workers=0", "keep_last=2", "keep_best=0", "capacity=600", "max_exec_iter=3"]
    session = command(*arguments("toy_q", tmp_path, "stopped", *sets), expect=75).session
    assert checkpoints(session) == [4, 6]
    return session


def memory_files(session: Path, number: int) -> dict[str, Path]:
    directory = session / "checkpoints" / f"checkpoint-{number}"
    return {path.name: path for path in sorted(directory.glob("memory.train.*"))}


def damage(path: Path) -> None:
    """Change one bit, in the file itself and so under each of its names."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    with open(path, "r+b") as file:
        file.write(content)


def damage_what_is_shared(session: Path) -> str:
    shared = memory_files(session, 4).keys() & memory_files(session, 6).keys()
    name = min(shared)
    damage(memory_files(session, 6)[name])
    return name


def test_A6_damage_to_a_memory_in_every_checkpoint_is_exit_5_with_its_name_and_the_setting(
    command: Run, stopped: Path
) -> None:
    name = damage_what_is_shared(stopped)

    ended = command("--load-checkpoint", str(stopped), "--resume", expect=5)

    error = ended.err.splitlines()[-1]
    assert error.startswith("digideep: error: ")
    assert name in error and "checkpoint-4" in error and "checkpoint-6" in error
    assert "the memory 'train'" in error and '/memory/train/on_damage to "drop"' in error
    assert ended.saved == [] and checkpoints(stopped) == [4, 6]


def test_A6_with_drop_a_session_goes_on_without_the_memory_and_says_so_from_then_on(
    command: Run, stopped: Path
) -> None:
    damage_what_is_shared(stopped)
    before = state(stopped)

    ended = command("--load-checkpoint", str(stopped), "--resume", *DROP)

    assert ended.err.count("goes on without what was in the memory 'train'") == 1
    assert ended.saved[-1] == "checkpoint-8"
    assert manifest(stopped)["exactness"] == "none (memory)"
    after = state(stopped)
    # Two chunks of 32 steps and the row that completes them: the memory began anew, everything else went on.
    assert after["memory.train"]["cursor"]["total"] == 65
    assert before["memory.train"]["cursor"]["total"] == 6 * 32 + 1
    assert after["agents.agent"]["exploration"]["rows"] == 8 * 32 * 4
    assert read(stopped / "summary.json")["exactness"] == "none (memory)"
    varlog = rows(stopped / "varlog.jsonl")
    assert [row["meta"]["epoch"] for row in varlog] == [1, 2, 3, 4]
    assert varlog[-1]["data"]["update/agent/value_loss"]["num"] == 2  # no second warm-up: both chunks were learnt from


def test_A6_a_setting_that_was_there_from_the_beginning_is_enough_and_the_loss_is_remembered(
    command: Run, tmp_path: Path
) -> None:
    sets = ["num_workers=0", "keep_last=2", "keep_best=0", "capacity=600", "on_damage=drop", "max_exec_iter=3"]
    session = command(*arguments("toy_q", tmp_path, "dropping", *sets), expect=75).session
    damage_what_is_shared(session)
    resume = ["--load-checkpoint", str(session), "--resume", "--set"]

    command(*resume, "/runner/max_iter=1", "/runner/n_epochs=6", expect=75)
    ended = command(*resume, "/runner/max_iter=0")

    assert "goes on without" not in ended.err
    assert manifest(session)["exactness"] == "none (memory)"
    assert state(session)["memory.train"]["cursor"]["total"] == 6 * 32 + 1


def test_A6_with_drop_too_a_whole_checkpoint_is_preferred_to_a_loss(
    command: Run, stopped: Path, tmp_path: Path
) -> None:
    straight = command(*arguments("toy_q", tmp_path, "straight", "num_workers=0", "capacity=600")).session
    only_in_6 = memory_files(stopped, 6).keys() - memory_files(stopped, 4).keys()
    damage(memory_files(stopped, 6)[min(only_in_6)])

    ended = command("--load-checkpoint", str(stopped), "--resume", *DROP)

    assert ended.err.count("damaged and passed over: ") == 1
    assert "resumes from checkpoint-4" in ended.err and "goes on without" not in ended.err
    assert differences(straight, stopped) == []
    assert manifest(stopped)["exactness"] == "exact"


@pytest.mark.parametrize("other", ["agents.agent.safetensors", "state.json", "statistics.safetensors"])
def test_A6_drop_lets_nothing_but_memories_go(command: Run, stopped: Path, other: str) -> None:
    damage_what_is_shared(stopped)
    for number in (4, 6):
        damage(stopped / "checkpoints" / f"checkpoint-{number}" / other)

    ended = command("--load-checkpoint", str(stopped), "--resume", *DROP, expect=5)

    error = ended.err.splitlines()[-1]
    assert "all 2 damaged" in error and "on_damage" not in error  # that setting would not help
    assert ended.saved == []


def test_A6_a_missing_segment_is_damage_too(command: Run, stopped: Path) -> None:
    for number in (4, 6):
        min(memory_files(stopped, number).items())[1].unlink()

    refused = command("--load-checkpoint", str(stopped), "--resume", expect=5)
    ended = command("--load-checkpoint", str(stopped), "--resume", *DROP)

    assert "the memory 'train'" in refused.err.splitlines()[-1]
    assert ended.err.count("goes on without what was in the memory 'train'") == 1


def test_A5_a_checkpoint_named_explicitly_does_not_fall_back_but_may_lose_its_memory(
    command: Run, stopped: Path
) -> None:
    only_in_6 = memory_files(stopped, 6).keys() - memory_files(stopped, 4).keys()
    damage(memory_files(stopped, 6)[min(only_in_6)])
    named = ["--load-checkpoint", str(stopped), "--checkpoint", "6", "--resume"]

    refused = command(*named, expect=5)
    ended = command(*named, *DROP)

    assert '/memory/train/on_damage to "drop"' in refused.err.splitlines()[-1]
    assert "passed over" not in ended.err
    assert manifest(stopped)["exactness"] == "none (memory)"


def test_a_play_needs_no_memory_and_takes_the_newest_policy(command: Run, stopped: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(stopped, whole)
    damage_what_is_shared(stopped)

    ended = command("--load-checkpoint", str(stopped), "--play")
    expected = command("--load-checkpoint", str(whole), "--play")

    found, wanted = read(ended.evaluation / "results.json"), read(expected.evaluation / "results.json")
    assert found["checkpoint"] == "checkpoint-6"
    assert found["episodes"] == wanted["episodes"]
