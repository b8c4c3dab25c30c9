"""What every way of stepping environments keeps to: rows of a slab, and one rule at the end of an episode.

The rule: the step after an episode's last one resets and ignores its action. It writes reward 0, termination 0, the
first observation of the new episode and mask 0. So transition `t` is real if and only if `masks[t+1] == 1`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from digideep.environment.vec.slab import Slab
from digideep.errors import DigideepError, UsageError
from digideep.spec import EnvSpec
from digideep.types import Progress

if TYPE_CHECKING:
    from digideep.utility.profiling import TimerNode

__all__ = ["FinishedEpisode", "Place", "VecEnv", "share", "traced"]


class Place(NamedTuple):
    """Which environment failed, and in which call: `reset` or `step`."""

    env: int
    phase: str


class FinishedEpisode(NamedTuple):
    """An episode that ended; `tick` counts the steps that all environments had made together by then."""

    tick: int
    env: int
    number: int
    return_: float
    length: int
    seed: int | None
    metrics: dict[str, float]


class VecEnv(ABC):
    """Environments that step together.

    Attributes:
        spec: of one environment; all are alike.
        num_envs, num_workers: how many environments, and processes beside this one that hold them.
        slab: the memory; None before `attach`.
    """

    spec: EnvSpec
    num_envs: int
    num_workers: int
    slab: Slab | None

    @property
    @abstractmethod
    def tick(self) -> int:
        """Number of steps made."""

    @property
    @abstractmethod
    def obstacle(self) -> str:
        """Why a state cannot be saved, or an empty text."""

    @abstractmethod
    def attach(self, n_steps: int) -> Slab:
        """Make the slab for chunks of `n_steps`, once, and return it."""

    @abstractmethod
    def reset(self, row: int) -> None:
        """Begin an episode in every environment whose mode is RESET: observation and mask 0 go to `row`."""

    @abstractmethod
    def step(self, t: int) -> None:
        """Read the actions of row `t`; write rewards and terminations there, observations and masks to row `t+1`."""

    @abstractmethod
    def collect(self) -> list[FinishedEpisode]:
        """Return the episodes that ended since the last call, by time and then by environment."""

    @abstractmethod
    def states(self) -> list[dict[str, Any]]:
        """Return the state of each environment and of its running episode, in order, as plain data."""

    @abstractmethod
    def load_states(self, states: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Take over what `states` returned; the environments in the answer could not and must be reset: with why."""

    @abstractmethod
    def origin(self, env: int) -> dict[str, Any] | None:
        """Return what the running episode began with: `seed`, or `rng`, the generator's state before an unseeded reset.

        None where it began in another process, before a resume.
        """

    @abstractmethod
    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every environment that has `set_progress`."""

    @abstractmethod
    def worker_of(self, env: int) -> int:
        """Return the number of the worker that holds an environment; 0 in this process."""

    def timings(self) -> Mapping[str, TimerNode]:
        """Return the timers of the workers since the last call."""
        return {}

    def render(self, env: int) -> Any:
        """Return what `render()` of an environment gives.

        Raises:
            UsageError: the environment lives in another process.
        """
        raise UsageError(f"environment {env}: expected one of this process to be shown, found one of a worker")

    @abstractmethod
    def close(self) -> None:
        """Close every environment and end every process; harmless when repeated."""


def share(num_envs: int, num_workers: int) -> list[range]:
    """Return which environments each worker holds: neighbours, the first workers one more where it does not divide."""
    each, more = divmod(num_envs, num_workers)
    shares = []
    first = 0
    for worker in range(num_workers):
        count = each + (worker < more)
        shares.append(range(first, first + count))
        first += count
    return shares


def traced(error: DigideepError, text: str, place: Place | None = None) -> DigideepError:
    """Return `error` with two attributes: `traceback_text`, of the user's exception, for the text log, and `place`."""
    error.traceback_text = text  # type: ignore[attr-defined]
    error.place = place  # type: ignore[attr-defined]
    return error
