"""What every contender's program shares: its command line, and the clock and the returns of its run.

Standard library only: the programs of the peers run with the Python of their own environment.
"""

from __future__ import annotations

import argparse
import bisect
import pathlib
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from benchmarks.result import POINTS, Result
from benchmarks.settings import SETTINGS, PPOSetting, ReplaySetting

__all__ = ["Facts", "Track", "parse_options", "peak_memory_mb"]


def parse_options(arguments: Sequence[str] | None = None, **more: str) -> argparse.Namespace:
    """Return the options of a contender's program: `id` and `setting`, `seed`, `frames`, `threads`, and `more`.

    Args:
        arguments: of the command line, by default those of this process.
        more: further options by name, with their defaults.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("id", choices=sorted(SETTINGS))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    for name, default in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default=default)
    options = parser.parse_args(arguments)
    options.setting = SETTINGS[options.id]
    return options


class Facts(NamedTuple):
    """What a contender knows when its run is over."""

    contender: str
    rows: int
    gradient_steps: int
    parameters: int
    versions: Mapping[str, str]
    choices: Mapping[str, str]
    profile: Mapping[str, float] = MappingProxyType({})


class _Mark(NamedTuple):
    """The end of an iteration."""

    frames: int
    at: float
    episodes: int


class Track:
    """The clock of a run: mark 0 is the start of the first iteration, mark k the end of the k-th.

    Speed is measured from the first mark of an iteration's end that has the setting's `measured_from` frames.

    Args:
        began: `time.perf_counter()` at the start of the program.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._marks: list[_Mark] = []
        self.returns: list[float] = []
        self._ended_at: list[float] = []

    @property
    def iterations(self) -> int:
        """Iterations that have ended."""
        return len(self._marks) - 1

    @property
    def frames(self) -> int:
        """Frames at the newest mark."""
        return self._marks[-1].frames

    def mark(self, frames: int) -> None:
        """Note the start of the first iteration or the end of one, after so many frames."""
        self._marks.append(_Mark(frames, time.perf_counter(), len(self.returns)))

    def episode(self, return_: float, *, at: float | None = None) -> None:
        """Note the return of a training episode that ended now, or `at` that reading of `time.perf_counter()`."""
        self.returns.append(return_)
        self._ended_at.append(time.perf_counter() if at is None else at)

    def fill_in(self, returns: Sequence[float]) -> None:
        """Give the episodes noted so far their returns, where only their number was known.

        Raises:
            ValueError: there are more or fewer.
        """
        if len(returns) != len(self.returns):
            raise ValueError(f"track: expected the returns of {len(self.returns)} episodes, found {len(returns)}")
        self.returns[:] = returns

    def result(self, setting_id: str, *, seed: int, facts: Facts, ended: float | None = None) -> Result:
        """Return what the run reports; it ends now, or at that reading of `time.perf_counter()`."""
        setting = SETTINGS[setting_id]
        warm, last = self._warm(setting), self._marks[-1]
        ended = time.perf_counter() if ended is None else ended
        return Result(
            contender=facts.contender,
            setting=setting_id,
            seed=seed,
            frames=last.frames,
            rows=facts.rows,
            gradient_steps=facts.gradient_steps,
            parameters=facts.parameters,
            episodes=len(self.returns),
            steps_per_s=(last.frames - warm.frames) / (ended - warm.at),
            startup_s=warm.at - self._began,
            final_return=self._mean_before(len(self.returns), window=setting.window),
            solved_s=self._solved_s(setting),
            peak_mb=peak_memory_mb(),
            curve=self._curve(setting.window),
            versions=dict(facts.versions),
            choices=dict(facts.choices),
            profile=dict(facts.profile),
        )

    def _warm(self, setting: PPOSetting | ReplaySetting) -> _Mark:
        """Return the mark from which the speed is measured."""
        after = (mark for mark in self._marks[1:] if mark.frames >= setting.measured_from)
        return next(after, self._marks[-1])

    def _curve(self, window: int) -> list[float | None]:
        marks = self._marks
        frames = [mark.frames for mark in marks]
        points = [frames[-1] * number // POINTS for number in range(1, POINTS + 1)]
        ended = [marks[bisect.bisect_left(frames, point)].episodes for point in points]
        return [self._mean_before(episodes, window=window) for episodes in ended]

    def _mean_before(self, episodes: int, *, window: int) -> float | None:
        newest = self.returns[max(0, episodes - window) : episodes]
        return statistics.fmean(newest) if newest else None

    def _solved_s(self, setting: PPOSetting | ReplaySetting) -> float | None:
        if setting.solved is None:
            return None
        total, window = 0.0, setting.window
        for index, return_ in enumerate(self.returns):
            total += return_ - (self.returns[index - window] if index >= window else 0.0)
            if index >= window - 1 and total / window >= setting.solved:
                return self._ended_at[index] - self._marks[0].at
        return None


def peak_memory_mb() -> float:
    """Return the largest resident memory that this program has had, in MB of 2**20 bytes."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():  # the kernel's other figure also counts the process that started this one
        line = next(line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
