"""B4: what is loaded and saved again is the same, byte by byte."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import Ended, checkpoints
from toys import arguments, toys

import digideep
from digideep.errors import EXIT_PREEMPTED
from digideep.pipeline.checkpoint import CheckpointStore
from digideep.pipeline.manifest import CheckpointMeta, Component
from digideep.pipeline.runner import Outcome, Runner

Run = Callable[..., Ended]


def save_again(session: Path, components: dict[str, Any], place: Path) -> list[str]:
    """Save components as the newest checkpoint of a session has them; return the names of the files that differ."""
    number = checkpoints(session)[-1]
    manifest = CheckpointStore(session / "checkpoints", session_id="", run_id="reader").load(number).manifest
    meta = CheckpointMeta(**{name: manifest[name] for name in CheckpointMeta._fields})
    table = manifest["components"]
    parts = [Component(name, table[name]["kind"], table[name]["version"], components[name]) for name in table]
    store = CheckpointStore(place, session_id=manifest["session_id"], run_id="writer")
    path = store.save(number, parts, meta=meta, logs=manifest["logs"])
    files = {file.name for file in (session / "checkpoints" / path.name).iterdir()}
    assert {file.name for file in path.iterdir()} == files
    return sorted(
        name
        for name in files
        if (path / name).read_bytes() != (session / "checkpoints" / path.name / name).read_bytes()
    )


@pytest.fixture
def session(digideep: Run, tmp_path: Path) -> Callable[[str], Path]:
    def make(toy: str) -> Path:
        argv = arguments(toy, tmp_path, "saved", "num_workers=0")
        return digideep(*argv, moments={"learnt 3": ["SIGTERM"]}, expect=143).session

    return make


@pytest.mark.parametrize("toy", toys("toy_dqn", "toy_ppo_recurrent", "toy_td3"))
def test_B4_a_checkpoint_that_is_read_and_written_again_is_the_same(
    session: Callable[[str], Path], tmp_path: Path, toy: str
) -> None:
    saved = session(toy)

    components = CheckpointStore(saved / "checkpoints", session_id="", run_id="reader").load().components

    assert save_again(saved, components, tmp_path / "again") == []


@pytest.mark.parametrize("toy", toys("toy_dqn", "toy_ppo_recurrent", "toy_td3"))
def test_B4_every_part_of_a_run_gives_back_what_it_was_given(
    session: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: str
) -> None:
    saved, differing = session(toy), list[str]()

    def instead(self: Runner) -> Outcome:
        assert self.session.checkpoint is not None
        given = self.session.checkpoint.components
        components = {**self.state_dict(), "clocks": given["clocks"], "monitor": self.session.logs.state_dict()[0]}
        differing.extend(save_again(saved, components, tmp_path / "again"))
        return Outcome(EXIT_PREEMPTED, "compared")

    monkeypatch.setattr(Runner, "train", instead)
    monkeypatch.setattr("sys.stdout", io.StringIO())

    digideep_session = digideep.run(load_checkpoint=str(saved), resume=True, log_level="fatal")

    assert digideep_session.summary.reason == "compared"
    assert differing == []
