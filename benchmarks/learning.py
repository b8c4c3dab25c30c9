"""Trainings for docs/results.md: each by the real command line in a process of its own, kept once it is over."""

from __future__ import annotations

import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.installing import ROOT
from benchmarks.learning_runs import RUNS, LearningRun
from benchmarks.measure import Failed
from benchmarks.monitors import Row, read_rows
from benchmarks.tables import machine

__all__ = [
    "POINTS",
    "STORE",
    "WINDOW",
    "Learned",
    "learn",
    "learned_of",
    "means_of",
    "read_learned",
    "run_one",
    "store_learned",
]

STORE = ROOT / "benchmarks" / "results_learning.json"
"""Where finished trainings are kept."""

POINTS = 20
"""Equal shares of the frames whose mean returns are a curve."""

WINDOW = 100
"""Training episodes at the end over which a mean return is taken."""

_FORMAT = 1
_LONGEST_S = 12 * 3600.0


class Learned(NamedTuple):
    """What one training gave.

    Attributes:
        name: of the run.
        seed: of the training.
        command: that was given, but for where its session lies.
        frames: real transitions.
        wall_s: of the whole process, import and tests included.
        test_return: mean return of the last test; None without tests.
        test_episodes: of that test.
        train_return: mean return of the last `WINDOW` training episodes.
        episodes: of training.
        first_tenth: mean return of the training episodes that ended in the first tenth of the frames; None where none
            has.
        last_tenth: the same for the last tenth.
        curve: the same for each of `POINTS` equal shares of the frames.
        reason: why the training ended.
        exactness: `exact` where a resume gives the same bits, else why it cannot.
        version: of digideep.
        machine: on which, with the load before and after.
    """

    name: str
    seed: int
    command: str
    frames: int
    wall_s: float
    test_return: float | None
    test_episodes: int
    train_return: float | None
    episodes: int
    first_tenth: float | None
    last_tenth: float | None
    curve: list[float | None]
    reason: str
    exactness: str
    version: str
    machine: dict[str, Any]

    @property
    def rise(self) -> float | None:
        """Mean return of the last tenth minus that of the first; None where one has no episode."""
        if self.first_tenth is None or self.last_tenth is None:
            return None
        return self.last_tenth - self.first_tenth


def learn(
    *,
    names: Sequence[str] | None = None,
    seeds: int | None = None,
    again: bool = False,
    at_once: int = 1,
    path: Path = STORE,
    train: Callable[[LearningRun, int], Learned] | None = None,
    show: Callable[[str], None] = print,
) -> list[str]:
    """Make the trainings that are not stored yet, and store each as it is over; return those that failed.

    Args:
        names: of runs; all by default.
        seeds: how many of each run's seeds; all by default.
        again: whether trainings that are stored are made again.
        at_once: how many run at a time, each bound to its share of this process's cores.
        path: of the store.
        train: makes one training.
        show: takes a line for each training, and one where some are stored.

    Raises:
        LookupError: there is no run of a name, or no core for each of the trainings at once.
    """
    known = [run.name for run in RUNS]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise LookupError(f"--only: expected some of {', '.join(known)}, found {', '.join(unknown)}")
    shares = _shares_of_cores(at_once)
    chosen = [run for run in RUNS if names is None or run.name in names]
    asked = [(run, seed) for run in chosen for seed in run.seeds[:seeds]]
    wanted = [(run, seed) for run, seed in asked if again or not _is_stored(run, seed, path)]
    if stored := len(asked) - len(wanted):
        show(f"{stored} of {len(asked)} trainings are stored in {path} and not repeated; --again repeats them")

    def made(run: LearningRun, seed: int) -> Learned:
        show(f"{run.name}, seed {seed}: {run.command(seed)}")
        return (train or run_one)(run, seed)

    failed = []
    with ThreadPoolExecutor(at_once, initializer=lambda: _bind(shares.get())) as threads:
        begun = {threads.submit(made, run, seed): f"{run.name}, seed {seed}" for run, seed in wanted}
        for future in as_completed(begun):
            try:
                learned = future.result()
            except Failed as error:
                failed.append(begun[future])
                show(f"{begun[future]} failed: {error}")
                continue
            store_learned(path, learned)
            show(f"{begun[future]}: {learned.frames:,} frames in {learned.wall_s:.0f} s: {learned.reason}")
    return failed


