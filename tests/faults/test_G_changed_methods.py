"""G: a resume with another method, memory or normaliser than the checkpoint has is one line that names the change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, tree

CHANGES = [
    ("toy_ddpg", "/memory/train/type=digideep.memory.config:PrioritizedBufferConfig", "/memory/train/type"),
    ("toy_ddpg", '/memory/train={"type":"digideep.memory.config:RollBufferConfig"}', "/memory/train"),
    ("toy_ddpg", "/explorer/train/statistics/observations=false", "/explorer/train/statistics/observations"),
    ("toy_sac", "/agents/agent/learn_temperature=false", "/agents/agent/learn_temperature"),
    ("toy_a2c", "/agents/agent/optimizer=adam", "/agents/agent/optimizer"),
]


@pytest.mark.parametrize(("toy", "change", "path"), CHANGES, ids=[path.strip("/") for _, _, path in CHANGES])
def test_G_a_resume_that_changes_what_a_state_is_made_of_is_one_line_that_names_it(
    command: Callable[..., Ended], tmp_path: Path, toy: str, change: str, path: str
) -> None:
    sets = ["number_epochs=2", "epoch_size=1", "max_exec_iter=1", "num_workers=0", "test_activate=false", "n_steps=8"]
    argv = ["--params", f"digideep.testing.{toy}", "--session-path", str(tmp_path), "--set", *sets]
    session = command(*argv, expect=75).session
    before = tree(session / "checkpoints")

    ended = command("--load-checkpoint", str(session), "--resume", "--set", "/agents/agent/lr=0.1", change, expect=2)

    (line,) = [line for line in ended.err.splitlines() if line.startswith("digideep: error: ")]
    assert line.startswith(f"digideep: error: {path}: expected ") and "as in the checkpoint" in line
    assert "start a new session with it" in line
    assert tree(session / "checkpoints") == before
