"""Worker processes of our own, several environments each, over shared memory."""

from __future__ import annotations

import dataclasses
import logging
import mmap
import os
import select
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from digideep import errors
from digideep.environment.config import EnvConfig
from digideep.environment.make import unknown_to_workers
from digideep.environment.vec.base import FinishedEpisode, Place, VecEnv, share, traced
from digideep.environment.vec.child import Child, Output
from digideep.environment.vec.messages import FAILURE, REPLY, REQUEST, Message
from digideep.environment.vec.outcome import describe
from digideep.environment.vec.signals import (
    ANSWERED,
    ASKED,
    FAILED,
    PARENT_SLEEPS,
    PARENT_SPIN_NS,
    POSITION,
    ROW,
    SLEEP_MS,
    UNREAD,
    WORKER_SLEEPS,
    fence,
    spin,
    words,
)
from digideep.environment.vec.slab import Slab, slab_bytes
from digideep.errors import EnvironmentFailure, UsageError, WorkerError
from digideep.spec import spec_from_plain
from digideep.types import Progress
from digideep.utility.imports import BUILT_IN

if TYPE_CHECKING:
    from digideep.utility.profiling import TimerNode

__all__ = ["ProcessVecEnv"]

logger = logging.getLogger(__name__)

_START_S = 120.0  # at least: a worker first has to import what its environments need
_CLOSE_S = 5.0
_CLOSE_BROKEN_S = 1.0  # after a death or a hang: what ended one worker may well keep the others


