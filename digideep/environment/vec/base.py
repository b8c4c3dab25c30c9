"""What every way of stepping environments keeps to: rows of a slab, and one rule at the end of an episode.

The rule: the step after an episode's last one resets and ignores its action. It writes reward 0, termination 0, the
first observation of the new episode and mask 0. So transition `t` is real if and only if `masks[t+1] == 1`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from digideep.environment.vec.slab import Slab
from digideep.errors import DigideepError, UsageError
from digideep.spec import EnvSpec
from digideep.types import Progress

if TYPE_CHECKING:
    from digideep.utility.profiling import TimerNode

__all__ = [
    "NOTHING",
    "Fault",
    "FinishedEpisode",
    "Forgiven",
    "Place",
    "StepGroup",
    "VecEnv",
    "share",
    "told_in",
    "traced",
]


class Place(NamedTuple):
    """Which environment failed, and in which call: `reset` or `step`."""

    env: int
    phase: str


class Forgiven(NamedTuple):
    """Which failures of an environment end its episode only."""

    errors: bool = False  # exceptions, and results that are not what was declared
    nonfinite: bool = False  # NaN or infinity


NOTHING = Forgiven()


class Fault(NamedTuple):
    """A failure of one environment that ended its episode only; it has to be reset before the next step.

    `is_lost` says that the worker which held the environment has died or hung and was replaced: the environment is a
    new one already.
    """

    env: int
    error: DigideepError
    is_lost: bool = False


class FinishedEpisode(NamedTuple):
    """An episode that ended; `tick` counts the steps that all environments had made together by then."""

    tick: int
    env: int
    number: int
    return_: float
    length: int
    seed: int | None
    metrics: dict[str, float]


class StepGroup(Protocol):
    """Environments that can be stepped apart from the others."""

    def ask(self, t: int) -> None:
        """Begin the step of row `t`, whose actions are there; nothing else may be asked of them until it has ended."""

    def wait(self) -> None:
        """End the step, as `VecEnv.step` does."""

    def rest(self) -> None:
        """End a step that may have begun; what goes wrong in it is logged, since something else went wrong before."""


class VecEnv(ABC):
    """Environments that step together.

    Attributes:
        spec: of one environment; all are alike.
        num_envs, num_workers: how many environments, and processes beside this one that hold them.
        slab: the memory; None before `attach`.
        restarts: workers that were replaced.
        groups: both halves, where they can be stepped apart; else empty.
        has_one_generator: whether all environments draw from one, which the seed of environment 0 is for.
    """

    spec: EnvSpec
    num_envs: int
    num_workers: int
    slab: Slab | None
    restarts: int
    groups: Sequence[StepGroup] = ()
    has_one_generator = False

    @property
    @abstractmethod
    def has_faults(self) -> bool:
        """Whether `take_faults` has something to return; looked at after every step."""

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
    def take_faults(self) -> list[Fault]:
        """Return what was forgiven since the last call, by environment.

        The step of such an environment is none: reward 0, termination 0, and an observation that has to be replaced.
        """

    @abstractmethod
    def rebuild(self, envs: Sequence[int]) -> None:
        """Close environments and make them anew; one that cannot be made is a fault again."""

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


def share(num_envs: int, num_workers: int, *, groups: int = 1) -> list[range]:
    """Return which environments each worker holds: neighbours, the first workers one more where it does not divide.

    With `groups`, which must divide both numbers, each group of workers holds as many environments as the others.
    """
    each, more = divmod(num_envs // groups, num_workers // groups)
    shares = []
    first = 0
    for worker in range(num_workers):
        count = each + (worker % (num_workers // groups) < more)
        shares.append(range(first, first + count))
        first += count
    return shares


def traced(error: DigideepError, text: str, place: Place | None = None) -> DigideepError:
    """Return `error` with two attributes: `traceback_text`, of the user's exception, for the text log, and `place`."""
    error.traceback_text = text  # type: ignore[attr-defined]
    error.place = place  # type: ignore[attr-defined]
    return error


def told_in(mode: str, error: Exception) -> None:
    """Put the explorer before the message of an error, once, unless it is that of training."""
    where = f"explorer/{mode}: "
    if mode != "train" and not str(error).startswith(where):
        error.args = (f"{where}{error}", *error.args[1:])
