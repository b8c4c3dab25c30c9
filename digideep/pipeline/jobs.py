"""How long a run may take: its own budget, and the end of the batch job around it, before which it saves.

SLURM tells a job its end in `SLURM_JOB_END_TIME`, as seconds since 1970; older versions are asked with scontrol or
squeue. Other queues (PBS, LSF) hand a job nothing that says when it ends. The end is turned into a time of the
monotonic clock at once: what the clock on the wall does later moves nothing. Nothing in here ever stops a run: what
cannot be read, or makes no sense, is as good as no end.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from digideep.errors import one_line

__all__ = ["JobEnd", "TimeBudget", "find_job_end"]

logger = logging.getLogger(__name__)

_ASK_S = 2.0  # for all questions to SLURM together: a controller that is down must not hold up the start
_FARTHEST_S = 10 * 365 * 86400.0  # a job without a limit says it ends in the far future, or never
_ID = re.compile(r"[0-9]{1,10}")
_END = re.compile(r"\bEndTime=(\S+)")


class JobEnd(NamedTuple):
    """When the job ends: `text` as a time in UTC, `deadline` on the monotonic clock."""

    text: str
    deadline: float

    @property
    def left_s(self) -> float:
        """Seconds from now until then; negative afterwards."""
        return self.deadline - time.monotonic()


class TimeBudget:
    """The time that a run may take: so many hours, and never longer than its job lasts, less the grace period.

    Args:
        hours: of this process; 0: no such budget.
        grace_s: what the last save and the exit may take.
    """

    def __init__(self, hours: float, *, grace_s: float) -> None:
        self._hours = hours
        self._grace_s = grace_s
        self._job: JobEnd | None = None

    def heed(self, job: JobEnd | None) -> None:
        """Take the end of the job into account, and say so in the log.

        Where less than the grace period is left already, half of what is left takes its place: a job too short for it
        would otherwise end, and be put back into the queue, without a step.
        """
        self._job = job
        if job is None:
            return
        left_s, asked_s = job.left_s, self._grace_s
        if left_s > asked_s:
            logger.info(
                "the job ends at %s, in %.0f s: the run saves and stops %g s before (/runner/grace_s)",
                job.text, left_s, asked_s,
            )  # fmt: skip
            return
        self._grace_s = max(0.0, left_s / 2.0)
        logger.warning(
            "the job ends at %s, in %.0f s: expected more than grace_s (/runner/grace_s, %g s) to be left to "
            "train; the run saves and stops %.1f s before, after one cycle at least; raise the job's time limit "
            "(--time), or lower /runner/grace_s",
            job.text, left_s, asked_s, self._grace_s,
        )  # fmt: skip

    def spent(self, age_s: float, *, advanced: bool) -> str:
        """Return which time is up, or an empty string.

        Args:
            age_s: of this process.
            advanced: whether it has run a cycle; before that the end of the job counts for nothing.
        """
        if self._hours and age_s >= self._hours * 3600.0:
            return f"max_time: {self._hours:g} h in this process"
        if self._job is not None and advanced and self._job.left_s <= self._grace_s:
            return f"job ends at {self._job.text}"
        return ""


def find_job_end(environ: Mapping[str, str] = os.environ) -> JobEnd | None:
    """Return the end of the SLURM job that this process belongs to, None where there is none or nobody knows it."""
    job = _job_id(environ)
    if job is None:
        return None
    given = environ.get("SLURM_JOB_END_TIME", "").strip()
    return (_given(given) if given else None) or _asked(job)


def _job_id(environ: Mapping[str, str]) -> str | None:
    """Return how SLURM names this job, a task of an array by both of its numbers; None outside of SLURM."""
    job = environ.get("SLURM_JOB_ID", "").strip()
    if not _ID.fullmatch(job):
        return None
    # One task of an array has the number of the whole array as its own: only both numbers name it alone.
    array, task = (environ.get(f"SLURM_ARRAY_{part}_ID", "").strip() for part in ("JOB", "TASK"))
    return f"{array}_{task}" if _ID.fullmatch(array) and _ID.fullmatch(task) else job


def _given(given: str) -> JobEnd | None:
    """Return the end that is given in seconds since 1970; None, and one warning, where it makes no sense."""
    try:
        left_s = int(given) - time.time()
    except (ValueError, OverflowError):
        left_s = -1.0
    if not 0.0 < left_s <= _FARTHEST_S:
        logger.warning(
            "SLURM_JOB_END_TIME: expected a time ahead, in seconds since 1970, found %s; it is passed over",
            one_line(given, limit=40),
        )
        return None
    return _after(left_s)


def _after(left_s: float) -> JobEnd:
    moment = datetime.fromtimestamp(time.time() + left_s, UTC)
    return JobEnd(moment.strftime("%Y-%m-%dT%H:%M:%SZ"), time.monotonic() + left_s)


def _asked(job: str) -> JobEnd | None:
    """Return the end that scontrol or squeue tells; None where neither does in time."""
    deadline = time.monotonic() + _ASK_S
    for command in (["scontrol", "-o", "show", "job", job], ["squeue", "-h", "-j", job, "-o", "EndTime=%e"]):
        found = _END.search(_output(command, timeout_s=deadline - time.monotonic()))
        if found is None:
            continue
        try:
            # In the time zone of the machine, as both commands print it.
            left_s = datetime.fromisoformat(found[1]).timestamp() - time.time()
        except (ValueError, OverflowError, OSError):  # "Unknown", "N/A", "NONE"
            continue
        if 0.0 < left_s <= _FARTHEST_S:
            return _after(left_s)
    return None


def _output(command: list[str], *, timeout_s: float) -> str:
    """Return what a command prints, nothing where it is missing, fails, or takes too long."""
    path = shutil.which(command[0])
    if path is None or timeout_s <= 0:
        return ""
    try:
        # In a session of its own: a Ctrl-C is for the run, and what the command starts ends with it.
        process = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ""
    with process:
        try:
            answer, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return ""
    return answer.decode("utf-8", "replace") if process.returncode == 0 else ""
