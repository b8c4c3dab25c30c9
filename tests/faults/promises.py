"""What digideep promises, and which tests prove each promise: those whose names begin with its id."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PROMISES", "RESULTS", "Proof", "main", "merge_results", "promise_of", "proofs", "read_results", "table"]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".promises.json"

PROMISES = {
    "A1": "a kill at any instant, also inside a save, loses nothing after the last `saved` line",
    "A2": "after a power loss the newest announced checkpoint loads to the byte",
    "A3": "a disk that is full, broken or read-only leaves old checkpoints alone; training goes on; three in a row: 9",
    "A4": "a memory on disk reserves its space first: no SIGBUS later",
    "A5": "any damaged file is noticed; the one before is taken with a warning, never for one that was named",
    "A6": "never silently from scratch: all damaged is exit 5 with each reason",
    "A7": "retention keeps the newest, the best and milestones; what kills left is swept",
    "A8": "a save writes the state as of the call",
    "A9": "older formats load; newer ones are refused in one line",
    "B1": "interrupted and resumed equals uninterrupted, bit for bit on CPUs",
    "B2": "so it does after many interruptions",
    "B3": "the test of exactness notices each part of the state that is left out",
    "B4": "load, then save, is the identity",
    "B5": "the same seed gives the same result, whatever the timing of workers",
    "B6": "where exactness is impossible one warning for each reason says so; the number of workers is none",
    "B8": "users can check their own with --check-resume",
    "B9": "logs go on without gap and without repetition",
    "B10": "testing and playing change nothing in training",
    "C1": "of two processes on one session the second ends with 4 within a second",
    "C2": "sessions that start in the same second are distinct",
    "C3": "nothing has to be cleaned up by hand after a kill",
    "C5": "done.lock stands only after the last checkpoint is durable",
    "C6": "a start that fails leaves nothing behind",
    "C8": "with --autoresume the same command goes on, and is 0 where all is done",
    "D1": "SIGUSR1 saves and goes on, and changes no weight",
    "D3": "a signal while the program starts neither kills it nor gets lost",
    "D4": "SIGTERM ends with 143 within the grace period, wherever it hits",
    "D5": "SIGINT once: saved, 130; twice: out in two seconds",
    "D6": "signals to the whole group do not kill workers",
    "E1": "a dead worker is noticed within a second, named, and started again within a budget",
    "E2": "an exception in an environment is one line that says where; the traceback is in report.log",
    "E3": "a hang is noticed, with the stack of the worker in report.log",
    "E5": "no process, shared memory, semaphore or temporary file is left after any exit",
    "E7": "a late answer is never taken for a later one",
    "E8": "a wrong shape, dtype, space or info is named at once",
    "F1": "NaN or infinity in an observation or a reward is 8 and says where",
    "F2": "no checkpoint with weights that are not finite is committed",
    "F3": "no action that is not finite or outside its space reaches an environment",
    "F4": "a loss that is not finite ends before the step of the optimiser; its batch is kept",
    "F5": "no number of ours goes bad by itself",
    "G": "bad input is exit 2 in one line that names value and way out, quickly, and leaves nothing",
    "H1": "nothing from a session runs unless it is trusted",
    "H2": "configuration cannot name code",
    "H4": "no name leads out of the directory of a session",
    "H5": "no name forges output",
    "H6": "no input is a bomb",
    "H9": "data is read in one way, and none of it can run",
    "H10": "no secret is copied into a session",
    "I1": "nothing listens beyond loopback by default",
    "J1": "nothing leaks over many epochs and saves",
    "J2": "logs are bounded, and repeated warnings counted",
    "J3": "a torn last line of a log is no problem",
    "J4": "logs that cannot be written stop nothing",
    "J5": "jumps of the clock are harmless",
    "K1": "ten preemptions and the same command again end as if undisturbed",
}

_NAME = re.compile(r"test_([A-K]\d*)_\w+")


class Proof(NamedTuple):
    """One test of a promise: where it stands, its name, and whether only the nightly run has it."""

    path: str
    name: str
    nightly: bool


def promise_of(name: str) -> str | None:
    """Return the id of the promise that a test of this name proves, None where the name begins with none.

    Raises:
        KeyError: the name begins with an id that there is not.
    """
    match = _NAME.match(name)
    if match is None:
        return None
    if match.group(1) not in PROMISES:
        raise KeyError(match.group(1))
    return match.group(1)


def proofs(directory: Path = ROOT / "tests") -> dict[str, list[Proof]]:
    """Return the tests of each promise, in the order of the table; nothing is imported."""
    found: dict[str, list[Proof]] = {promise: [] for promise in PROMISES}
    for path in sorted(directory.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            promise = promise_of(node.name)
            if promise is not None:
                nightly = any(ast.unparse(mark) == "pytest.mark.nightly" for mark in node.decorator_list)
                found[promise].append(Proof(str(path.relative_to(directory.parent)), node.name, nightly))
    return found


def read_results(path: Path = RESULTS) -> dict[str, Any]:
    """Return what is known of earlier runs: `tests` by name without parameters, and `counts` of what they tried."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):  # never written, or by a run that was killed
        return {"tests": {}, "counts": {}}


def merge_results(tests: Mapping[str, str], counts: Mapping[str, Mapping[str, int]], *, path: Path = RESULTS) -> None:
    """Add the results of a run to those of earlier runs."""
    before = read_results(path)
    merged = {"tests": {**before["tests"], **tests}, "counts": {**before["counts"], **counts}}
    temporary = path.with_name(f"{path.name}-{os.getpid()}")
    temporary.write_text(json.dumps(merged, indent=1, sort_keys=True), encoding="utf-8")
    temporary.replace(path)


def table(found: Mapping[str, Sequence[Proof]], results: Mapping[str, Any]) -> Iterable[str]:
    """Yield the lines of promise -> tests -> last result, and below them what was tried in all."""
    for promise, tests in found.items():
        yield f"{promise:4}{PROMISES[promise]}"
        for proof in tests:
            result = results["tests"].get(f"{proof.path}::{proof.name}", "not run")
            yield f"      {result:8} {proof.path}::{proof.name}{' (nightly)' if proof.nightly else ''}"
        if not tests:
            yield "      MISSING  no test bears its name"
    totals: dict[str, int] = {}
    for counts in results["counts"].values():
        for what, number in counts.items():
            totals[what] = totals.get(what, 0) + number
    for what, number in sorted(totals.items()):
        yield f"{what}: {number}"


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 where a promise has no test or one whose last result was a failure."""
    parser = argparse.ArgumentParser(prog="scripts/promises", description="Which tests prove which promise.")
    parser.parse_args(arguments)
    found, results = proofs(), read_results()
    for line in table(found, results):
        print(line)
    failed = [
        proof.name
        for tests in found.values()
        for proof in tests
        if results["tests"].get(f"{proof.path}::{proof.name}") == "failed"
    ]
    missing = [promise for promise, tests in found.items() if not tests]
    print(f"{len(PROMISES)} promises, {len(missing)} without a test, {len(failed)} tests failed when they last ran")
    return 1 if missing or failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
