"""Logs of a session and their lengths: what is cut on a resume, and what a clock may touch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import event_steps, rows

from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.logs import SessionLogs


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    return SessionPaths(tmp_path)


@pytest.fixture
def logs(paths: SessionPaths) -> Iterator[SessionLogs]:
    made = SessionLogs(paths, cpu=False, gpu=False)
    yield made
    made.stop()


def _epochs(logs: SessionLogs, *epochs: int) -> None:
    for epoch in epochs:
        logs.monitor.set_meta(epoch=epoch, frame=10 * epoch, episode=epoch)
        logs.monitor.monitor("train/return", float(epoch))
        logs.log_epoch()


def test_an_epoch_is_one_row_in_each_log_and_one_event(logs: SessionLogs, paths: SessionPaths) -> None:
    _epochs(logs, 1, 2)

    assert [row["meta"]["frame"] for row in rows(paths.varlog)] == [10, 20]
    assert [row["meta"]["frame"] for row in rows(paths.prolog)] == [10, 20]
    assert event_steps(paths.root) == {"train/return": [10, 20]}
    assert set(rows(paths.varlog)[0]["data"]["train/return"]) == {"num", "mean", "std", "min", "max"}


def test_a_cut_takes_away_what_came_later_and_rows_go_on(logs: SessionLogs, paths: SessionPaths) -> None:
    _epochs(logs, 1)
    lengths = logs.lengths()
    monitor, clocks = logs.state_dict()
    _epochs(logs, 2, 3)

    logs.load_state_dict(monitor, clocks)
    logs.cut(lengths)
    _epochs(logs, 2)

    assert [row["meta"]["epoch"] for row in rows(paths.varlog)] == [1, 2]
    assert [row["meta"]["epoch"] for row in rows(paths.prolog)] == [1, 2]
    assert event_steps(paths.root) == {"train/return": [10, 20]}


def test_logs_that_a_checkpoint_did_not_know_are_emptied(logs: SessionLogs, paths: SessionPaths) -> None:
    _epochs(logs, 1)
    (paths.monitor / "train").mkdir(parents=True)
    (paths.monitor / "train" / "0.monitor.csv").write_text("#{}\nr,l,t,env\n1,1,1,0\n")

    logs.cut({})
    _epochs(logs, 1)

    assert [row["meta"]["epoch"] for row in rows(paths.varlog)] == [1]
    assert (paths.monitor / "train" / "0.monitor.csv").read_text() == ""


def test_lengths_are_those_of_the_files(logs: SessionLogs, paths: SessionPaths) -> None:
    _epochs(logs, 1, 2)

    lengths = logs.lengths()

    assert lengths["varlog.jsonl"] == paths.varlog.stat().st_size
    assert lengths["prolog.jsonl"] == paths.prolog.stat().st_size
    assert all((paths.root / name).stat().st_size == n for name, n in lengths.items() if (paths.root / name).exists())


def test_the_clock_of_a_session_goes_on(logs: SessionLogs) -> None:
    monitor, clocks = logs.state_dict()

    logs.load_state_dict(monitor, {**clocks, "clock_s": 1000.0})

    assert logs.clock_s >= 1000.0
    assert "clocks" not in monitor
