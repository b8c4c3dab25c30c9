"""The loop of a worker: steps are asked for by words in shared memory, everything else by messages."""

from __future__ import annotations

import mmap
import os
import select
import socket
import traceback
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

from digideep.environment.config import EnvConfig
from digideep.environment.make import preload
from digideep.environment.vec.base import Forgiven
from digideep.environment.vec.global_draws import GlobalDraws
from digideep.environment.vec.messages import FAILURE, FAULTS, REPLY, REQUEST, WAKE, Channel, Message
from digideep.environment.vec.signals import (
    ANSWERED,
    ASKED,
    FAILED,
    FAULTED,
    PARENT_SLEEPS,
    POSITION,
    ROW,
    SLEEP_MS,
    STARTED,
    UNREAD,
    WORKER_SLEEPS,
    WORKER_SPIN_NS,
    Patience,
    fence,
    words,
)
from digideep.environment.vec.slab import Slab
from digideep.environment.vec.stepper import Stepper
from digideep.spec import spec_to_plain
from digideep.types import Progress
from digideep.utility.seeding import derive

__all__ = ["serve"]


def serve(connection: socket.socket) -> None:
    """Serve the parent until it says `close` or is gone; the environments are closed in either case."""
    serving = _Serving(Channel(connection))
    try:
        serving.run()
    except (EOFError, ConnectionError):
        return  # the parent is gone: that is one way for a worker to end
    finally:
        serving.close()


