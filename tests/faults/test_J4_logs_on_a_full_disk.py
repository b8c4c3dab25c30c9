"""Logs that cannot be written never stop a training: one warning each, and checkpoints are saved all the same."""

from __future__ import annotations

import errno
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import Ended, Program, check_logs_continue, checkpoints, differences, last_checkpoint, read, rows
from signalling import call_in

Run = Callable[..., Ended]
Start = Callable[..., Program]
Toy = Callable[..., list[str]]

LOGS = ("varlog.jsonl", "prolog.jsonl", "monlog.jsonl", "report.log", ".monitor.csv", "tfevents", "timers.json")
SETS = ["test_win_size=1", "number_epochs=4", "keep_last=9"]


def refuse(names: tuple[str, ...], until: str, number: int) -> None:
    """Have every write to a file whose name holds one of `names` fail, as long as the file `until` is not there."""
    write = os.write
    busy = threading.local()

    def refusing(descriptor: int, data: Any) -> int:
        if not getattr(busy, "now", False):
            busy.now = True
            try:
                path = os.readlink(f"/proc/self/fd/{descriptor}")
            except OSError:
                path = ""
            finally:
                busy.now = False
            if any(name in path for name in names) and not os.path.exists(until):
                raise OSError(number, os.strerror(number))
        return write(descriptor, data)

    os.write = refusing


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_J4_a_disk_that_refuses_all_logs_stops_no_training(
    start: Start, command: Run, toy: Toy, tmp_path: Path, number: int
) -> None:
    before = functools.partial(refuse, LOGS, str(tmp_path / "never"), number)
    straight = command(*toy("straight", *SETS)).session

    ended = start(*toy("full", *SETS), before=before).end()

    assert ended.code == 0, ended
    assert ended.saved[-1] == "checkpoint-8" and checkpoints(ended.session) == [0, 2, 4, 6, 8]
    # What was learnt is what is learnt with logs; those are the only difference.
    assert set(differences_of_learning(straight, ended.session)) == set()
    for name in ("varlog.jsonl", "prolog.jsonl", "report.log", ".monitor.csv", "tfevents"):
        lines = [line for line in ended.err.splitlines() if line.startswith("warning: ") and name in line]
        warnings = [line for line in lines if "cannot be written (" in line]
        files = 2 if name == ".monitor.csv" else 1  # of training and of tests
        assert len(warnings) == files, (name, ended.err)
        assert len(lines) <= 2 * files, (name, ended.err)  # one more says at the end that rows are lost
    assert os.strerror(number) in ended.err
    assert read(ended.session / "summary.json")["state"] == "done"


def differences_of_learning(one: Path, other: Path) -> list[str]:
    """Return what differs in two last checkpoints."""
    first, second = last_checkpoint(one), last_checkpoint(other)
    return [key for key in first if first[key] != second[key]]


@pytest.mark.parametrize("name", LOGS)
def test_J4_one_log_that_is_refused_leaves_the_others_alone(start: Start, toy: Toy, tmp_path: Path, name: str) -> None:
    before = functools.partial(refuse, (name,), str(tmp_path / "never"), errno.ENOSPC)

    ended = start(*toy("full", "test_win_size=1", "number_epochs=2"), before=before).end()

    assert ended.code == 0, ended
    for other in {"varlog.jsonl", "prolog.jsonl"} - {name}:
        assert [row["meta"]["epoch"] for row in rows(ended.session / other)] == [1, 2]
    assert ended.saved[-1] == "checkpoint-4"


def refuse_until_third_epoch(names: tuple[str, ...], freed: str) -> None:
    """Have writes fail as `refuse` does until the third epoch is logged."""
    refuse(names, freed, errno.ENOSPC)
    call_in("digideep.pipeline.session:Session.log_epoch", action=functools.partial(Path.touch, Path(freed)), call=3)


def test_J4_rows_come_later_where_the_disk_has_room_again(start: Start, command: Run, toy: Toy, tmp_path: Path) -> None:
    straight = command(*toy("straight", *SETS)).session
    before = functools.partial(refuse_until_third_epoch, LOGS, str(tmp_path / "freed"))

    ended = start(*toy("full", *SETS), before=before).end()

    assert ended.code == 0
    assert differences(straight, ended.session) == []
    check_logs_continue(ended.session)


def test_J4_a_resume_from_a_checkpoint_saved_while_rows_waited_keeps_them(
    start: Start, command: Run, resume: Run, toy: Toy, tmp_path: Path
) -> None:
    straight = command(*toy("straight", *SETS)).session
    before = functools.partial(refuse_until_third_epoch, ("varlog.jsonl", "prolog.jsonl"), str(tmp_path / "freed"))
    session = start(*toy("full", *SETS), before=before, moments={"cycle 8": ["SIGKILL"]}).end().session

    resume(session, "--checkpoint", "4")

    check_logs_continue(session)
    assert differences(straight, session) == []
