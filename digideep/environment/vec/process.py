"""Worker processes of our own, several environments each, over shared memory; this process may hold a share too."""

from __future__ import annotations

import logging
import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from digideep.environment.config import EnvConfig
from digideep.environment.make import unknown_to_workers
from digideep.environment.vec.base import NOTHING, Fault, FinishedEpisode, Forgiven, Place, VecEnv, share, told_in
from digideep.environment.vec.child import Child
from digideep.environment.vec.outcome import describe
from digideep.environment.vec.restart import RestartBudget
from digideep.environment.vec.rounds import Round
from digideep.environment.vec.serial import SerialVecEnv
from digideep.environment.vec.signals import (
    ANSWERED,
    ASKED,
    FAILED,
    FAULTED,
    IN_RESET,
    IN_STEP,
    POSITION,
    STARTED,
    UNREAD,
    WORKER_SLEEPS,
    words,
)
from digideep.environment.vec.slab import Slab, anonymous_memory, slab_bytes
from digideep.environment.vec.workers import Lost, Seat, Workers, failure
from digideep.errors import DigideepError, UsageError, WorkerError
from digideep.spec import spec_from_plain
from digideep.types import Progress
from digideep.utility.imports import BUILT_IN

if TYPE_CHECKING:
    from digideep.utility.profiling import TimerNode

__all__ = ["ProcessVecEnv"]

logger = logging.getLogger(__name__)

_READ_S = 1.0  # after a worker that hangs, for the answers of the others


