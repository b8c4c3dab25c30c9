"""Figures that no training gives: B7, B8, B10 and the limits, each measured in turns with what it is compared with."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.installing import ROOT, is_installed, python_of
from benchmarks.measure import Cores, Failed, output_of, run_command, say
from benchmarks.settings import REPLAY_SETTINGS, SETTINGS
from benchmarks.tables import Figure

__all__ = ["error_s", "limits", "paired", "single_operations", "start_up", "stepping"]

_LONGEST_S = 600.0
_SB3 = "Stable-Baselines3"
_NOTES = {"save, until it is durable": f"{_SB3}, which does not wait for the disk"}
_LIMITED = ("B1", "B2", "B3-pendulum", "B3-halfcheetah", "B4", "B5", "B6")
_PRESET = ("-m", "digideep.main", "--params", "digideep.params.cartpole_ppo", "--set")


def single_operations(*, repetitions: int, cores: Cores) -> list[Figure]:
    """Return the figures of B8: ours against Stable-Baselines3, where it is installed, and against our other ways."""
    has_peer = is_installed("sb3")
    if not has_peer:
        say("stable-baselines3: is not installed and is left out of B8; scripts/bench --setup installs it")
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for number in range(1, repetitions + 1):
        ours.append(json.loads(_output([sys.executable, "-m", "benchmarks.micro"], cores)))
        if has_peer:
            program = str(ROOT / "benchmarks" / "peers" / "sb3_micro.py")
            theirs.append(json.loads(_output([str(python_of("sb3")), program], cores)))
        say(f"  B8, repetition {number}")
    return paired(ours, theirs)


def paired(ours: Sequence[dict[str, float]], theirs: Sequence[dict[str, float]]) -> list[Figure]:
    """Return one figure for each operation and thing that it is compared with.

    Args:
        ours: one repetition each, by name; `NAME / OTHER` is what NAME is compared with in the same process.
        theirs: repetitions of the peer, by the same names.

    Raises:
        ValueError: the peer has a name that we do not have.
    """
    unknown = set().union(*theirs) - set(ours[0])
    if unknown:
        raise ValueError(f"B8: expected operations of benchmarks.micro, found {', '.join(sorted(unknown))}")
    found = []
    for name in ours[0]:
        operation, _, other = name.partition(" / ")
        mine = [repetition[operation] for repetition in ours]
        if other:
            found.append(Figure(operation, "us", other, mine, [repetition[name] for repetition in ours]))
        elif theirs and name in theirs[0]:
            found.append(Figure(name, "us", _NOTES.get(name, _SB3), mine, [repetition[name] for repetition in theirs]))
    return found


def start_up(*, repetitions: int, cores: Cores) -> list[Figure]:
    """Return the figures of B10: seconds more than those of an interpreter that does nothing, or imports torch."""
    python = sys.executable
    nothing, torch = "python -c pass", 'python -c "import torch"'
    measures: list[tuple[str, str, Callable[[], float]]] = [
        ("`digideep --help`", nothing, lambda: _wall([python, "-m", "digideep.main", "--help"], cores)),
        ("error in a knob", nothing, lambda: error_s("lr=fast", cores, says="'fast'")),
        ("error in an environment id", nothing, lambda: error_s("model_name=CartPol-v1", cores, says="CartPole-v1")),
        ("first update of `cartpole_ppo`", torch, lambda: _first_update(cores)),
    ]
    others: dict[str, Callable[[], float]] = {
        nothing: lambda: _wall([python, "-c", "pass"], cores),
        torch: lambda: _wall([python, "-c", "import torch"], cores),
    }
    taken: dict[str, list[float]] = {name: [] for name in (*others, *(name for name, _, _ in measures))}
    for number in range(1, repetitions + 1):
        for name, measure in (*others.items(), *((name, measure) for name, _, measure in measures)):
            taken[name].append(measure())
        say(f"  B10, repetition {number}")
    return [
        Figure(name, "s", f"`{against}`", taken[name], taken[against], compares="difference")
        for name, against, _ in measures
    ]


def limits(*, repetitions: int, cores: Cores) -> list[Figure]:
    """Return what the parts of each benchmark's training take at least.

    The group of a figure is the benchmark, for SAC followed by the library: `B5 numpy`.
    """
    found: dict[tuple[str, str], Figure] = {}
    for number in range(1, repetitions + 1):
        for name in _LIMITED:
            threads = SETTINGS[name].threads[cores.number - 1]
            program = "benchmarks.limits_replay" if name in REPLAY_SETTINGS else "benchmarks.limits"
            command = [sys.executable, "-m", program, name, str(threads)]
            for group, parts in json.loads(_output(command, Cores(cores.number, threads))).items():
                for part, taken in parts.items():
                    figure = found.setdefault((group, part), Figure(part, "us", "", [], [], group=group))
                    figure.ours.append(taken)
        say(f"  limits, repetition {number}")
    return list(found.values())


def stepping(*, repetitions: int, cores: Cores) -> list[Figure]:
    """Return the figures of B7: what `auto` chose against every other way to step the same environments.

    The group of a figure is `saves state` where that way can resume to the same bits.
    """
    found: dict[tuple[str, str], Figure] = {}
    for number in range(1, repetitions + 1):
        for row in json.loads(_output([sys.executable, "-m", "benchmarks.stepping"], cores, longest_s=3600.0)):
            if not row["rate"]:  # what `auto` chose is not compared with itself
                continue
            name, way = f"{row['environment']} x {row['num_envs']}", str(row["way"])
            group = "saves state" if row["saves_state"] else ""
            figure = found.setdefault((name, way), Figure(name, "steps/s", way, [], [], compares="rate", group=group))
            # The ratio is the median of pairs, which the two medians of the rates do not give.
            figure.ours.append(row["ratio"] * row["rate"])
            figure.theirs.append(row["rate"])
        say(f"  B7, repetition {number}")
    return list(found.values())


def _output(command: Sequence[str], cores: Cores, *, longest_s: float = _LONGEST_S) -> str:
    try:
        return output_of(command, cores, longest_s=longest_s)
    except Failed as error:
        raise Failed(f"{' '.join(command)}: {error}") from error


def error_s(change: str, cores: Cores, *, says: str) -> float:
    """Return the seconds until a wrong change of a preset is told.

    Raises:
        Failed: the error is another one, whose line does not have `says` in it.
    """
    return _wall([sys.executable, *_PRESET, change], cores, expected=2, says=says)


def _wall(command: Sequence[str], cores: Cores, *, expected: int = 0, says: str = "") -> float:
    began = time.monotonic()
    finished = run_command(command, cores)
    taken = time.monotonic() - began
    if finished.returncode != expected:
        raise Failed(f"{' '.join(command)}: expected exit code {expected}, found {finished.returncode}")
    if says not in finished.stderr:
        raise Failed(f"{' '.join(command)}: expected an error with {says}, found {finished.stderr.strip()[:300]}")
    return taken


def _first_update(cores: Cores) -> float:
    began = time.monotonic()
    return float(_output([sys.executable, "-m", "benchmarks.startup", str(began)], cores))
