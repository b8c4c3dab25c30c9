"""G: more transitions in a gradient step than there is memory for are refused before anything is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended


@pytest.mark.parametrize("assignment", ["batch_size=1000000000000", "n_step=1000000000000"])
@pytest.mark.parametrize("toy", ["toy_sac", "toy_dqn"])
def test_G_windows_that_memory_does_not_hold_are_one_line_and_nothing_is_left(
    command: Callable[..., Ended], tmp_path: Path, toy: str, assignment: str
) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()

    argv = ["--params", f"digideep.testing.{toy}", "--session-path", str(sessions), "--set", assignment]
    ended = command(*argv, expect=2)

    (error,) = ended.err.splitlines()
    assert error.startswith("digideep: error: ") and "batch_size: expected windows within the memory" in error
    assert "; lower it, or n_step" in error
    assert ended.out == [] and list(sessions.iterdir()) == []
