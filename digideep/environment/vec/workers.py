"""The worker processes of a vector environment: started, asked, and found dead or silent."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from digideep import errors
from digideep.environment.config import EnvConfig
from digideep.environment.vec.base import Forgiven, Place, traced
from digideep.environment.vec.child import Child
from digideep.environment.vec.hang import late
from digideep.environment.vec.messages import FAILURE, REPLY, REQUEST, Message
from digideep.environment.vec.serial import IMPORT_S
from digideep.errors import DigideepError, EnvironmentFailure, UsageError, WorkerError
from digideep.utility.imports import BUILT_IN

__all__ = ["Lost", "Seat", "Workers", "failure"]

logger = logging.getLogger(__name__)

_CLOSE_S = 5.0
_CLOSE_BROKEN_S = 1.0  # after a death or a hang: what ended one worker may well keep the others


class Lost(Exception):
    """A worker died or did not answer; `error` is what is told of it."""

    def __init__(self, child: Child, error: WorkerError) -> None:
        super().__init__(str(error))
        self.child = child
        self.error = error


class Seat(NamedTuple):
    """What a worker is at: in words, and the environment and call, where one is being called.

    `is_new` says that nothing of an environment has run yet but what is imported for it.
    """

    where: str
    place: Place | None
    is_new: bool


class Workers:
    """Processes that hold a share of the environments each.

    Args:
        config: of one environment.
        shares: which environments each worker holds.
        allowed: packages that workers may import for them.
        forgiven: failures that end an episode only.
        timeout_s: longest time of an answer.
        seat: says what a worker is at.

    Attributes:
        children: the processes, by number of the worker.
        number: of the newest request or step.
    """

    def __init__(
        self,
        config: EnvConfig,
        shares: Sequence[range],
        *,
        allowed: Sequence[str] = BUILT_IN,
        forgiven: Forgiven,
        timeout_s: float,
        seat: Callable[[Child], Seat],
    ) -> None:
        self._config = config
        self._common = {"config": dataclasses.asdict(config), "allowed": list(allowed), "forgiven": list(forgiven)}
        self._shares = shares
        self._seat = seat
        self._timeout_s = timeout_s
        self._printed: dict[int, int] = {}
        self._grace_s = _CLOSE_S
        self.children: list[Child] = []
        self.number = 0
        try:
            for index in range(len(shares)):
                self.children.append(self._start(index))
        except BaseException:
            self.close()
            raise

    def _start(self, index: int) -> Child:
        named = (self._config.from_module, self._config.model_name.rpartition(":")[0])
        modules = [name for name in named if name]
        try:
            return Child(index, self._shares[index], modules=modules, printed=self._printed)
        except OSError as error:
            raise UsageError(
                f"num_workers: expected {len(self._shares)} processes, found that number {index} cannot be started "
                f"({errors.one_line(error)}); lower num_workers, or raise the limits of the machine (ulimit -n, -u)"
            ) from error

    def restart(self, index: int) -> Child:
        """Start a worker in the place of one that is lost.

        Raises:
            WorkerError: the machine has no room for another process.
        """
        self.children[index].end(grace_s=0.0)
        self._grace_s = _CLOSE_S  # a loss that was made good keeps nobody from closing
        try:
            self.children[index] = self._start(index)
        except UsageError as error:  # it was no wrong input when the run began
            raise WorkerError(f"worker {index}: expected another in its place, found none: {error}") from error
        return self.children[index]

    def make(self, children: Sequence[Child], *, tick: int) -> list[Any]:
        """Have workers make their environments, which stand after `tick` steps; return what each answers.

        Raises:
            Lost: one died or did not answer.
            DigideepError: what went wrong while one was made.
        """
        arguments = [
            [{**self._common, "worker": child.index, "envs": [child.envs.start, child.envs.stop], "tick": tick}]
            for child in children
        ]
        # Importing is no call of an environment, and takes its time on a machine that is busy.
        self.ask(children, "prepare", arguments, timeout_s=max(IMPORT_S, self._timeout_s))
        return self.ask(children, "make", arguments)

    def ask(
        self,
        children: Sequence[Child],
        command: str,
        arguments: Sequence[list[Any]],
        *,
        descriptor: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Return what workers answer to `command`.

        Raises:
            Lost: one died or did not answer.
            DigideepError: what one raised.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        number = self.next_number()
        for child, values in zip(children, arguments, strict=True):
            self.send(child, number, [command, values], descriptor=descriptor)
        deadline = time.monotonic() + limit_s
        return [self.reply(child, number, deadline=deadline, limit_s=limit_s) for child in children]

    def next_number(self) -> int:
        """Return the number of the next request or step."""
        self.number += 1
        return self.number

    def send(self, child: Child, number: int, content: Any, *, descriptor: int | None = None) -> None:
        """Send one request.

        Raises:
            Lost: the worker is gone, or does not read.
        """
        try:
            child.channel.send(REQUEST, number, content, descriptor=descriptor, timeout_s=self._timeout_s)
        except ConnectionError:
            self.died(child)
        except TimeoutError:
            self.hangs(child, self._timeout_s)

    def reply(self, child: Child, number: int, *, deadline: float, limit_s: float) -> Any:
        """Return the answer to the request `number`; answers to former ones are passed over.

        Raises:
            Lost: the worker is gone, or does not answer until `deadline`, which is after `limit_s`.
            DigideepError: what it raised.
        """
        while True:
            try:
                message = child.channel.receive(timeout_s=max(0.0, min(0.5, deadline - time.monotonic())))
            except EOFError:
                self.died(child)
            if message is None:
                if not child.is_running:
                    self.died(child)
                if time.monotonic() >= deadline:
                    self.hangs(child, limit_s)
            elif message.number == number and message.kind == REPLY:
                return message.content
            elif message.number == number and message.kind == FAILURE:
                raise self.failed(child, message)
            # Anything else is a wake-up or the answer to a question that nobody waits for any more.

    def kept(self, child: Child, number: int, kind: int) -> Message:
        """Return the message of a step that the worker has sent before the word which tells of it.

        Raises:
            Lost: the worker is gone.
        """
        try:
            child.drain()
        except EOFError:
            self.died(child)
        for message in child.failures:
            if message.number == number and message.kind == kind:
                child.failures.remove(message)
                return message
        raise WorkerError(f"{self._seat(child).where}: expected the error of the step, found no message")

    def failed(self, child: Child, message: Message) -> DigideepError:
        """Return what was raised in a worker."""
        return failure(message.content, f"environments of worker {child.index} ({self._config.model_name})")

    def died(self, child: Child) -> NoReturn:
        """Raise Lost with how a worker ended."""
        self._grace_s = _CLOSE_BROKEN_S
        where, place, is_new = self._seat(child)
        ending = child.ending()
        text = child.output.tail(wait_s=1.0)
        said = f"; it said last: {text.splitlines()[-1]}" if text and is_new else ""
        error = WorkerError(f"{where}: expected a running worker, found that it {ending} (pid {child.pid}){said}")
        traced(error, text, place).ending = "death"  # type: ignore[attr-defined]
        raise Lost(child, error)

    def hangs(self, child: Child, limit_s: float) -> NoReturn:
        """End a worker that does not answer, and raise Lost with where its environment stands."""
        self._grace_s = _CLOSE_BROKEN_S
        child.ask_for_stack()
        where, place, _ = self._seat(child)
        text = child.output.tail()
        child.end(grace_s=0.0)
        error = WorkerError(
            f"{where}: {late(limit_s)}; the worker (pid {child.pid}) was ended, its stack is in the log"
        )
        traced(error, text, place).ending = "hang"  # type: ignore[attr-defined]
        raise Lost(child, error)

    def close(self) -> None:
        """Have every worker close its environments, then end it and what it has started."""
        children, self.children = self.children, []
        for child in children:
            try:
                child.channel.send(REQUEST, self.number + 1, ["close", []], timeout_s=self._grace_s)
            except OSError:
                continue  # it is gone, and is cleared away below
        deadline = time.monotonic() + self._grace_s
        for child in children:
            child.end(grace_s=max(0.0, deadline - time.monotonic()))


def failure(content: Any, where: str) -> DigideepError:
    """Return the error that a worker has described; one of the user's own becomes an EnvironmentFailure."""
    known = getattr(errors, content["class"], None) if content["class"] in errors.__all__ else None
    if isinstance(known, type) and issubclass(known, DigideepError):
        error = known(content["text"])
    else:
        error = EnvironmentFailure(f"{where}: {content['class']}: {errors.one_line(content['text'])}")
    place = None if content["place"] is None else Place(*content["place"])
    return traced(error, content["traceback"], place)
