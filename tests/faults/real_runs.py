"""The program by real exec, killed at random moments and started again by the same command."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ledger import Tally

__all__ = ["kill_at_random"]


def _number(line: str) -> int:
    return int(line.rpartition("-")[2])


def _start(argv: Sequence[str], *, cwd: Path, stderr: IO[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "digideep.main", *argv]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=cwd, env=environment)


def kill_at_random(argv: Sequence[str], *, cwd: Path, kills: int, tally: Tally) -> Path:
    """Kill the command `argv`, which has --autoresume, `kills` times, let it end, and return its session.

    Most are killed a random time after they have announced a checkpoint, every fourth a random time after its start.

    Raises:
        AssertionError: what was announced was not there for the next start.
    """
    seed = random.randrange(2**32)
    print("seed", seed)
    rng, announced = random.Random(seed), -1
    for kill in range(kills):
        lines = []
        with open(cwd / f"stderr-{kill}", "w") as stderr, _start(argv, cwd=cwd, stderr=stderr) as process:
            assert process.stdout is not None
            if kill % 4 != 3:
                lines += _until_saved(process.stdout)
                time.sleep(rng.random() * 0.15)
            else:
                time.sleep(rng.random() * 3.0)
            process.kill()
            lines += process.stdout.read().split("\n")[:-1]
        announced = _check(lines, announced, where=f"seed {seed}, kill {kill}: {lines}")
        tally["kills of the program"] += 1
    with open(cwd / "stderr-last", "w") as stderr, _start(argv, cwd=cwd, stderr=stderr) as process:
        lines = process.communicate()[0].splitlines()
    assert process.returncode == 0, (cwd / "stderr-last").read_text()
    _check(lines, announced, where=f"seed {seed}, at the end: {lines}")
    return Path(lines[0].removeprefix("session: "))


def _until_saved(stdout: IO[str]) -> list[str]:
    lines = []
    for line in stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("saved "):
            return lines
    return lines  # it had reached its goal, or ended with an error, which `_check` sees


def _check(lines: list[str], announced: int, *, where: str) -> int:
    """Return the last number announced so far; a start has to go on from what was announced, or complete and later."""
    for line in lines:
        if line.startswith("autoresume: resumed "):
            assert _number(line) >= announced, where
        if line.startswith(("autoresume: new", "autoresume: restarted")):
            assert announced < 0, where
    return max([announced, *(_number(line) for line in lines if line.startswith("saved "))])
