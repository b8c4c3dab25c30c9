"""How long a save keeps training waiting.

    python -m benchmarks.save [--megabytes 256] [--saves 6] [--directory DIR]

Saves through the real saver into a temporary session: once the state of an agent of that size, all of which changes
between two saves, once a memory of segments of that size, all of which are new at each save, once both together, and
once a memory four times as large, of which a tenth is new. Between two saves training goes on, as far as the clock is
concerned: the next one begins when the one before is durable. The first save touches its memory for the first time.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from digideep.pipeline.checkpoint import CheckpointStore
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.logs import SessionLogs
from digideep.pipeline.saving import Origin, Saver
from digideep.pipeline.summary import Summary
from digideep.types import LiveSegments, Segment

_SEGMENT_BYTES = 512 << 10
_KEEP = {"keep_last": 2, "keep_best": 0, "keep_every": 0}

State = Callable[[int], dict[str, Any]]


class Figures(NamedTuple):
    """One series of saves: seconds that training waited, and seconds until each was durable."""

    blocked_s: list[float]
    durable_s: list[float]


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.save", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--saves", type=int, default=6)
    parser.add_argument("--directory", type=Path, help="on the disk in question; default: that of temporary files")
    options = parser.parse_args()
    size = options.megabytes << 20
    agent, memory, large = _agent(size), _memory(size, new=1.0), _memory(4 * size, new=0.1)
    cases: dict[str, State] = {
        f"agent of {options.megabytes} MB": lambda n: {"agents.agent": agent(n)},
        f"new segments of {options.megabytes} MB": lambda n: {"memory.train": memory(n)},
        "both": lambda n: {"agents.agent": agent(n), "memory.train": memory(n)},
        f"memory of {4 * options.megabytes} MB, a tenth of it new": lambda n: {"memory.train": large(n)},
    }
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, numpy {np.__version__}, "
        f"torch {torch.__version__}"
    )
    print(f"{'':44s} first    later saves: median and worst, waited     until durable")
    for name, state in cases.items():
        first, *later = zip(*_measure(state, options.saves, options.directory), strict=True)
        waited, durable = [one for one, _ in later], [one for _, one in later]
        print(
            f"{name:44s} {first[0]:5.3f} s  {statistics.median(waited):5.3f} s {max(waited):5.3f} s"
            f"{'':24s}{statistics.median(durable):5.2f} s",
            flush=True,
        )
    return 0


def _agent(size: int) -> State:
    """Return a state of 16 arrays, the same memory at each call."""
    arrays = {f"layer{index}": np.ones(size // 16 // 4, np.float32) for index in range(16)}
    return lambda number: dict(arrays)


def _memory(size: int, *, new: float) -> State:
    """Return the state of a ring in which that share of the segments is new at each call, the oldest going first."""
    count = size // _SEGMENT_BYTES
    ring = np.ones((count, _SEGMENT_BYTES // 4), np.float32)
    fresh = max(1, int(new * count))

    def state(number: int) -> dict[str, Any]:
        begin = number * fresh
        segments = [Segment(f"{index:06d}-1", {"rows": ring[index % count]}) for index in range(begin, begin + count)]
        return {"cursor": begin, "segments": LiveSegments(segments)}

    return state


def _measure(state: State, saves: int, place: Path | None) -> Figures:
    with tempfile.TemporaryDirectory(dir=place, prefix="digideep-save-") as directory:
        paths = SessionPaths(Path(directory))
        logs = SessionLogs(paths, cpu=False, gpu=False)
        store = CheckpointStore(paths.checkpoints, session_id="benchmark", run_id="benchmark")
        announced: list[float] = []
        saver = Saver(
            paths, store=store, logs=logs, summary=Summary(), say=lambda line: announced.append(time.monotonic())
        )
        origin = Origin({"runner": _KEEP}, "cpu", "exact")
        progress = {"epoch": 0, "frame": 0, "episode": 0, "frames_per_s": 0.0, "last_test": None}
        blocked_s, durable_s = [], []
        for number in range(saves):
            began = time.monotonic()
            saver.begin(number, state(number), progress, origin=origin, begun_at=began)
            blocked_s.append(time.monotonic() - began)
            saver.look(wait=True)
            durable_s.append(announced[-1] - began)
        logs.stop()
    return Figures(blocked_s, durable_s)


if __name__ == "__main__":
    sys.exit(main())
