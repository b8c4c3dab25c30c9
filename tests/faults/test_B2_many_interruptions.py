"""B2: five interruptions change nothing; nor does a save and a resume after every single cycle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, check_logs_continue, read
from toys import arguments, same_run, straight_run, toys

Run = Callable[..., Ended]


@pytest.mark.parametrize("toy", toys())
def test_B2_five_interruptions_change_nothing(digideep: Run, resume: Run, tmp_path: Path, toy: str) -> None:
    straight = straight_run(toy, tmp_path)
    workers = "/explorer/train/num_workers"

    session = digideep(*arguments(toy, tmp_path, "five"), moments={"learnt 1": ["SIGTERM"]}, expect=143).session
    resume(session, moments={"learnt 3": ["SIGUSR1"], "cycle 4": ["SIGKILL"]}, expect=-9)
    resume(session, "--set", f"{workers}=0", moments={"test 2": ["SIGINT"]}, expect=130)
    resume(session, "--set", f"{workers}=1", moments={"learnt 6": ["SIGTERM"]}, expect=143)
    resume(session, moments={"cycle 8": ["SIGKILL"]}, expect=-9)
    resume(session)

    assert same_run(straight, session) == []
    assert len(read(session / "meta.json")["runs"]) == 6
    check_logs_continue(session)


@pytest.mark.parametrize("toy", toys())
def test_B2_a_save_and_a_resume_after_every_cycle_change_nothing(
    digideep: Run, resume: Run, tmp_path: Path, toy: str
) -> None:
    straight = straight_run(toy, tmp_path)

    argv = arguments(toy, tmp_path, "again", "num_workers=0")
    session = digideep(*argv, moments={"learnt 1": ["SIGTERM"]}, expect=143).session
    for cycle in range(2, 8):
        resume(session, moments={f"learnt {cycle}": ["SIGTERM"]}, expect=143)
    resume(session)

    assert same_run(straight, session) == []
    assert len(read(session / "meta.json")["runs"]) == 8
    check_logs_continue(session)