class ProcessVecEnv(VecEnv):
    """Environments in `num_workers` processes; each steps its share when a word in shared memory says so.

    A worker that dies or hangs once the slab is there is replaced, as often as `budget` allows; its environments are
    new ones then, which `take_faults` says.

    Args:
        config: which environment.
        num_envs, num_workers: how many, and in how many processes.
        parent_steps: whether this process steps a share too, the last one, instead of waiting; then a death or hang of
            an environment in that share is one of this process.
        act_groups: 2 where one half of the environments may be stepped while the other waits for actions; needs an
            even number of both environments and workers, and no share of this process.
        allowed: packages that may be imported for the environments.
        step_timeout_s: longest time of a call.
        forgiven: failures that end an episode only.
        budget: how often workers may be replaced.
        on_stuck: see `HangWatch`.
        mode: of the explorer, for messages.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        num_envs: int,
        num_workers: int,
        parent_steps: bool = False,
        act_groups: int = 1,
        allowed: Sequence[str] = BUILT_IN,
        step_timeout_s: float = 300.0,
        forgiven: Forgiven = NOTHING,
        budget: RestartBudget | None = None,
        on_stuck: Callable[[str], None] | None = None,
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
        self._words: list[memoryview] = []
        self._faults: list[Fault] = []
        self._progress: Progress | None = None
        self._descriptor = -1
        self._own: SerialVecEnv | None = None
        shares = share(num_envs, num_workers + parent_steps, groups=act_groups)
        self._first_own = shares[num_workers - 1].stop
        self._workers = Workers(
            config, shares[:num_workers],
            allowed=allowed, forgiven=forgiven, timeout_s=step_timeout_s, seat=self._seat,
        )  # fmt: skip
        self._rounds = [
            Round(self._workers, group, timeout_s=step_timeout_s, lose=self._lose_step, note=self._note)
            for group in share(num_workers, act_groups)
        ]
        self.groups = self._rounds if act_groups > 1 else ()
        try:
            if parent_steps:  # while the processes of the others start
                self._own = SerialVecEnv(
                    config, num_envs=len(shares[-1]), first=shares[-1].start, worker=num_workers,
                    allowed=allowed, step_timeout_s=step_timeout_s, forgiven=forgiven, on_stuck=on_stuck, mode=mode,
                )  # fmt: skip
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
        return self._rounds[0].tick

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
        own = "" if self._own is None else self._own.obstacle
        self._obstacle: str = replies[0]["obstacle"] or own

    def attach(self, n_steps: int) -> Slab:
        """Make the slab in memory without a name, so that nothing is left of it whatever happens."""
        self._sizes = {"num_envs": self.num_envs, "n_steps": n_steps, "num_workers": self.num_workers}
        self._descriptor = anonymous_memory(slab_bytes(self.spec, **self._sizes))
        slab = Slab(self.spec, buffer=mmap.mmap(self._descriptor, 0), **self._sizes)
        slab.initialise()
        self._words = [words(slab.signals, child.index) for child in self._workers.children]
        for around in self._rounds:
            around.attach(self._words)
        if self._own is not None:
            self._own.join(slab)
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
        for content in self._ask("reset", [[row] for _ in self._workers.children], lost=[], only_idle=True):
            self._note(content)
        if self._own is not None:
            self._own.reset(row)
            self._faults += self._own.take_faults()

    def step(self, t: int) -> None:
        """Have every worker step its environments, step the own share meanwhile, and wait for all."""
        for around in self._rounds:
            around.ask(t)
        failed = None if self._own is None else self._step_own(self._own, t)
        try:
            for around in self._rounds:
                around.wait()
        except DigideepError:
            if failed is not None:  # of two the first environment's is raised
                logger.warning("%s", failed, extra={"details": getattr(failed, "traceback_text", "")})
            raise
        if failed is not None:
            raise failed

    def _step_own(self, own: SerialVecEnv, t: int) -> DigideepError | None:
        """Step the own share; what goes wrong in it is raised after the workers have come to rest."""
        try:
            own.step(t)
        except DigideepError as error:
            return error
        if own.has_faults:
            self._faults += own.take_faults()
        return None

    def _note(self, contents: Sequence[Any]) -> None:
        for content in contents:
            error = failure(content, self._config.model_name)
            self._faults.append(Fault(error.place.env, error))  # type: ignore[attr-defined]

    def _lose_step(self, around: Round, lost: Lost) -> None:
        """Replace a worker in whose hands a step was lost: what its environments have done in it is none."""
        assert self.slab is not None
        t = around.row
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
        self._workers.make([child], tick=self._tick_of(index))
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
        for content in self._ask("rebuild", shares, lost=[], only_idle=True):
            self._note(content)
        if self._own is not None:
            self._own.rebuild([env for env in envs if env >= self._first_own])
            self._faults += self._own.take_faults()

    def collect(self) -> list[FinishedEpisode]:
        """Return the episodes that ended since the last call; asks only where there are some."""
        own = [] if self._own is None else self._own.collect()
        if not any(view[UNREAD] for view in self._words):
            return own
        answers = self._ask("collect", [[] for _ in self._workers.children], lost=[])
        return sorted([*(FinishedEpisode(*episode) for answer in answers for episode in answer), *own])

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each environment; where `has_faults` says so afterwards, some are missing."""
        answers = self._ask("states", [[] for _ in self._workers.children], lost={"states": [], "obstacle": ""})
        if self._own is not None:
            answers.append({"states": self._own.states(), "obstacle": self._own.obstacle})
        self._obstacle = next((answer["obstacle"] for answer in answers if answer["obstacle"]), "")
        return [state for answer in answers for state in answer["states"]]

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Take over what `states` returned."""
        shares = [[[dict(states[env]) for env in child.envs]] for child in self._workers.children]
        without = {env: reason for answer in self._ask("load_states", shares, lost=[]) for env, reason in answer}
        if self._own is not None:
            without |= self._own.load_states(states[self._first_own :])
        return without

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every environment that asks for it."""
        self._progress = progress
        self._ask("set_progress", [[list(progress)] for _ in self._workers.children], lost=None)
        if self._own is not None:
            self._own.set_progress(progress)

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
        """Return the number of the worker that holds an environment; the own share has the number after the last."""
        return next((child.index for child in self._workers.children if env in child.envs), self.num_workers)

    def close(self) -> None:
        """Have every worker close its environments, then end it and what it has started."""
        self._words = []
        self.slab = None
        try:
            if self._own is not None:
                self._own.close()
        finally:
            self._workers.close()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _ask(self, command: str, arguments: Sequence[list[Any]], *, lost: Any, only_idle: bool = False) -> list[Any]:
        """Return the answer of every worker to `command`, or `lost` for one that had to be replaced.

        With `only_idle` those are left alone whose step is still under way; `lost` stands for their answer too.
        """
        workers = self._workers
        if not workers.children:
            raise WorkerError(f"environments {self._config.model_name}: expected open workers, found them closed")
        number = workers.next_number()
        gone: dict[int, Lost] = {}
        busy = {i for around in self._rounds if only_idle and around.is_open for i in around.indices}
        for child, values in zip(workers.children, arguments, strict=True):
            if child.index in busy:
                continue
            try:
                workers.send(child, number, [command, values])
            except Lost as found:
                gone[child.index] = found
        deadline = time.monotonic() + self._timeout_s
        answers = [lost] * len(workers.children)
        failed: DigideepError | None = None
        for child in workers.children:
            if child.index in gone or child.index in busy:
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

    def _tick_of(self, worker: int) -> int:
        return next(around.tick for around in self._rounds if worker in around.indices)

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
            step=self._tick_of(child.index) - int(slab.born[env]),
        )
        is_resetting = view[POSITION + 1] == IN_RESET
        is_stepping = view[STARTED] > view[ANSWERED]
        place = Place(env, "reset" if is_resetting else "step") if is_resetting or is_stepping else None
        return Seat(where, place, is_new=False)
