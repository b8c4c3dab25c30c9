"""The time of a GPU is read from events that it has passed, and nothing ever waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from digideep.agent.devicetimer import DeviceBlock, device_block
from digideep.utility.profiling import TimerBlock, get_timer_root, reset_timers, timer_block


class Stream:
    """Stands in for a GPU: what is recorded has been passed once `work` has gone so far."""

    def __init__(self) -> None:
        self.recorded = self.passed = self.made = 0

    def event(self) -> Event:
        self.made += 1
        return Event(self)

    def work(self) -> None:
        self.passed = self.recorded


class Event:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._place = 0

    def record(self, stream: Any = None) -> None:
        self._stream.recorded += 1
        self._place = self._stream.recorded

    def query(self) -> bool:
        return self._place <= self._stream.passed

    def elapsed_time(self, end_event: Event) -> float:
        assert self.query() and end_event.query(), "an event was asked for before the stream had passed it"
        return 2.5 * (end_event._place - self._place)


@pytest.fixture(autouse=True)
def _own_timers() -> Iterator[None]:
    reset_timers()
    yield
    reset_timers()


def test_work_that_is_done_is_counted_below_the_block_as_parallel() -> None:
    stream = Stream()
    block = DeviceBlock("step", make_event=stream.event)

    with timer_block("update"):
        with block:
            pass
        stream.work()
        with block:
            pass

    step = get_timer_root().children["update"].children["step"]
    gpu = step.children["gpu"]
    assert (step.count, gpu.count, gpu.total_ns, gpu.is_parallel) == (2, 1, 2_500_000, True)
    assert step.self_ns == step.total_ns


def test_work_that_is_under_way_is_counted_later_and_not_waited_for() -> None:
    stream = Stream()
    block = DeviceBlock("step", make_event=stream.event)

    for _ in range(3):
        with block:
            pass
    assert "gpu" not in get_timer_root().children["step"].children
    stream.work()
    with block:
        pass

    assert get_timer_root().children["step"].children["gpu"].count == 3


def test_events_are_used_again() -> None:
    stream = Stream()
    block = DeviceBlock("step", make_event=stream.event)

    for _ in range(100):
        with block:
            pass
        stream.work()

    assert stream.made == 4


def test_a_gpu_that_is_far_behind_takes_no_more_events() -> None:
    stream = Stream()
    block = DeviceBlock("step", make_event=stream.event)

    for _ in range(2000):
        with block:
            pass

    assert stream.made == 2048
    assert get_timer_root().children["step"].count == 2000


def test_an_error_leaves_the_block_as_it_leaves_others() -> None:
    stream = Stream()
    block = DeviceBlock("step", make_event=stream.event)

    with pytest.raises(ValueError), block:
        raise ValueError
    with timer_block("next"):
        pass

    assert get_timer_root().children.keys() == {"step", "next"}


def test_on_the_cpu_it_is_an_ordinary_block() -> None:
    assert isinstance(device_block("step", torch.device("cpu")), TimerBlock)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that torch can use")
def test_a_gpu_is_timed_and_not_waited_for() -> None:
    device = torch.device("cuda")
    block = device_block("step", device)
    matrix = torch.randn(4096, 4096, device=device)
    _ = matrix @ matrix
    torch.cuda.synchronize()

    began = time.perf_counter()
    with block:
        for _ in range(200):
            matrix = torch.tanh(matrix @ matrix)
    left_s = time.perf_counter() - began
    torch.cuda.synchronize()
    done_s = time.perf_counter() - began
    with block:
        pass

    gpu = get_timer_root().children["step"].children["gpu"]
    assert left_s < done_s / 2
    assert gpu.total == pytest.approx(done_s, rel=0.2)
