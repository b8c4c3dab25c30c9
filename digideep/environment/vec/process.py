"""Worker processes of our own, several environments each, over shared memory."""

from __future__ import annotations

import mmap
import os
import select
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from digideep.environment.config import EnvConfig
from digideep.environment.make import unknown_to_workers
from digideep.environment.vec.base import NOTHING, Fault, FinishedEpisode, Forgiven, Place, VecEnv, share, told_in
from digideep.environment.vec.child import Child
from digideep.environment.vec.messages import FAILURE, FAULTS
from digideep.environment.vec.outcome import describe
from digideep.environment.vec.restart import RestartBudget
from digideep.environment.vec.signals import (
    ANSWERED,
    ASKED,
    FAILED,
    FAULTED,
    IN_RESET,
    IN_STEP,
    PARENT_SLEEPS,
    PARENT_SPIN_NS,
    POSITION,
    ROW,
    SLEEP_MS,
    STARTED,
    UNREAD,
    WORKER_SLEEPS,
    fence,
    spin,
    words,
)
from digideep.environment.vec.slab import Slab, slab_bytes
from digideep.environment.vec.workers import Lost, Seat, Workers, failure
from digideep.errors import DigideepError, UsageError, WorkerError
from digideep.spec import spec_from_plain
from digideep.types import Progress
from digideep.utility.imports import BUILT_IN

if TYPE_CHECKING:
    from digideep.utility.profiling import TimerNode

__all__ = ["ProcessVecEnv"]

_READ_S = 1.0  # after a worker that hangs, for the answers of the others


