"""After `kill -9` nothing has to be cleaned up by hand: the resume works at once and ends as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, check_logs_continue, differences
from ledger import Tally

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]


@pytest.mark.parametrize("workers", [0, 2])
def test_C3_a_killed_run_is_resumed_at_once(
    digideep: Run, resume: Run, toy: Toy, tmp_path: Path, workers: int, tally: Tally
) -> None:
    knobs = ["test_win_size=1", f"num_workers={workers}"]
    straight = digideep(*toy("straight", *knobs)).session
    session = digideep(*toy("killed", *knobs), moments={"cycle 2": ["SIGKILL"]}, expect=-9).session

    for moment in ("learnt 3", "save 4", "test 3", "cycle 7", "save 8"):
        code = resume(session, moments={moment: ["SIGKILL"]}, expect=-9).code
        tally["kills of the program"] += 1
        assert code == -9
    ended = resume(session)

    assert ended.code == 0
    assert differences(straight, session) == []
    check_logs_continue(session)
    left = [path.name for path in session.rglob("*") if path.name.startswith((".tmp", ".trash"))]
    assert left == []
