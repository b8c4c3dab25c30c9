"""Timer blocks that count the time of a GPU too, by events in its stream and without ever waiting for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from digideep.utility.profiling import TimerBlock, TimerNode, add_time, timer_block

__all__ = ["DeviceBlock", "StreamEvent", "device_block"]

_MOST_RUNNING = 1024  # pairs of events; a GPU that is further behind has some of its work left out


class StreamEvent(Protocol):
    """What is used of `torch.cuda.Event`."""

    def record(self, stream: Any = None) -> None:
        """Mark this place in the stream."""
        ...

    def query(self) -> bool:
        """Return whether the stream has passed it; never waits."""
        ...

    def elapsed_time(self, end_event: Any) -> float:
        """Return the milliseconds to another event; both have been passed."""
        ...


class DeviceBlock:
    """A block of the timers, with the time that the stream took for what was put into it below, as `gpu` (parallel).

    The stream works beside this process, and a block is often left before its work has begun: what has been done is
    looked for at each exit, so that the count of `gpu` lags behind the block's.

    Args:
        name: of the block.
        make_event: gives events that can time.
        stream: where they are recorded; None: the current stream of the current device.
    """

    def __init__(self, name: str, *, make_event: Callable[[], StreamEvent], stream: Any = None) -> None:
        self._block = timer_block(name)
        self._make_event = make_event
        self._stream = stream
        self._free: list[StreamEvent] = []
        self._running: deque[tuple[StreamEvent, StreamEvent]] = deque()
        self._began: StreamEvent | None = None

    def __enter__(self) -> TimerNode:
        node = self._block.__enter__()
        if len(self._running) < _MOST_RUNNING:
            self._began = self._recorded()
        return node

    def __exit__(self, *exc: object) -> None:
        if self._began is not None:
            self._running.append((self._began, self._recorded()))
            self._began = None
        self._settle()
        self._block.__exit__(*exc)

    def _recorded(self) -> StreamEvent:
        event = self._free.pop() if self._free else self._make_event()
        event.record(self._stream)
        return event

    def _settle(self) -> None:
        """Count the pairs that the stream has passed."""
        total_ns = count = 0
        while self._running and self._running[0][1].query():
            began, ended = self._running.popleft()
            total_ns += round(began.elapsed_time(ended) * 1e6)
            count += 1
            self._free += (began, ended)
        if count:
            add_time("gpu", total_ns, count, is_parallel=True)


def device_block(name: str, device: torch.device) -> TimerBlock | DeviceBlock:
    """Return the block `name`, which on a CUDA device counts the time of that device too."""
    if device.type != "cuda":
        return timer_block(name)

    def make_event() -> StreamEvent:
        event: StreamEvent = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        return event

    return DeviceBlock(name, make_event=make_event, stream=torch.cuda.current_stream(device))
