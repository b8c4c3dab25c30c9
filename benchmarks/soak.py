"""A long run of the toy preset with everything on, watched from outside: what grows, and what slows down.

    python -m benchmarks.soak [MINUTES]

Trains for so many minutes (60), with tests and a save at every epoch, and compares the last minute with the second one:
microseconds a frame, and over the whole process tree resident memory, descriptors, threads and processes. Prints one
line a minute and a table at the end. It ends with 1 where memory has grown by more than 5 MB, a count has changed, or a
frame takes 5 % longer than it did. The time of a frame is the median over the epochs of a minute, each with its test
and its save: something else that the machine does for a few seconds is not held against the run.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

_MINUTE_S = 60.0
_LOOKS = 30  # a minute; the lowest of them counts, since a save and a test need more for a moment
_GROWN_MB = 5.0
_SLOWER = 1.05
_FEWEST_MINUTES = 3


class Minute(NamedTuple):
    """What one minute of the run looked like."""

    us_per_frame: float
    rss_mb: float
    descriptors: int
    threads: int
    processes: int


class Look(NamedTuple):
    """The process tree at one moment."""

    rss_mb: float
    descriptors: int
    threads: int
    processes: int


class RunEnded(Exception):
    """The run that is watched is there no more."""


def _look(program: psutil.Process) -> Look:
    """Return the process tree as it is.

    Raises:
        RunEnded: the program has ended.
    """
    rss, descriptors, threads, count = 0.0, 0, 0, 0
    try:
        if program.status() == psutil.STATUS_ZOMBIE:  # nobody has taken its end yet
            raise RunEnded
        processes = (program, *program.children(recursive=True))
    except psutil.NoSuchProcess as error:
        raise RunEnded from error
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie is one too
            rss += process.memory_info().rss / 2**20
            descriptors += process.num_fds()
            threads += process.num_threads()
            count += 1
    return Look(rss, descriptors, threads, count)


def _rows(session: Path) -> list[tuple[float, int]]:
    """Return (clock, frame) of every epoch so far."""
    text = (session / "varlog.jsonl").read_text()
    rows = [json.loads(line)["meta"] for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [(row["clock"], row["frame"]) for row in rows]


def _us_per_frame(rows: list[tuple[float, int]], *, seconds: float) -> float:
    """Return microseconds a frame, the median over the epochs of the last `seconds`."""
    newest = [row for row in rows if row[0] >= rows[-1][0] - seconds]
    # A minute that holds one epoch only is measured from the epoch before it.
    newest = newest if len(newest) > 1 else rows[-2:]
    return statistics.median(
        (until - since) / max(1, last - first) * 1e6 for (since, first), (until, last) in itertools.pairwise(newest)
    )


def _watch(program: psutil.Process, session: Path, *, minutes: int) -> list[Minute]:
    found = []
    for number in range(1, minutes + 1):
        looks = []
        for _ in range(_LOOKS):
            time.sleep(_MINUTE_S / _LOOKS)
            looks.append(_look(program))
        lowest = Look(*(min(values) for values in zip(*looks, strict=True)))
        found.append(Minute(_us_per_frame(_rows(session), seconds=_MINUTE_S), *lowest))
        print(f"minute {number}: {_shown(found[-1])}", flush=True)
    return found


def _shown(minute: Minute) -> str:
    return (
        f"{minute.us_per_frame:.1f} us a frame, {minute.rss_mb:.1f} MB, {minute.descriptors} descriptors, "
        f"{minute.threads} threads, {minute.processes} processes"
    )


def _verdict(early: Minute, late: Minute) -> list[str]:
    """Return one line for each thing that is worse at the end."""
    faults = []
    if late.rss_mb - early.rss_mb > _GROWN_MB:
        faults.append(f"memory has grown by {late.rss_mb - early.rss_mb:.1f} MB")
    for name in ("descriptors", "threads", "processes"):
        before, after = getattr(early, name), getattr(late, name)
        if after != before:
            faults.append(f"{name} have gone from {before} to {after}")
    if late.us_per_frame > _SLOWER * early.us_per_frame:
        faults.append(f"a frame takes {late.us_per_frame / early.us_per_frame:.2f} times as long")
    return faults


def main(argv: list[str]) -> int:
    """Run, watch and compare; return the exit code."""
    minutes = int(argv[0]) if argv else 60
    if minutes < _FEWEST_MINUTES:
        print(f"soak: expected at least {_FEWEST_MINUTES} minutes, found {minutes}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="digideep-soak-") as place:
        command = [sys.executable, "-m", "digideep.main", "--params", "digideep.testing.toy_ppo"]
        command += ["--session-path", place, "--session-name", "soak", "--log-level", "warn"]
        command += ["--set", "number_epochs=100000000"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as program:
            session = Path(place) / "soak"
            while not (session / "varlog.jsonl").exists() and program.poll() is None:
                time.sleep(0.1)
            if program.poll() is not None:
                return program.returncode
            try:
                found = _watch(psutil.Process(program.pid), session, minutes=minutes)
            except RunEnded:
                print(f"soak: expected a run of {minutes} minutes, found exit code {program.wait()}", file=sys.stderr)
                return 1
            program.send_signal(signal.SIGTERM)
            code = program.wait()
        frames = _rows(session)[-1][1]
    faults = _verdict(found[1], found[-1]) + ([] if code == 143 else [f"exit code {code} instead of 143"])
    print(
        f"{frames} frames in {minutes} minutes\nsecond minute: {_shown(found[1])}\nlast minute:   {_shown(found[-1])}"
    )
    print("\n".join(faults) if faults else "nothing has grown")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
