"""B10: evaluating and playing change nothing in training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, last_checkpoint, rows, tree
from toys import arguments, same_run, straight_run, toys

Run = Callable[..., Ended]

LOGS = {"monitor", "runner"}
"""Components that tell of tests themselves."""


def learnt(session: Path) -> dict[str, object]:
    """Return all of the last checkpoint but what tells of tests."""
    compared = last_checkpoint(session)
    state = {name: value for name, value in compared["state"].items() if name not in LOGS}
    return {"state": state, "tensors": compared["tensors"]}


@pytest.mark.parametrize("toy", toys("toy_dqn", "toy_ppo_recurrent"))
def test_B10_testing_often_seldom_or_never_gives_the_same_weights(command: Run, tmp_path: Path, toy: str) -> None:
    kinds = {"often": "test_interval=1", "seldom": "test_interval=100", "never": "test_activate=false"}

    sessions = {
        name: command(*arguments(toy, tmp_path, name, "num_workers=0", knob)).session for name, knob in kinds.items()
    }

    tests = [sum("test/return" in row["data"] for row in rows(s / "varlog.jsonl")) for s in sessions.values()]
    assert tests == [4, 1, 0]  # the last epoch is always tested
    for name in ("seldom", "never"):
        assert learnt(sessions[name]) == learnt(sessions["often"])


@pytest.mark.parametrize("toy", toys())
def test_B10_playing_in_between_changes_nothing(digideep: Run, resume: Run, tmp_path: Path, toy: str) -> None:
    straight = straight_run(toy, tmp_path)
    argv = arguments(toy, tmp_path, "played", "num_workers=0")
    session = digideep(*argv, moments={"learnt 3": ["SIGTERM"]}, expect=143).session
    before = tree(session)

    for options in ([], ["--stochastic", "--seed", "7"], ["--checkpoint", "0"]):
        digideep("--load-checkpoint", str(session), "--play", "--episodes", "2", *options)

    kept = [entry for entry in tree(session) if not entry[0].startswith("evaluations")]
    assert kept == before
    resume(session)
    assert same_run(straight, session) == []
