"""The end of a batch job: where it is read, what is passed over, and when a run stops for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from fakes import Ended, read

from digideep.pipeline.jobs import JobEnd, TimeBudget, find_job_end

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that puts a shell script on PATH, which has nothing else of SLURM."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")

    def put(name: str, script: str) -> None:
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(0o755)

    return put


def _local(ahead_s: float) -> str:
    return datetime.fromtimestamp(time.time() + ahead_s).strftime("%Y-%m-%dT%H:%M:%S")


def test_the_end_is_what_slurm_tells_the_job() -> None:
    end = find_job_end({"SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": str(int(time.time()) + 100)})

    assert end is not None and 98.0 < end.left_s <= 100.0


def test_outside_of_slurm_nothing_ends(install: Install) -> None:
    install("scontrol", f"echo EndTime={_local(100)}")

    assert find_job_end({"SLURM_JOB_END_TIME": str(int(time.time()) + 100)}) is None
    assert find_job_end({"PBS_JOBID": "17", "LSB_JOBID": "17"}) is None


@pytest.mark.parametrize(
    "given", ["", "soon", "-1", "0", "1.5e9", "9" * 400, "NaN", "Unknown", "\x1b[31m", "1700000000"]
)
def test_a_bad_time_is_as_good_as_none(install: Install, given: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "digideep"):
        end = find_job_end({"SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": given})

    assert end is None
    assert len(caplog.messages) == (1 if given.strip() else 0)
    assert all("SLURM_JOB_END_TIME" in message and "\x1b" not in message for message in caplog.messages)


@pytest.mark.parametrize("job", ["", "x", "17; touch hacked", "-17", "--help", "17_1"])
def test_a_bad_job_is_no_job(install: Install, job: str) -> None:
    install("scontrol", f"echo EndTime={_local(100)}")

    assert find_job_end({"SLURM_JOB_ID": job}) is None


def test_older_versions_are_asked_with_scontrol(install: Install) -> None:
    install("scontrol", f'echo "JobId=17 StartTime={_local(-5)} EndTime={_local(100)} Deadline=N/A"')

    end = find_job_end({"SLURM_JOB_ID": "17"})

    assert end is not None and 95.0 < end.left_s <= 100.0


@pytest.mark.parametrize(
    "scontrol", ["exit 1", "echo EndTime=Unknown", "echo nothing", "echo EndTime=2001-01-01T00:00:00"]
)
def test_where_scontrol_does_not_know_squeue_is_asked(install: Install, scontrol: str) -> None:
    install("scontrol", scontrol)
    install("squeue", f"echo EndTime={_local(200)}")

    end = find_job_end({"SLURM_JOB_ID": "17"})

    assert end is not None and 195.0 < end.left_s <= 200.0


def test_a_task_of_an_array_asks_for_itself_alone(install: Install, tmp_path: Path) -> None:
    install("scontrol", f'echo "$@" >> {tmp_path}/asked')
    install("squeue", f'echo "$@" >> {tmp_path}/asked')
    variables = {"SLURM_JOB_ID": "40", "SLURM_ARRAY_JOB_ID": "38", "SLURM_ARRAY_TASK_ID": "2"}

    assert find_job_end(variables) is None

    assert (tmp_path / "asked").read_text().split("\n")[:2] == ["-o show job 38_2", "-h -j 38_2 -o EndTime=%e"]


def test_a_controller_that_hangs_holds_nothing_up(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digideep.pipeline.jobs._ASK_S", 0.3)
    install("scontrol", "sleep 1000")
    install("squeue", "sleep 1000")
    began = time.monotonic()

    assert find_job_end({"SLURM_JOB_ID": "17"}) is None

    assert time.monotonic() - began < 5.0


def test_a_clock_that_jumps_moves_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    end = find_job_end({"SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": str(int(time.time()) + 100)})
    now = time.time()

    monkeypatch.setattr(time, "time", lambda: now + 86400.0)

    assert end is not None and 95.0 < end.left_s <= 100.0


def test_the_smaller_of_both_budgets_counts() -> None:
    budget = TimeBudget(1.0, grace_s=20.0)

    assert budget.spent(3599.0, advanced=True) == ""
    assert budget.spent(3600.0, advanced=True) == "max_time: 1 h in this process"
    budget.heed(JobEnd("2026-11-29T22:00:00Z", time.monotonic() + 25.0))
    assert budget.spent(0.0, advanced=True) == ""


def test_a_job_stops_a_grace_period_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = TimeBudget(0.0, grace_s=20.0)
    began = time.monotonic()
    budget.heed(JobEnd("2026-11-29T22:00:00Z", began + 100.0))

    monkeypatch.setattr(time, "monotonic", lambda: began + 79.0)
    assert budget.spent(0.0, advanced=True) == ""
    monkeypatch.setattr(time, "monotonic", lambda: began + 81.0)
    assert budget.spent(0.0, advanced=True) == "job ends at 2026-11-29T22:00:00Z"
    assert budget.spent(0.0, advanced=False) == ""


def test_a_job_shorter_than_the_grace_period_keeps_half_of_what_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    budget = TimeBudget(0.0, grace_s=20.0)
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began)

    with caplog.at_level(logging.WARNING, "digideep"):
        budget.heed(JobEnd("2026-11-29T22:00:00Z", began + 10.0))

    assert len(caplog.messages) == 1
    assert "in 10 s" in caplog.text and "grace_s" in caplog.text and "--time" in caplog.text
    monkeypatch.setattr(time, "monotonic", lambda: began + 4.9)
    assert budget.spent(0.0, advanced=True) == ""
    monkeypatch.setattr(time, "monotonic", lambda: began + 5.1)
    assert budget.spent(0.0, advanced=True) == "job ends at 2026-11-29T22:00:00Z"


def test_a_run_saves_and_stops_before_its_job_ends(
    command: Callable[..., Ended], toy: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    end_s = int(time.time()) + 63
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(end_s))

    ended = command(
        *toy("job", "number_epochs=100000", "test_activate=false", "grace_s=60", "save_interval=0"), expect=75
    )

    summary = read(ended.session / "summary.json")
    assert (summary["state"], summary["exit_code"]) == ("stopped", 75)
    assert summary["reason"].startswith("job ends at 20") and summary["reason"].endswith("Z")
    assert ended.saved[-1] == summary["checkpoints"][-1]["name"]
    assert ended.err.count("the job ends at ") == 1
    assert time.time() < end_s


def test_a_job_too_short_for_its_grace_period_advances_all_the_same(
    command: Callable[..., Ended], toy: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 6))

    ended = command(
        *toy("short", "number_epochs=1000000", "test_activate=false", "grace_s=3600", "save_interval=0"), expect=75
    )

    summary = read(ended.session / "summary.json")
    assert summary["reason"].startswith("job ends at 20")
    assert summary["frame"] > 0
    assert ended.err.count("the job ends at ") == 1 and "after one cycle at least" in ended.err
