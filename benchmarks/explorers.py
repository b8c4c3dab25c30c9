"""B7: stepping alone, with random actions: `auto` against every other way to step the same environments.

    python -m benchmarks.explorers                        all environments, 1, 8 and 64 of each
    python -m benchmarks.explorers CartPole-v1 -n 8 --seconds 2

Each way is stepped in turn with what `auto` chose, a few milliseconds at a time, and the median of the ratios is told:
1.25 says that `auto` makes 1.25 times as many steps. At the end `auto` is compared with the best of all back ends of
digideep whose state can be saved.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, closing
from time import perf_counter
from typing import NamedTuple

from benchmarks.ways import ENVIRONMENTS, OURS, Stepped, Stepping, auto, ours, peers
from digideep.errors import DigideepError, one_line
from digideep.utility.device import granted_cores

__all__ = ["Compared", "main", "measure"]

_SHORT_S = 0.003  # what is timed at once, at least
_LEAST = 5  # pairs


class Compared(NamedTuple):
    """How `auto` does against one way: ratios above 1 where it makes more steps; rates in steps a second.

    Both rates are 0 where it has chosen that way itself.
    """

    environment: str
    num_envs: int
    way: str
    ratio: float
    auto_rate: float
    rate: float
    saves_state: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for, print it, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.explorers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environments", nargs="*", metavar="ID", help=f"default: {' '.join(ENVIRONMENTS)}")
    parser.add_argument("-n", type=int, nargs="+", default=[1, 8, 64], help="environments (default: 1 8 64)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each comparison (default: 1)")
    options = parser.parse_args(argv)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what environments say of themselves
        for name in options.environments or ENVIRONMENTS:
            for num_envs in options.n:
                _tell(name, num_envs, seconds=options.seconds)
    return 0


def measure(name: str, num_envs: int, *, seconds: float) -> tuple[str, list[Compared], list[str]]:
    """Return what `auto` chose, how it does against every other way, and why some ways are missing."""
    cores = granted_cores()
    compared: list[Compared] = []
    missing: list[str] = []
    chosen, choice = auto(name, num_envs)
    with closing(chosen):
        ways = [*ours(name, num_envs, cores=cores), *peers(name, num_envs, cores=cores)]
        # A process that is forked does not survive the threads which EnvPool has started.
        for way in sorted(ways, key=lambda way: "envpool" in way.name.lower()):
            if way.name == f"{OURS}: {choice}":
                compared.append(Compared(name, num_envs, way.name, 1.0, 0.0, 0.0, True))
                continue
            with ExitStack() as stack:
                try:
                    other = stack.enter_context(closing(way.make()))
                except Exception as error:  # whatever keeps a way from being measured: it is told
                    missing.append(f"{way.name}: {one_line(error, limit=150)}")
                    continue
                compared.append(_compare(chosen, other, way, name=name, num_envs=num_envs, seconds=seconds))
    return choice, compared, missing


def _compare(chosen: Stepping, other: Stepping, way: Stepped, *, name: str, num_envs: int, seconds: float) -> Compared:
    found: tuple[list[float], list[float]] = ([], [])
    end = perf_counter() + seconds
    while len(found[0]) < _LEAST or perf_counter() < end:
        for stepping, times in zip((chosen, other), found, strict=True):
            times.append(_look(stepping))
    ratio = statistics.median(theirs / mine for mine, theirs in zip(*found, strict=True))
    mine, theirs = (num_envs / statistics.median(times) for times in found)
    return Compared(name, num_envs, way.name, ratio, mine, theirs, other.saves_state)


def _look(stepping: Stepping) -> float:
    """Return the seconds of a step, over `_SHORT_S` or one step, after one that wakes up who has slept."""
    at_once = 8 if stepping.time(1) < _SHORT_S / 8 else 1
    taken, steps = 0.0, 0
    while taken < _SHORT_S:
        taken += at_once * stepping.time(at_once)
        steps += at_once
    return taken / steps


def _tell(name: str, num_envs: int, *, seconds: float) -> None:
    try:
        choice, compared, missing = measure(name, num_envs, seconds=seconds)
    except DigideepError as error:
        print(f"{name}: left out: {one_line(error, limit=150)}")
        return
    print(f"\n{name}, {num_envs} environments; auto: {choice}")
    for one in compared:
        rates = f"{one.auto_rate:>11,.0f} : {one.rate:>11,.0f} steps/s" if one.rate else "the same"
        print(f"  {one.ratio:6.2f}  against {one.way:<38} {rates}{', state saved' * one.saves_state}")
    for line in missing:
        print(f"     -    {line}")
    able = [one for one in compared if one.saves_state]
    if able:
        worst = min(able, key=lambda one: one.ratio)
        print(f"  {worst.ratio:6.2f}  against the best whose state is saved ({worst.way})")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