class _Serving:
    """One worker's environments, words and connection."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stepper: Stepper | None = None
        self._words: memoryview | None = None
        self._worker = 0
        self._patience = Patience(WORKER_SPIN_NS)
        self._answered = 0  # number of the newest step made
        self._steps = 0
        self._step_ns = 0
        self._timed = (0, 0, 0, 0)
        self._is_open = True
        self._commands: dict[str, Callable[..., Any]] = {
            "prepare": self._prepare,
            "make": self._make,
            "attach": self._attach,
            "reset": self._reset,
            "rebuild": self._rebuild,
            "collect": self._collect,
            "states": self._states,
            "load_states": self._load_states,
            "set_progress": lambda fields: self._stepping.set_progress(Progress(*fields)),
            "timings": self._timings,
            "close": self._end,
        }

    @property
    def _stepping(self) -> Stepper:
        assert self._stepper is not None, "the parent asks for `make` first"
        return self._stepper

    def run(self) -> None:
        """Serve until told to close; EOFError when the parent is gone."""
        while self._is_open:
            if self._words is not None and self._wait_for_step(self._words):
                self._step(self._words)
                continue
            message = self._channel.receive()
            if message is not None and message.kind == REQUEST:
                self._answer(message)

    def _wait_for_step(self, view: memoryview) -> bool:
        """Whether a step is asked for; False when a message has arrived instead."""
        wanted = self._answered + 1
        if self._patience.sees(view, ASKED, wanted):
            return True
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        view[WORKER_SLEEPS] = 1
        fence()
        try:
            while view[ASKED] < wanted:
                if self._channel.has_arrived or poll.poll(SLEEP_MS):
                    return bool(view[ASKED] >= wanted)
            return True
        finally:
            view[WORKER_SLEEPS] = 0

    def _step(self, view: memoryview) -> None:
        self._answered = view[STARTED] = view[ASKED]
        self._steps += 1
        start = perf_counter_ns()
        stepper = self._stepping
        fence()
        try:
            stepper.step(view[ROW])
        except BaseException as error:
            self._send_failure(self._answered, error)
            view[FAILED] = self._answered
        if stepper.faults:
            self._channel.send(FAULTS, self._answered, self._faults())
            view[FAULTED] = self._answered
        self._step_ns += perf_counter_ns() - start
        view[UNREAD] = stepper.unread
        fence()
        view[ANSWERED] = self._answered
        fence()
        if view[PARENT_SLEEPS]:
            self._channel.send(WAKE, self._answered)

    def _answer(self, message: Message) -> None:
        command, arguments = message.content
        try:
            result = self._commands[command](*arguments)
            self._channel.send(REPLY, message.number, result)
        except (EOFError, ConnectionError):
            raise
        except BaseException as error:
            self._send_failure(message.number, error)

    def _send_failure(self, number: int, error: BaseException) -> None:
        self._channel.send(FAILURE, number, _described(error))

    def _faults(self) -> list[dict[str, Any]]:
        return [_described(fault.error) for fault in self._stepping.take_faults()]

    def _prepare(self, arguments: Mapping[str, Any]) -> None:
        """Import what the environments need, which is no part of making one."""
        preload(_config(arguments), allowed=arguments["allowed"])

    def _make(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Make the environments; answer with what they show and take."""
        first, stop = self._envs = arguments["envs"]
        self._worker = arguments["worker"]
        self._draws = GlobalDraws(self._worker)
        self._stepper = Stepper(
            _config(arguments),
            envs=range(first, stop),
            worker=self._worker,
            allowed=arguments["allowed"],
            forgiven=Forgiven(*arguments["forgiven"]),
            tick=arguments["tick"],
        )
        return {"spec": spec_to_plain(self._stepper.spec), "obstacle": self._stepper.obstacle}

    def _reset(self, row: int) -> list[dict[str, Any]]:
        self._draws.seed_once(int(self._first_seeds[0]))
        self._stepping.reset(row)
        return self._faults()

    def _rebuild(self, envs: list[int]) -> list[dict[str, Any]]:
        self._stepping.rebuild(envs)
        return self._faults()

    def _attach(self, arguments: Mapping[str, int]) -> None:
        """Map the memory whose descriptor came with this message."""
        descriptor = self._channel.take_descriptor()
        memory = mmap.mmap(descriptor, 0)
        os.close(descriptor)
        slab = Slab(self._stepping.spec, buffer=memory, **arguments)
        self._words = words(slab.signals, self._worker)
        self._first_seeds = slab.next_seeds[self._envs[0] : self._envs[1]]
        self._answered = self._words[ASKED]  # where another worker died the steps so far are not ours to make
        self._stepping.attach(slab)
        self._stepping.position = self._words[POSITION : POSITION + 2]

    def _collect(self) -> list[tuple[Any, ...]]:
        if self._words is not None:
            self._words[UNREAD] = 0
        return [tuple(episode) for episode in self._stepping.collect()]

    def _states(self) -> dict[str, Any]:
        states, obstacle = self._stepping.states(), self._stepping.obstacle
        if not obstacle and (obstacle := self._draws.obstacle(self._stepping.spec.id)):
            states = [{**state, "environment": None} for state in states]
        return {"states": states, "obstacle": obstacle}

    def _load_states(self, states: list[dict[str, Any]]) -> list[tuple[int, str]]:
        without = self._stepping.load_states(states)
        self._draws.seed_once(derive(states[0]["seed"], "episode", states[0]["number"]))
        return list(without.items())

    def _timings(self) -> dict[str, Any]:
        """Return the time of steps, and of the resets inside them, since the last call."""
        now = (self._step_ns, self._steps, self._stepping.reset_ns, self._stepping.resets)
        before, self._timed = self._timed, now
        step_ns, steps, reset_ns, resets = (a - b for a, b in zip(now, before, strict=True))
        reset = _timer(reset_ns, resets)
        step = _timer(max(step_ns, reset_ns), steps, reset=reset)
        return _timer(step["total_ns"], 1, step=step)

    def _end(self) -> None:
        self._is_open = False
        self.close()

    def close(self) -> None:
        """Close the environments, once."""
        stepper, self._stepper = self._stepper, None
        if stepper is not None:
            stepper.close()


def _config(arguments: Mapping[str, Any]) -> EnvConfig:
    given = arguments["config"].items()
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given}
    return EnvConfig(**fields)


def _described(error: BaseException) -> dict[str, Any]:
    """Return an exception as plain data, with the traceback of what the environment raised."""
    place = getattr(error, "place", None)
    return {
        "class": type(error).__name__,
        "text": str(error),
        "traceback": getattr(error, "traceback_text", None) or traceback.format_exc(),
        "place": None if place is None else list(place),
    }


def _timer(total_ns: int, count: int, **children: Any) -> dict[str, Any]:
    return {"count": count, "total_ns": total_ns, "is_parallel": False, "children": children}