def _shares_of_cores(at_once: int) -> queue.SimpleQueue[list[int]]:
    """Return as many shares of this process's cores, none empty, as there are trainings at once."""
    cores = _cores()
    if not 1 <= at_once <= len(cores):
        raise LookupError(f"--at-once: expected 1 to {len(cores)}, as many as there are cores, found {at_once}")
    shares: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    for number in range(at_once):
        shares.put(cores[number * len(cores) // at_once : (number + 1) * len(cores) // at_once])
    return shares


def _cores() -> list[int]:
    """Return the cores that this thread, and what it starts, may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _bind(cores: list[int]) -> None:
    """Bind this thread, and every process that it starts, to the cores; where a system cannot, it runs unbound."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def _is_stored(run: LearningRun, seed: int, path: Path) -> bool:
    """Whether the store has this training, made by the command that would be given now."""
    return any((one.name, one.command) == (run.name, run.command(seed)) for one in read_learned(path))


def run_one(run: LearningRun, seed: int) -> Learned:
    """Return what a training gives that is made now.

    Raises:
        Failed: it did not reach its goal of frames or epochs.
    """
    about = {**machine(), "used": len(_cores())}
    with tempfile.TemporaryDirectory(prefix="digideep-results-") as directory:
        where = ("--session-path", directory, "--session-name", "session")
        began = time.monotonic()
        try:
            finished = subprocess.run(
                [sys.executable, "-m", "digideep.main", *run.arguments(seed), *where],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=_LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"expected an end within {_LONGEST_S:.0f} s, found none") from error
        wall_s = time.monotonic() - began
        if finished.returncode:
            said = finished.stderr.strip().splitlines() or ["nothing"]
            raise Failed(f"expected exit code 0, found {finished.returncode}: {said[-1][:300]}")
        about["load"] += machine()["load"]
        return learned_of(Path(directory) / "session", run, seed=seed, wall_s=wall_s, about=about)


def learned_of(session: Path, run: LearningRun, *, seed: int, wall_s: float, about: dict[str, Any]) -> Learned:
    """Return what a session that is done says of its training."""
    import digideep

    summary = json.loads((session / "summary.json").read_text(encoding="utf-8"))
    rows, test = read_rows(session / "monitor" / "train"), summary["last_test"]
    newest = [row.return_ for row in rows[-WINDOW:]]
    tenths = means_of(rows, 10)
    return Learned(
        name=run.name,
        seed=seed,
        command=run.command(seed),
        frames=summary["frame"],
        wall_s=round(wall_s, 1),
        test_return=None if test is None else test["mean_return"],
        test_episodes=0 if test is None else test["n"],
        train_return=statistics.fmean(newest) if newest else None,
        episodes=len(rows),
        first_tenth=tenths[0],
        last_tenth=tenths[-1],
        curve=means_of(rows, POINTS),
        reason=summary["reason"],
        exactness=summary["exactness"],
        version=digideep.__version__,
        machine=about,
    )


def means_of(rows: Sequence[Row], points: int) -> list[float | None]:
    """Return the mean return of the episodes that ended in each of `points` equal shares of the frames; None if none.

    Frames are counted by the lengths of the episodes that have ended, so that steps of others are left out.
    """
    total, done = sum(row.length for row in rows), 0
    parts: list[list[float]] = [[] for _ in range(points)]
    for row in rows:
        done += row.length
        parts[(done - 1) * points // total].append(row.return_)
    return [round(statistics.fmean(part), 3) if part else None for part in parts]


def read_learned(path: Path = STORE) -> list[Learned]:
    """Return the stored trainings in the order of the page; none where there is no file.

    Raises:
        ValueError: the file holds something else.
    """
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}")
        return [Learned(**entry) for entry in content["runs"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected trainings of scripts/bench, found something else ({error})") from error


def store_learned(path: Path, learned: Learned) -> None:
    """Add a training to a store, in place of one of the same run and seed; one line each."""
    kept = [one for one in read_learned(path) if (one.name, one.seed) != (learned.name, learned.seed)]
    lines = ",\n".join(json.dumps(one._asdict()) for one in _in_order([*kept, learned]))
    beside = path.with_name(path.name + ".new")
    beside.write_text(f'{{"format": {_FORMAT}, "runs": [\n{lines}\n]}}\n', encoding="utf-8")
    beside.replace(path)


def _in_order(learned: Iterable[Learned]) -> list[Learned]:
    places = {run.name: place for place, run in enumerate(RUNS)}
    return sorted(learned, key=lambda one: (places.get(one.name, len(places)), one.name, one.seed))