class ProcessVecEnv(VecEnv):
    """Environments in `num_workers` processes; each steps its share when a word in shared memory says so."""

    def __init__(
        self,
        config: EnvConfig,
        *,
        num_envs: int,
        num_workers: int,
        allowed: Sequence[str] = BUILT_IN,
        step_timeout_s: float = 300.0,
    ) -> None:
        self.num_envs = num_envs
        self.num_workers = num_workers
        self.slab = None
        self._config = config
        self._timeout_s = step_timeout_s
        self._tick = 0
        self._number = 0  # of the newest request or step
        self._words: list[memoryview] = []
        self._children: list[Child] = []
        self._output: Output | None = None
        self._grace_s = _CLOSE_S
        try:
            for index, envs in enumerate(share(num_envs, num_workers)):
                self._children.append(self._start(index, envs))
            self._output = Output(self._children)
            self._make(allowed)
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

    def _start(self, index: int, envs: range) -> Child:
        named = (self._config.from_module, self._config.model_name.rpartition(":")[0])
        try:
            return Child(index, envs, modules=[name for name in named if name])
        except OSError as error:
            raise UsageError(
                f"num_workers: expected {self.num_workers} processes, found that number {index} cannot be started "
                f"({errors.one_line(error)}); lower num_workers, or raise the limits of the machine (ulimit -n, -u)"
            ) from error

    def _make(self, allowed: Sequence[str]) -> None:
        common = {"config": dataclasses.asdict(self._config), "allowed": list(allowed)}
        arguments = [
            [{**common, "worker": child.index, "envs": [child.envs.start, child.envs.stop]}] for child in self._children
        ]
        try:
            replies = self._ask("make", arguments, timeout_s=max(_START_S, self._timeout_s))
        except UsageError as error:
            raise unknown_to_workers(self._config, error) or error from None
        self.spec = spec_from_plain(replies[0]["spec"])
        self._obstacle: str = replies[0]["obstacle"]

    def attach(self, n_steps: int) -> Slab:
        """Make the slab in memory without a name, so that nothing is left of it whatever happens."""
        sizes = {"num_envs": self.num_envs, "n_steps": n_steps, "num_workers": self.num_workers}
        descriptor = _anonymous_memory(slab_bytes(self.spec, **sizes))
        try:
            self.slab = Slab(self.spec, buffer=mmap.mmap(descriptor, 0), **sizes)
            self.slab.initialise()
            self._words = [words(self.slab.signals, child.index) for child in self._children]
            number = self._send_all("attach", [[sizes] for _ in self._children], descriptor=descriptor)
            self._replies(number, self._timeout_s)
        finally:
            os.close(descriptor)
        return self.slab

    def reset(self, row: int) -> None:
        """Begin an episode where the mode is RESET."""
        self._ask("reset", [[row] for _ in self._children])

    def step(self, t: int) -> None:
        """Have every worker step its environments, and wait for all."""
        self._number = number = self._number + 1
        self._tick += 1
        for view in self._words:
            view[ROW] = t
        fence()
        for view in self._words:
            view[ASKED] = number
        fence()
        for child, view in zip(self._children, self._words, strict=True):
            if view[WORKER_SLEEPS]:
                self._wake(child, number)
        for view in self._words:
            if not spin(view, ANSWERED, number, for_ns=PARENT_SPIN_NS):
                self._sleep_until(number)
                break
        fence()
        for child, view in zip(self._children, self._words, strict=True):
            if view[FAILED] == number:
                self._raise(child, self._failure(child, number))

    def _wake(self, child: Child, number: int) -> None:
        try:
            child.wake(number, timeout_s=self._timeout_s)
        except TimeoutError:
            self._hangs(child, self._timeout_s)

    def _sleep_until(self, number: int) -> None:
        """Wait for the step `number` without using the processor."""
        deadline = time.monotonic() + self._timeout_s
        try:
            while True:
                pending = [child for child in self._children if self._words[child.index][ANSWERED] < number]
                if not pending:
                    return
                if time.monotonic() > deadline:
                    self._hangs(pending[0], self._timeout_s)
                self._nap(pending, number)
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
                    self._died(child)
            elif not child.is_running:
                self._died(child)

    def collect(self) -> list[FinishedEpisode]:
        """Return the episodes that ended since the last call; asks only where there are some."""
        if not any(view[UNREAD] for view in self._words):
            return []
        answers = self._ask("collect", [[] for _ in self._children])
        return sorted(FinishedEpisode(*episode) for answer in answers for episode in answer)

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each environment."""
        answers = self._ask("states", [[] for _ in self._children])
        self._obstacle = next((answer["obstacle"] for answer in answers if answer["obstacle"]), "")
        return [state for answer in answers for state in answer["states"]]

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Take over what `states` returned."""
        shares = [[[dict(states[env]) for env in child.envs]] for child in self._children]
        return {env: reason for answer in self._ask("load_states", shares) for env, reason in answer}

    def origin(self, env: int) -> dict[str, Any] | None:
        """Return what the running episode began with."""
        child = self._children[self.worker_of(env)]
        number = self._send([child], "origin", [[env]])
        origin: dict[str, Any] | None = self._reply(child, number, time.monotonic() + self._timeout_s, self._timeout_s)
        return origin

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every environment that asks for it."""
        self._ask("set_progress", [[list(progress)] for _ in self._children])

    def timings(self) -> Mapping[str, TimerNode]:
        """Return the timers of the workers since the last call, by name of the worker."""
        from digideep.utility.profiling import TimerNode

        answers = self._ask("timings", [[] for _ in self._children])
        return {f"worker{i}": TimerNode.from_dict(answer, name=f"worker{i}") for i, answer in enumerate(answers)}

    def worker_of(self, env: int) -> int:
        """Return the number of the worker that holds an environment."""
        return next(child.index for child in self._children if env in child.envs)

    def close(self) -> None:
        """Have every worker close its environments, then end it and what it has started."""
        children, self._children = self._children, []
        self._words = []
        self.slab = None
        for child in children:
            try:
                child.channel.send(REQUEST, self._number + 1, ["close", []], timeout_s=self._grace_s)
            except OSError:
                continue  # it is gone, and is cleared away below
        deadline = time.monotonic() + self._grace_s
        for child in children:
            child.end(grace_s=max(0.0, deadline - time.monotonic()))
        if self._output is not None:
            self._output.close()
            self._output = None
        else:
            for child in children:
                child.output.close()

    def _ask(self, command: str, arguments: Sequence[list[Any]], *, timeout_s: float | None = None) -> list[Any]:
        """Return the answer of every worker to `command`."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        number = self._send_all(command, arguments)
        return self._replies(number, limit_s)

    def _send_all(self, command: str, arguments: Sequence[list[Any]], *, descriptor: int | None = None) -> int:
        if not self._children:
            raise WorkerError(f"environments {self._config.model_name}: expected open workers, found them closed")
        return self._send(self._children, command, arguments, descriptor=descriptor)

    def _send(
        self,
        children: Sequence[Child],
        command: str,
        arguments: Sequence[list[Any]],
        *,
        descriptor: int | None = None,
    ) -> int:
        self._number += 1
        for child, values in zip(children, arguments, strict=True):
            try:
                child.channel.send(
                    REQUEST, self._number, [command, values], descriptor=descriptor, timeout_s=self._timeout_s
                )
            except ConnectionError:
                self._died(child)
            except TimeoutError:
                self._hangs(child, self._timeout_s)
        return self._number

    def _replies(self, number: int, timeout_s: float) -> list[Any]:
        deadline = time.monotonic() + timeout_s
        return [self._reply(child, number, deadline, timeout_s) for child in self._children]

    def _reply(self, child: Child, number: int, deadline: float, timeout_s: float) -> Any:
        while True:
            try:
                message = child.channel.receive(timeout_s=max(0.0, min(0.5, deadline - time.monotonic())))
            except EOFError:
                self._died(child)
            if message is None:
                if not child.is_running:
                    self._died(child)
                if time.monotonic() >= deadline:
                    self._hangs(child, timeout_s)
            elif message.number == number and message.kind == REPLY:
                return message.content
            elif message.number == number and message.kind == FAILURE:
                self._raise(child, message)
            # Anything else is a wake-up or the answer to a question that nobody waits for any more.

    def _failure(self, child: Child, number: int) -> Message:
        """Return why a step failed; the message was sent before the word that says so."""
        try:
            child.drain()
        except EOFError:
            self._died(child)
        failures, child.failures = child.failures, []
        for message in failures:
            if message.number == number:
                return message
        raise WorkerError(f"{self._where(child)}: expected the error of the step, found no message")

    def _raise(self, child: Child, message: Message) -> NoReturn:
        """Raise here what was raised in a worker."""
        content = message.content
        logger.debug("worker %d: %s", child.index, content["traceback"])
        known = getattr(errors, content["class"], None) if content["class"] in errors.__all__ else None
        is_ours = isinstance(known, type) and issubclass(known, errors.DigideepError)
        if is_ours:
            error = known(content["text"])  # type: ignore[misc]
        else:
            where = f"environments of worker {child.index} ({self._config.model_name})"
            error = EnvironmentFailure(f"{where}: {content['class']}: {errors.one_line(content['text'])}")
        place = None if content["place"] is None else Place(*content["place"])
        raise traced(error, content["traceback"], place)

    def _died(self, child: Child) -> NoReturn:
        self._grace_s = _CLOSE_BROKEN_S
        ending = child.ending()
        text = self._output.tail(child.index, wait_s=1.0) if self._output is not None else ""
        # Before there is a slab nothing of the user's has run but imports: the last line says what failed.
        said = f"; it said last: {text.splitlines()[-1]}" if text and self.slab is None else ""
        raise traced(
            WorkerError(f"{self._where(child)}: expected a running worker, found that it {ending}{said}"), text
        )

    def _hangs(self, child: Child, timeout_s: float) -> NoReturn:
        self._grace_s = _CLOSE_BROKEN_S
        child.ask_for_stack()
        text = self._output.tail(child.index) if self._output is not None else ""
        where = self._where(child)
        child.end(grace_s=0.0)
        raise traced(
            WorkerError(
                f"{where}: expected an answer within {timeout_s:g} s (step_timeout_s), found none; "
                f"the worker was ended, its stack is in the log"
            ),
            text,
        )

    def _where(self, child: Child) -> str:
        """Return what the worker is at, as far as shared memory tells."""
        slab = self.slab
        if slab is None:
            envs = f"environments {child.envs.start} to {child.envs.stop - 1}"
            return f"{envs} ({self._config.model_name}, worker {child.index})"
        env = child.envs[min(self._words[child.index][POSITION], len(child.envs) - 1)]
        return describe(
            self._config.model_name,
            env=env,
            worker=child.index,
            seed=int(slab.seeds[env]),
            number=int(slab.numbers[env]),
            step=self._tick - int(slab.born[env]),
        )


def _anonymous_memory(size: int) -> int:
    """Return a descriptor of `size` bytes of memory, zeroed."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("digideep-slab", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor
