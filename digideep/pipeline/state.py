"""What the runner itself remembers: how far it is, and what the last test said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, get_type_hints

from digideep.errors import CheckpointError, one_line
from digideep.types import Counters, Episode, StateDict

__all__ = ["Goal", "RunnerState", "ScoredTest", "mean_and_deviation", "numbers_of"]

Numbers = TypeVar("Numbers", bound=tuple[Any, ...])

_KINDS: Mapping[Any, tuple[type, ...]] = {int: (int,), float: (int, float), bool: (bool,)}


def numbers_of(kind: type[Numbers], state: Mapping[str, Any], *, where: str) -> Numbers:
    """Return the NamedTuple `kind` with the numbers of a checkpoint; other keys are ignored.

    Raises:
        CheckpointError: one is missing, or of another type than `kind` declares; `where` is named.
    """
    values: dict[str, Any] = {}
    for name, declared in get_type_hints(kind).items():
        value = values[name] = state.get(name) if isinstance(state, Mapping) else None
        if type(value) not in _KINDS.get(declared, (type(value),)):
            found = one_line(repr(value), limit=60)
            raise CheckpointError(
                f"{where}/{name}: expected {declared.__name__}, found {found}; take another checkpoint"
            )
    return kind(**values)


def mean_and_deviation(episodes: Sequence[Episode]) -> tuple[float, float]:
    """Return the mean return of at least one episode, and the deviation of the returns as a population."""
    returns = [episode.return_ for episode in episodes]
    mean = math.fsum(returns) / len(returns)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in returns) / len(returns))


class Goal(NamedTuple):
    """When a run is done: the first of epochs and frames is 0 where the other one counts."""

    n_epochs: int
    total_frames: int
    stop_return: float | None


class ScoredTest(NamedTuple):
    """What a test found: returns over `n` episodes."""

    epoch: int
    frame: int
    mean_return: float
    std_return: float
    n: int

    @classmethod
    def of(cls, episodes: Sequence[Episode], *, epoch: int, frame: int) -> ScoredTest:
        """Return the summary of `episodes`; the deviation is that of the population."""
        mean, deviation = mean_and_deviation(episodes)
        return cls(epoch=epoch, frame=frame, mean_return=mean, std_return=deviation, n=len(episodes))

    def to_plain(self) -> dict[str, Any]:
        """Return plain data."""
        return self._asdict()


class RunnerState(NamedTuple):
    """Where a run stands.

    `pending` is True between the last cycle of an epoch and the end of its test and log.
    """

    epoch: int = 0
    cycle: int = 0  # since the beginning: the number of a checkpoint saved now
    epoch_cycles: int = 0  # in the epoch that is running
    pending: bool = False
    last_test: ScoredTest | None = None

    def after_cycle(self, *, n_cycles: int, goal: Goal, counters: Counters) -> RunnerState:
        """Return the state after one more cycle; an epoch ends after `n_cycles`, or early where frames are the goal."""
        epoch_cycles = self.epoch_cycles + 1
        ended = epoch_cycles >= n_cycles or 0 < goal.total_frames <= counters.env_steps
        return self._replace(cycle=self.cycle + 1, epoch_cycles=epoch_cycles, pending=ended)

    def next_epoch(self) -> RunnerState:
        """Return the state with the running epoch counted."""
        return self._replace(epoch=self.epoch + 1, epoch_cycles=0)

    def tested(self, result: ScoredTest) -> RunnerState:
        """Return the state after a test."""
        return self._replace(last_test=result)

    def settled(self) -> RunnerState:
        """Return the state with the epoch's test and log done."""
        return self._replace(pending=False)

    def reached(self, goal: Goal, *, counters: Counters) -> str:
        """Return which goal is reached, or an empty string."""
        if goal.stop_return is not None and self.last_test and self.last_test.mean_return >= goal.stop_return:
            return f"goal: mean return {self.last_test.mean_return:.6g} of a test, at least {goal.stop_return:g}"
        if 0 < goal.n_epochs <= self.epoch:
            return f"goal: {goal.n_epochs} epochs"
        if 0 < goal.total_frames <= counters.env_steps:
            return f"goal: {goal.total_frames} frames"
        return ""

    def to_plain(self) -> StateDict:
        """Return plain data for a checkpoint."""
        return {**self._asdict(), "last_test": None if self.last_test is None else self.last_test.to_plain()}

    @classmethod
    def from_plain(cls, state: Mapping[str, Any]) -> RunnerState:
        """Return the state that `to_plain` wrote; other keys are ignored."""
        found = numbers_of(cls, state, where="runner")
        if found.last_test is None:
            return found
        return found._replace(last_test=numbers_of(ScoredTest, state["last_test"], where="runner/last_test"))
