"""Runs in turns: seed by seed every contender once, each in a process of its own on the same cores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from benchmarks.contenders import REFERENCE, Contender
from benchmarks.installing import ROOT
from benchmarks.result import Result, parse_result
from benchmarks.settings import SETTINGS

__all__ = ["Cores", "Failed", "environment", "on_cores", "output_of", "run_command", "run_in_turns", "run_one", "say"]

_LONGEST_S = 3600.0
# A machine may set these for some old build of a library; what a contender's own libraries choose is what counts.
_NOT_INHERITED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "PYTHONPATH")


class Cores(NamedTuple):
    """On how many cores, and with how many threads of torch in every contender."""

    number: int
    threads: int


class Failed(Exception):
    """A contender gave no result; the message is one line."""


def environment(threads: int) -> dict[str, str]:
    """Return the environment variables of every contender.

    OpenBLAS, with which numpy computes, takes the threads of OpenMP too, where a program does not say otherwise itself.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return {**kept, "OMP_NUM_THREADS": str(threads)}


def on_cores(command: Sequence[str], cores: int) -> list[str]:
    """Return the command bound to the first one or two cores; unbound where the machine has no more than that.

    Raises:
        Failed: there is no `taskset`.
    """
    if (os.cpu_count() or 1) <= cores:
        return list(command)
    if shutil.which("taskset") is None:
        raise Failed("taskset: expected the command, found none; it binds a run to cores (Linux, util-linux)")
    return ["taskset", "-c", ",".join(str(core) for core in range(cores)), *command]


def output_of(command: Sequence[str], cores: Cores, *, longest_s: float = _LONGEST_S) -> str:
    """Return what a program prints on standard output.

    Raises:
        Failed: it has not ended after `longest_s`, or with another exit code than 0.
    """
    finished = run_command(command, cores, longest_s=longest_s)
    if finished.returncode:
        said = finished.stderr.strip().splitlines() or ["nothing"]
        raise Failed(f"expected exit code 0, found {finished.returncode}: {said[-1][:300]}")
    return finished.stdout


def run_command(
    command: Sequence[str], cores: Cores, *, longest_s: float = _LONGEST_S
) -> subprocess.CompletedProcess[str]:
    """Return how a program ended that runs on these cores, and what it printed.

    Raises:
        Failed: it has not ended after `longest_s`.
    """
    try:
        return subprocess.run(
            on_cores(command, cores.number),
            cwd=ROOT,
            env=environment(cores.threads),
            capture_output=True,
            text=True,
            timeout=longest_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"expected an end within {longest_s:.0f} s, found none") from error


def run_one(contender: Contender, setting_id: str, *, seed: int, frames: int, cores: Cores) -> Result:
    """Return the result of one run.

    Raises:
        Failed: there is none.
    """
    command = [*contender.command(), setting_id, f"--seed={seed}", f"--frames={frames}", f"--threads={cores.threads}"]
    try:
        return parse_result(output_of(command, cores))
    except ValueError as error:
        raise Failed(str(error)) from error


def run_in_turns(
    contenders: Sequence[Contender],
    setting_id: str,
    *,
    seeds: Iterable[int],
    cores: Cores,
    frames: int | None = None,
    others: int | None = None,
    run: Callable[..., Result] = run_one,
    show: Callable[[str], None] = print,
) -> list[Result]:
    """Return the results of all seeds and contenders; one that fails is told in a line and left out from then on.

    Args:
        contenders: who takes part, ours first.
        setting_id: the benchmark.
        seeds: one repetition each.
        cores: where.
        frames: instead of the setting's.
        others: repetitions of who is neither digideep nor the peer that every benchmark has; all by default.
        run: makes one run.
        show: takes a line for each run.
    """
    results: list[Result] = []
    out: set[str] = set()
    for repetition, seed in enumerate(seeds):
        for contender in contenders:
            is_over = others is not None and repetition >= others and contender.peer not in (None, REFERENCE)
            if contender.name in out or is_over:
                continue
            length = frames or SETTINGS[setting_id].total_frames
            try:
                result = run(contender, setting_id, seed=seed, frames=length, cores=cores)
            except Failed as error:
                out.add(contender.name)
                show(f"{contender.name}: is left out of {setting_id}: {error}")
                continue
            results.append(result)
            show(_line(result))
    # A median of ratios needs every repetition.
    return [result for result in results if result.contender not in out]


def _line(result: Result) -> str:
    end = "     -" if result.final_return is None else f"{result.final_return:6.1f}"
    solved = "" if result.solved_s is None else f"  solved after {result.solved_s:.1f} s"
    return (
        f"  seed {result.seed:2d}  {result.contender:38s} {result.steps_per_s:8.0f} steps/s"
        f"  start-up {result.startup_s:5.2f} s  return {end}  {result.peak_mb:4.0f} MB{solved}"
    )


def say(line: str) -> None:
    """Print a line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)
