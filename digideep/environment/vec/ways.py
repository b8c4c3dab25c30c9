"""How one kind of environments is stepped, which changes no bit, and which way is the fastest: measured in turn.

Two ways are stepped in turn, a few milliseconds each, and of each the lower quartile counts: a load of the machine that
comes and goes meets both alike, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from digideep.environment.vec.base import VecEnv
from digideep.environment.vec.slab import RESET, RUN
from digideep.spec import ArraySpec

__all__ = ["HERE", "Trial", "Way", "candidates", "compare", "first_figure"]

_ROWS = 16
_SHORT_S = 0.001  # what is timed at once, at least
_ENOUGH = 9  # pairs, before a clear answer ends a comparison
_CLEAR = 1.5  # times as fast
_SLOW_S = 0.25  # a step of the own share that takes longer would keep a death of a worker from being seen in time


class Way(NamedTuple):
    """How environments are stepped: in how many workers, and whether this process steps a share beside them."""

    num_workers: int = 0
    parent_steps: bool = False

    def __str__(self) -> str:
        """Return it in words."""
        if self.num_workers == 0:
            return "this process"
        workers = f"{self.num_workers} worker{'s' if self.num_workers > 1 else ''}"
        return f"{workers} and this process" if self.parent_steps else workers


HERE = Way()


def candidates(*, num_envs: int, cores: int, step_s: float, parent_steps: bool) -> list[Way]:
    """Return the ways that may be faster than this process, whose step of all environments takes `step_s`.

    Two processes, and one for each core; this process is one of them where it may be and steps its share fast enough
    to look after the workers in time.
    """
    most = min(cores, num_envs)
    counts = sorted({count for count in (2, most) if 2 <= count <= most})
    return [
        Way(count - 1, True) if parent_steps and step_s / count <= _SLOW_S else Way(count, False) for count in counts
    ]


class Trial:
    """Environments that are stepped with random actions, to be measured.

    Args:
        vec: fresh ones; closed by whoever made them.
    """

    def __init__(self, vec: VecEnv) -> None:
        self._vec = vec
        slab = vec.attach(_ROWS)
        rng = np.random.default_rng(0)
        for slot, array in slab.actions.items():
            array[...] = _random_actions(vec.spec.actions[slot], array, rng)
        slab.next_seeds[:] = np.arange(vec.num_envs)
        slab.modes.fill(RESET)
        vec.reset(_ROWS)
        slab.modes.fill(RUN)
        self._t = 0
        self.time(1)  # the first step pays for what is made at first use

    def time(self, steps: int) -> float:
        """Return the seconds of a step, over `steps` of them."""
        start = perf_counter()
        for _ in range(steps):
            self._vec.step(self._t)
            self._t = (self._t + 1) % _ROWS
        return (perf_counter() - start) / steps

    def look(self) -> float:
        """Return the seconds of a step, over a millisecond or one step, after one that wakes up who has slept."""
        self.time(1)
        taken, steps = 0.0, 0
        while taken < _SHORT_S:
            taken += self.time(1)
            steps += 1
        self._vec.collect()
        return taken / steps


def first_figure(trial: Trial, *, seconds: float) -> float:
    """Return the seconds of a step, from short looks for `seconds` together, one at least."""
    found: list[float] = []
    end = perf_counter() + seconds
    while not found or perf_counter() < end:
        found.append(trial.time(1))
    return _undisturbed(found)


def compare(one: Trial, other: Trial, *, seconds: float) -> float:
    """Return how many times as fast the `other` is; ends early where it clearly is faster."""
    found: tuple[list[float], list[float]] = ([], [])
    end = perf_counter() + seconds
    while True:
        found[0].append(one.look())
        found[1].append(other.look())
        first, second = map(_undisturbed, found)
        # A load of the machine makes more processes slower than they are, hardly ever faster: only that can be clear.
        if (len(found[0]) >= _ENOUGH and first > _CLEAR * second) or perf_counter() >= end:
            return first / second


def _undisturbed(found: Sequence[float]) -> float:
    """Return the lower quartile: what is found while others do not use the cores too."""
    return sorted(found)[len(found) // 4]


def _random_actions(spec: ArraySpec, like: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if spec.kind == "box":
        return np.asarray(rng.uniform(-1.0, 1.0, like.shape))
    high = 2 if spec.kind == "multi_binary" else np.asarray(spec.n).reshape(spec.shape)
    return np.asarray(rng.integers(0, high, like.shape))
