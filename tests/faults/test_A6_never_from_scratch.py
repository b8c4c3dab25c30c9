"""Where checkpoints were and none is usable, a run ends with 5 and says of each why; it never begins again silently."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import TOY, Ended, checkpoints
from ledger import Tally

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]
QUICK = ["number_epochs=3", "test_win_size=1", "max_exec_iter=2"]


@pytest.fixture
def stopped(command: Run, toy: Toy) -> Path:
    """A session with checkpoints 0, 2 and 4 that has an epoch to go."""
    return command(*toy("stopped", *QUICK), expect=75).session


def _again(session: Path, how: str) -> list[str]:
    if how == "--autoresume":
        place = ["--params", TOY, "--session-path", str(session.parent), "--session-name", session.name]
        return [*place, "--autoresume", "--set", *QUICK]
    return ["--load-checkpoint", str(session), how]


@pytest.mark.parametrize("how", ["--resume", "--play", "--autoresume"])
def test_A6_all_damaged_is_exit_5_with_each_reason(command: Run, stopped: Path, how: str, tally: Tally) -> None:
    files = {0: "MANIFEST.json", 2: "state.json", 4: "agents.agent.safetensors"}
    for number, name in files.items():
        path = stopped / "checkpoints" / f"checkpoint-{number}" / name
        path.write_bytes(path.read_bytes()[:-1])
        tally["damages noticed"] += 1

    ended = command(*_again(stopped, how), expect=5)

    error = ended.err.splitlines()[-1]
    assert error.startswith("digideep: error: ")
    assert all(f"checkpoint-{number}: {name}" in error for number, name in files.items())
    assert ended.saved == []
    assert checkpoints(stopped) == [0, 2, 4]


@pytest.mark.parametrize("how", ["--resume", "--play", "--autoresume"])
@pytest.mark.parametrize("what", ["checkpoints", "each checkpoint"])
def test_A6_checkpoints_that_are_gone_are_no_reason_to_begin_again(
    command: Run, stopped: Path, how: str, what: str
) -> None:
    for path in [stopped / "checkpoints"] if what == "checkpoints" else (stopped / "checkpoints").iterdir():
        shutil.rmtree(path)

    ended = command(*_again(stopped, how), expect=5)

    assert stopped.name in ended.err.splitlines()[-1]
    assert ended.saved == []


@pytest.mark.parametrize("how", ["--resume", "--autoresume"])
def test_A6_checkpoints_that_cannot_be_reached_are_no_reason_to_begin_again(
    command: Run, stopped: Path, how: str
) -> None:
    (stopped / "checkpoints").rename(stopped.parent / "elsewhere")
    (stopped / "checkpoints").symlink_to(stopped.parent / "elsewhere")

    ended = command(*_again(stopped, how), expect=2)

    assert ended.saved == []
    assert sorted(path.name for path in (stopped.parent / "elsewhere").iterdir()) == [
        f"checkpoint-{number}" for number in (0, 2, 4)
    ]
