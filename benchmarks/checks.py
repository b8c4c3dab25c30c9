"""What looking for numbers that are not finite costs: calls in an epoch x microseconds a call, against the epoch.

    python -m benchmarks.checks [--epochs 3]

Trains the preset `cartpole_ppo` with the real program, counts the calls of every check, then times each check alone on
what it was last given in that run. A check that is one expression inside another function is timed as that expression.
The times are the best of several rounds, since the machine may be shared; that of an epoch is the shortest one, so that
the share is, if anything, too large.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import platform
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_ROUNDS = 7
_PER_ROUND = 2000


class Cost(NamedTuple):
    """One check: how often an epoch makes it, and how long it takes."""

    name: str
    calls: float
    microseconds: float

    @property
    def seconds(self) -> float:
        """In an epoch."""
        return self.calls * self.microseconds * 1e-6


class Counted:
    """Stands in for a function of a module or class, counts its calls and keeps the last arguments.

    With `among` only calls with so many positional arguments count.
    """

    def __init__(self, owner: Any, name: str, *, among: int | None = None) -> None:
        self.calls = 0
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self.function: Callable[..., Any] = getattr(owner, name)

        def counted(*positional: Any, **named: Any) -> Any:
            if among in (None, len(positional)):
                self.calls += 1
                self.arguments = (positional, named)
            return self.function(*positional, **named)

        setattr(owner, name, counted)

    def microseconds(self) -> float:
        """Return the time of a call with the last arguments."""
        positional, named = self.arguments
        return _microseconds(lambda: self.function(*positional, **named))


def main() -> int:
    """Train, measure, and print a line for each check and the share of all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checks", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    costs, epoch_s = _measure(epochs)
    for cost in costs:
        print(
            f"  {cost.name:44s} {cost.calls:8.0f} calls x {cost.microseconds:7.3f} us = {1000 * cost.seconds:7.3f} ms"
        )
    total = sum(cost.seconds for cost in costs)
    print(f"an epoch takes {epoch_s:.3f} s, its checks {1000 * total:.2f} ms: {100 * total / epoch_s:.2f} %")
    return 0


def _measure(epochs: int) -> tuple[list[Cost], float]:
    import digideep
    from digideep.agent.rollout import policy
    from digideep.environment import explorer
    from digideep.environment.playing import ActionGuard
    from digideep.model.flat import FlatParameters
    from digideep.params.cartpole_ppo import cpanel
    from digideep.pipeline import contents
    from digideep.pipeline.runner import Runner

    called = {
        "actions before they reach the environments": Counted(ActionGuard, "check"),
        "outputs of the policy, of a step": Counted(policy, "check_finite", among=2),
        "outputs and values of a chunk": Counted(policy, "check_finite", among=3),
        "observations and rewards of a chunk": Counted(explorer, "first_bad"),
        "the state of a save (every fifth epoch)": Counted(contents, "_check_finite"),
    }
    clipped = Counted(FlatParameters, "clip_gradients")
    ends: list[float] = []
    log = Runner.log

    def watched(runner: Runner) -> None:
        log(runner)
        ends.append(time.perf_counter())

    Runner.log = watched  # type: ignore[method-assign]
    frames = cpanel["num_envs"] * cpanel["n_steps"] * cpanel["epoch_size"]
    with tempfile.TemporaryDirectory() as directory:
        knobs = {"total_frames": 0, "number_epochs": epochs, "stop_return": None, "test_activate": False}
        digideep.run("digideep.params.cartpole_ppo", cpanel=knobs, session_path=directory, log_level="error")
    epoch_s = min(b - a for a, b in itertools.pairwise(ends))
    costs = [Cost(name, counted.calls / epochs, counted.microseconds()) for name, counted in called.items()]
    costs += _expressions(clipped, frames=frames, epochs=epochs)
    return costs, epoch_s


def _expressions(clipped: Counted, *, frames: int, epochs: int) -> list[Cost]:
    """Return what the checks cost that are expressions in functions which do more."""
    largest, reward, norm = float(np.finfo(np.float32).max), 1.0, 0.5
    calls = timeit.Timer(lambda: None)
    nothing = min(calls.repeat(_ROUNDS, _PER_ROUND)) / _PER_ROUND * 1e6
    expressions: list[tuple[str, float, Callable[[], Any]]] = [
        ("each reward", frames, lambda: not -largest <= reward <= largest),
        ("norm of the gradient, loss", 2 * clipped.calls / epochs, lambda: not math.isfinite(norm)),
    ]
    return [Cost(name, count, max(0.0, _microseconds(act) - nothing)) for name, count, act in expressions]


def _microseconds(act: Callable[[], Any]) -> float:
    return min(timeit.Timer(act).repeat(_ROUNDS, _PER_ROUND)) / _PER_ROUND * 1e6


if __name__ == "__main__":
    sys.exit(main())