class ProcessVecEnv(VecEnv):
    """Environments in `num_workers` processes; each steps its share when a word in shared memory says so.

    A worker that dies or hangs once the slab is there is replaced, as often as `budget` allows; its environments are
    new ones then, which `take_faults` says.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        num_envs: int,
        num_workers: int,
        allowed: Sequence[str] = BUILT_IN,
        step_timeout_s: float = 300.0,
        forgiven: Forgiven = NOTHING,
        budget: RestartBudget | None = None,
        mode: str = "train",
    ) -> None:
        self.num_envs = num_envs
        self.num_workers = num_workers
        self.slab = None
        self.restarts = 0
        self._config = config
        self._timeout_s = step_timeout_s
        self._budget = RestartBudget(0) if budget is None else budget
        self._mode = mode
        self._tick = 0
        self._words: list[memoryview] = []
        self._faults: list[Fault] = []
        self._progress: Progress | None = None
        self._descriptor = -1
        self._workers = Workers(
            config, share(num_envs, num_workers),
            allowed=allowed, forgiven=forgiven, timeout_s=step_timeout_s, seat=self._seat,
        )  # fmt: skip
        try:
            self._make()
        except Lost as lost:
            self.close()
            raise lost.error from None
        except BaseException:
            self.close()
            raise

    @property
    def tick(self) -> int:
        """Number of steps made."""
        return self._tick

    @property
    def obstacle(self) -> str:
        """Why a state cannot be saved, or an empty text."""
        return self._obstacle

    @property
    def has_faults(self) -> bool:
        """Whether `take_faults` has something to return."""
        return bool(self._faults)

    def _make(self) -> None:
        try:
            replies = self._workers.make(self._workers.children, tick=0)
        except UsageError as error:
            raise unknown_to_workers(self._config, error) or error from None
        self.spec = spec_from_plain(replies[0]["spec"])
        self._obstacle: str = replies[0]["obstacle"]

    def attach(self, n_steps: int) -> Slab:
        """Make the slab in memory without a name, so that nothing is left of it whatever happens."""
        self._sizes = {"num_envs": self.num_envs, "n_steps": n_steps, "num_workers": self.num_workers}
        self._descriptor = _anonymous_memory(slab_bytes(self.spec, **self._sizes))
        slab = Slab(self.spec, buffer=mmap.mmap(self._descriptor, 0), **self._sizes)
        slab.initialise()
        self._words = [words(slab.signals, child.index) for child in self._workers.children]
        try:
            self._map(self._workers.children)
        except Lost as lost:
            raise lost.error from None
        self.slab = slab
        return slab

    def _map(self, children: Sequence[Child]) -> None:
        self._workers.ask(children, "attach", [[self._sizes] for _ in children], descriptor=self._descriptor)

    def reset(self, row: int) -> None:
        """Begin an episode where the mode is RESET."""
        for content in self._ask("reset", [[row] for _ in self._workers.children], lost=[]):
            self._note(content)

    def step(self, t: int) -> None:
        """Have every worker step its environments, and wait for all."""
        number = self._workers.next_number()
        self._tick += 1
        for view in self._words:
            view[ROW] = t
        fence()
        for view in self._words:
            view[ASKED] = number
        fence()
        for child, view in zip(self._workers.children, self._words, strict=True):
            if view[WORKER_SLEEPS]:
                self._wake(child, number, t)
        for view in self._words:
            if not spin(view, ANSWERED, number, for_ns=PARENT_SPIN_NS):
                self._sleep_until(number, t)
                break
        fence()
        for index, view in enumerate(self._words):
            if view[FAILED] == number or view[FAULTED] == number:
                self._hear(index, number, t)

    def _wake(self, child: Child, number: int, t: int) -> None:
        try:
            child.wake(number, timeout_s=self._timeout_s)
        except TimeoutError:
            try:
                self._workers.hangs(child, self._timeout_s)
            except Lost as lost:
                self._lose_step(lost, t)

    def _sleep_until(self, number: int, t: int) -> None:
        """Wait for the step `number` without using the processor."""
        deadline = time.monotonic() + self._timeout_s
        try:
            while True:
                pending = [child for child in self._workers.children if self._words[child.index][ANSWERED] < number]
                if not pending:
                    return
                try:
                    if time.monotonic() > deadline:
                        self._workers.hangs(pending[0], self._timeout_s)
                    self._nap(pending, number)
                except Lost as lost:
                    self._lose_step(lost, t)
        finally:
            for view in self._words:
                view[PARENT_SLEEPS] = 0

    def _nap(self, pending: Sequence[Child], number: int) -> None:
        poll = select.poll()
        for child in pending:
            self._words[child.index][PARENT_SLEEPS] = 1
            poll.register(child.channel.fileno(), select.POLLIN)
        fence()
        if all(self._words[child.index][ANSWERED] >= number for child in pending):
            return
        readable = {descriptor for descriptor, _ in poll.poll(SLEEP_MS)}
        for child in pending:
            if child.channel.fileno() in readable:
                try:
                    child.drain()
                except EOFError:
                    self._workers.died(child)
            elif not child.is_running:
                self._workers.died(child)

    def _hear(self, index: int, number: int, t: int) -> None:
        """Take what a worker has sent about a step that went wrong in it."""
        child, view = self._workers.children[index], self._words[index]
        try:
            if view[FAULTED] == number:
                self._note(self._workers.kept(child, number, FAULTS).content)
            if view[FAILED] == number:
                raise self._workers.failed(child, self._workers.kept(child, number, FAILURE))
        except Lost as lost:
            self._lose_step(lost, t)

    def _note(self, contents: Sequence[Any]) -> None:
        for content in contents:
            error = failure(content, self._config.model_name)
            self._faults.append(Fault(error.place.env, error))  # type: ignore[attr-defined]

    def _lose_step(self, lost: Lost, t: int) -> None:
        """Replace a worker in whose hands a step was lost: what its environments have done in it is none."""
        assert self.slab is not None
        self._replace(lost)
        envs = slice(lost.child.envs.start, lost.child.envs.stop)
        self.slab.rewards[t, envs] = self.slab.terminations[t, envs] = 0.0
        self.slab.masks[t + 1, envs] = 0.0
        for array in self.slab.observations.values():
            array[t + 1, envs] = 0

    def _replace(self, lost: Lost) -> None:
        """Start a worker in the place of one that is lost, with new environments; what is lost again costs again."""
        first, index = lost.error, lost.child.index
        while True:
            told_in(self._mode, lost.error)
            self._budget.spend(lost.error)
            self.restarts += 1
            try:
                self._begin_again(index)
                break
            except Lost as again:
                lost = again
        envs = self._workers.children[index].envs
        self._faults += [Fault(env, first, is_lost=True) for env in envs]
        if self.slab is not None:
            self.slab.over[envs.start : envs.stop] = 0  # an episode that had ended may not be told any more

    def _begin_again(self, index: int) -> None:
        view, now = self._words[index], self._workers.number
        child = self._workers.restart(index)
        for word in (FAILED, FAULTED, POSITION, UNREAD, WORKER_SLEEPS):
            view[word] = 0
        view[POSITION + 1] = IN_STEP
        # The worker begins with the step after this one, whatever was asked of the one before it.
        view[ASKED] = view[ANSWERED] = view[STARTED] = now
        self._workers.make([child], tick=self._tick)
        self._map([child])
        if self._progress is not None:
            self._workers.ask([child], "set_progress", [[list(self._progress)]])

    def take_faults(self) -> list[Fault]:
        """Return what was forgiven since the last call."""
        faults, self._faults = self._faults, []
        return sorted(faults, key=lambda fault: fault.env)

    def rebuild(self, envs: Sequence[int]) -> None:
        """Close environments and make them anew."""
        shares = [[[env for env in envs if env in child.envs]] for child in self._workers.children]
        for content in self._ask("rebuild", shares, lost=[]):
            self._note(content)

    def collect(self) -> list[FinishedEpisode]:
        """Return the episodes that ended since the last call; asks only where there are some."""
        if not any(view[UNREAD] for view in self._words):
            return []
        answers = self._ask("collect", [[] for _ in self._workers.children], lost=[])
        return sorted(FinishedEpisode(*episode) for answer in answers for episode in answer)

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each environment; where `has_faults` says so afterwards, some are missing."""
        answers = self._ask("states", [[] for _ in self._workers.children], lost={"states": [], "obstacle": ""})
        self._obstacle = next((answer["obstacle"] for answer in answers if answer["obstacle"]), "")
        return [state for answer in answers for state in answer["states"]]

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Take over what `states` returned."""
        shares = [[[dict(states[env]) for env in child.envs]] for child in self._workers.children]
        return {env: reason for answer in self._ask("load_states", shares, lost=[]) for env, reason in answer}

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every environment that asks for it."""
        self._progress = progress
        self._ask("set_progress", [[list(progress)] for _ in self._workers.children], lost=None)

    def timings(self) -> Mapping[str, TimerNode]:
        """Return the timers of the workers since the last call, by name of the worker."""
        from digideep.utility.profiling import TimerNode

        answers = self._ask("timings", [[] for _ in self._workers.children], lost=None)
        return {
            f"worker{i}": TimerNode.from_dict(answer, name=f"worker{i}")
            for i, answer in enumerate(answers)
            if answer is not None
        }

    def worker_of(self, env: int) -> int:
        """Return the number of the worker that holds an environment."""
        return next(child.index for child in self._workers.children if env in child.envs)

    def close(self) -> None:
        """Have every worker close its environments, then end it and what it has started."""
        self._words = []
        self.slab = None
        self._workers.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _ask(self, command: str, arguments: Sequence[list[Any]], *, lost: Any) -> list[Any]:
        """Return the answer of every worker to `command`, or `lost` for one that had to be replaced."""
        workers = self._workers
        if not workers.children:
            raise WorkerError(f"environments {self._config.model_name}: expected open workers, found them closed")
        number = workers.next_number()
        gone: dict[int, Lost] = {}
        for child, values in zip(workers.children, arguments, strict=True):
            try:
                workers.send(child, number, [command, values])
            except Lost as found:
                gone[child.index] = found
        deadline = time.monotonic() + self._timeout_s
        answers = [lost] * len(workers.children)
        failed: DigideepError | None = None
        for child in workers.children:
            if child.index in gone:
                continue
            try:
                answers[child.index] = workers.reply(child, number, deadline=deadline, limit_s=self._timeout_s)
            except Lost as found:
                gone[child.index] = found
                # An answer that is large is still on its way while nobody reads it.
                deadline = max(deadline, time.monotonic() + _READ_S)
            except DigideepError as error:
                failed = failed or error
        for loss in gone.values():
            self._replace(loss)
        if failed is not None:
            raise failed
        return answers

    def _seat(self, child: Child) -> Seat:
        """Return what a worker is at, as far as shared memory tells."""
        slab = self.slab
        if slab is None:
            envs = f"environments {child.envs.start} to {child.envs.stop - 1}"
            return Seat(f"{envs} ({self._config.model_name}, worker {child.index})", None, is_new=True)
        view = self._words[child.index]
        env = child.envs[min(view[POSITION], len(child.envs) - 1)]
        where = describe(
            self._config.model_name,
            env=env,
            worker=child.index,
            seed=int(slab.seeds[env]),
            number=int(slab.numbers[env]),
            step=self._tick - int(slab.born[env]),
        )
        is_resetting = view[POSITION + 1] == IN_RESET
        is_stepping = view[STARTED] > view[ANSWERED]
        place = Place(env, "reset" if is_resetting else "step") if is_resetting or is_stepping else None
        return Seat(where, place, is_new=False)


def _anonymous_memory(size: int) -> int:
    """Return a descriptor of `size` bytes of memory, zeroed."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("digideep-slab", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor
