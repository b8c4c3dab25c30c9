"""A checkpoint from the state of a run to the disk and back into every part."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, checkpoints, differences, manifest, read, state

import digideep

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]


@pytest.fixture
def session(command: Run, toy: Toy) -> Path:
    return command(*toy("session", "test_win_size=1", "max_exec_iter=2"), expect=75).session


def test_it_is_announced_after_it_is_durable(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    from digideep.pipeline import stdout

    really = stdout.show

    def watching(text: str) -> None:
        if text.startswith("saved "):
            path = Path(text.removeprefix("saved "))
            seen.append(path.name if (path / "MANIFEST.json").exists() else "not there")
        really(text)

    monkeypatch.setattr(stdout, "show", watching)

    command(*toy("announced", "number_epochs=1", "test_activate=false"))

    assert seen == ["checkpoint-0", "checkpoint-2", "checkpoint-2"]


def test_keys_of_the_state_are_names_of_the_params(session: Path) -> None:
    described = manifest(session)

    assert set(described["components"]) == {
        "agents.agent", "memory.train", "explorer.train", "statistics", "counters", "runner", "rng", "monitor",
        "clocks",
    }  # fmt: skip
    assert "digideep." not in (session / "checkpoints" / "checkpoint-4" / "state.json").read_text().replace(
        "digideep.testing", ""
    )
    assert described["cycle"] == 4
    assert (described["epoch"], described["frame"]) == (2, read(session / "summary.json")["frame"])


def test_all_that_the_clock_touches_stands_under_clocks(command: Run, toy: Toy, session: Path) -> None:
    other = command(*toy("other", "test_win_size=1", "max_exec_iter=2"), expect=75).session

    one, two = state(session), state(other)
    assert one.pop("clocks") != two.pop("clocks")
    assert one == two


def test_a_session_that_was_copied_elsewhere_resumes_and_plays(
    command: Run, toy: Toy, session: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere" / "copy"
    shutil.copytree(session, elsewhere)
    shutil.rmtree(session)

    command("--load-checkpoint", str(elsewhere), "--play", "--episodes", "1")
    command("--load-checkpoint", str(elsewhere), "--resume", "--set", "/runner/max_iter=0")

    straight = command(*toy("straight", "test_win_size=1")).session
    assert set(differences(straight, elsewhere)) <= {"manifest params_sha256"}


def test_resuming_never_overwrites_the_first_checkpoint(command: Run, session: Path) -> None:
    first = session / "checkpoints" / "checkpoint-0"
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in first.iterdir()}

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/keep_last=9", "/runner/max_iter=0")

    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in first.iterdir()} == before
    assert checkpoints(session) == [0, 2, 4, 6, 8]


def test_the_state_of_every_optimiser_is_in_every_checkpoint(session: Path) -> None:
    from safetensors.numpy import load_file

    for number in checkpoints(session):
        tensors = load_file(session / "checkpoints" / f"checkpoint-{number}" / "agents.agent.safetensors")
        moments = [name for name in tensors if "optim" in name]
        assert len(moments) >= 2
        assert all(tensors[name].any() for name in moments) == (number > 0)


def test_nothing_is_loaded_before_all_is_verified(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from digideep.agent.ppo.agent import PPOAgent
    from digideep.errors import CheckpointError

    for number in checkpoints(session):
        (session / "checkpoints" / f"checkpoint-{number}" / "explorer.train.safetensors").unlink()
    loads: list[object] = []
    monkeypatch.setattr(PPOAgent, "load_state_dict", lambda self, saved: loads.append(saved))

    with pytest.raises(CheckpointError):
        digideep.run(load_checkpoint=str(session), resume=True, log_level="fatal")

    assert loads == []
