"""What the profiler costs: microseconds a stamp and a block, and its share of B1.

    python -m benchmarks.profiler [--frames 61440]

A short run of B1 says how often each block is entered; the costs are those of loops that do nothing else. Times are the
best of several rounds, since the machine may be shared.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple

import digideep
from digideep.utility.profiling import TimerStack

__all__ = ["Costs", "measure", "share_of_b1"]

_ROUNDS = 15
_LOOPS = 20_000
_FOLDED = frozenset({"act", "store", "envstep"})  # phases of the step loop, whose stamps are added once a chunk
_PHASES = 3


class Costs(NamedTuple):
    """Microseconds that one stamp of the step loop or one block takes."""

    stamp: float
    prebuilt_block: float
    block_by_name: float
    switched_off: float


class Share(NamedTuple):
    """How often a run has called the profiler, and for how much of its time."""

    stamps: int
    blocks: int
    seconds: float
    of_seconds: float

    @property
    def percent(self) -> float:
        """Of the run."""
        return 100.0 * self.seconds / self.of_seconds


def measure() -> Costs:
    """Return what stamps and blocks cost here, the loop around them subtracted."""
    stack, off = TimerStack(), TimerStack(level=0)
    blocks, blocks_off = stack.block("prebuilt"), off.block("off")

    def prebuilt(loops: int) -> None:
        for _ in range(loops):
            with blocks:
                pass

    def by_name(loops: int) -> None:
        for _ in range(loops):
            with stack.block("prebuilt"):
                pass

    def switched_off(loops: int) -> None:
        for _ in range(loops):
            with blocks_off:
                pass

    empty = _best_us(_nothing)
    return Costs(
        stamp=(_best_us(_folded) - empty) / _PHASES,
        prebuilt_block=_best_us(prebuilt) - empty,
        block_by_name=_best_us(by_name) - empty,
        switched_off=_best_us(switched_off) - empty,
    )


def share_of_b1(costs: Costs, *, frames: int) -> Share:
    """Return the calls of a run of B1, taken from its timers, times their costs."""
    with tempfile.TemporaryDirectory() as directory:
        session = digideep.run(
            "benchmarks.params_ppo",
            {"seed": 1, "total_frames": frames},
            session_path=directory,
            log_level="error",
        )
        tree = json.loads((Path(session.paths.root) / "timers.json").read_text(encoding="utf-8"))
    counts = list(_counts(tree["children"], ""))
    stamps = sum(count for name, count in counts if name in _FOLDED)
    blocks = sum(count for name, count in counts if name not in _FOLDED)
    seconds = (stamps * costs.stamp + blocks * costs.prebuilt_block) * 1e-6
    return Share(stamps, blocks, seconds, float(tree["children"]["cycle"]["total"]))


def _counts(children: Mapping[str, Any], parent: str) -> Iterator[tuple[str, int]]:
    """Give how often each block was entered; a block of the step loop by its name alone, any other by its path."""
    for name, node in children.items():
        path = f"{parent}/{name}"
        yield (name if parent == "/cycle/explore" and name in _FOLDED else path), int(node["count"])
        yield from _counts(node["children"], path)


def _nothing(loops: int) -> None:
    for _ in range(loops):
        pass


def _folded(loops: int) -> None:
    """Take the stamps that `digideep.environment.playing.sample` takes."""
    act_ns = store_ns = step_ns = steps = 0
    now = perf_counter_ns()
    for _ in range(loops):
        acted = perf_counter_ns()
        stored = perf_counter_ns()
        act_ns += acted - now
        store_ns += stored - acted
        now = perf_counter_ns()
        step_ns += now - stored
        steps += 1


def _best_us(loop: Callable[[int], None]) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        began = perf_counter()
        loop(_LOOPS)
        best = min(best, perf_counter() - began)
    return best / _LOOPS * 1e6


def main() -> None:
    """Measure, and print one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=61_440)
    costs = measure()
    print(f"stamp of the step loop  {costs.stamp:.3f} us")
    print(f"prebuilt block          {costs.prebuilt_block:.3f} us")
    print(f"block by name           {costs.block_by_name:.3f} us")
    print(f"block, switched off     {costs.switched_off:.3f} us")
    share = share_of_b1(costs, frames=parser.parse_args().frames)
    print(
        f"B1: {share.stamps} stamps and {share.blocks} blocks take {1e3 * share.seconds:.2f} ms, {share.percent:.2f} %"
    )


if __name__ == "__main__":
    main()
