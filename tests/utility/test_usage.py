from __future__ import annotations

import json
import logging
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from digideep.utility.usage import UsageThread


class Rows:
    """Takes rows from the thread; `take` waits for the next one."""

    def __init__(self) -> None:
        self._queue: queue.Queue[dict] = queue.Queue()

    def __call__(self, row: dict) -> None:
        json.dumps(row, allow_nan=False)
        self._queue.put(row)

    def take(self) -> dict:
        return self._queue.get(timeout=20.0)

    def rest(self) -> list[dict]:
        return list(self._queue.queue)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def start(rows: Rows) -> Iterator[Callable[..., UsageThread]]:
    threads: list[UsageThread] = []

    def begin(**options: object) -> UsageThread:
        usage = UsageThread(0.01, rows, **options)  # type: ignore[arg-type]
        threads.append(usage)
        usage.start()
        return usage

    yield begin
    for usage in threads:
        usage.stop()


def test_rows_describe_processors_memory_and_this_process(rows: Rows, start: Callable[..., UsageThread]) -> None:
    start(gpu=False)

    row = rows.take()

    assert set(row) == {"cpu", "memory", "process"}
    assert set(row["cpu"]) == {"total", "per_cpu"}
    assert 0.0 <= row["cpu"]["total"] <= 1.0
    assert row["cpu"]["total"] == pytest.approx(sum(row["cpu"]["per_cpu"]) / len(row["cpu"]["per_cpu"]), abs=1e-3)
    assert 0.0 < row["memory"]["used_mb"] < row["memory"]["total_mb"]
    assert row["process"]["rss_mb"] > 10.0
    assert row["process"]["count"] >= 1


def test_children_count_and_their_end_is_no_problem(rows: Rows, start: Callable[..., UsageThread]) -> None:
    start(gpu=False)
    alone = rows.take()["process"]

    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        while (both := rows.take()["process"])["count"] != alone["count"] + 1:
            continue
    finally:
        child.communicate(b"\n")
    while rows.take()["process"]["count"] != alone["count"]:
        continue

    assert both["rss_mb"] > alone["rss_mb"]


def test_the_load_of_a_busy_process_is_seen(rows: Rows, start: Callable[..., UsageThread]) -> None:
    start(gpu=False)
    until = time.monotonic() + 20.0

    loads = []
    while time.monotonic() < until and max(loads, default=0.0) < 0.2:
        sum(range(10**6))
        loads += [row["process"]["cpu"] for row in rows.rest()]

    assert max(loads) >= 0.2


def test_means_cover_the_time_since_the_last_call() -> None:
    given = iter([1.0, 2.0, 6.0, 5.0])
    taken = threading.Semaphore(0)
    usage = UsageThread(0.001, lambda row: taken.release(), gpu=False)

    class Processors:
        def prime(self) -> None: ...

        def readings(self) -> dict[str, Callable[[], object]]:
            return {"cpu": lambda: {"total": next(given), "per_cpu": []}, "memory": lambda: "unavailable"}

    usage._processors = Processors()  # type: ignore[assignment]
    usage.start()
    for _ in range(6):
        taken.acquire()
    usage.stop()

    assert usage.means_since() == {"machine/cpu": 3.5}
    assert usage.means_since() == {}


def test_metric_names_are_those_of_the_documentation(rows: Rows, start: Callable[..., UsageThread]) -> None:
    usage = start(gpu=False)
    rows.take()
    rows.take()

    assert set(usage.means_since()) == {
        "machine/cpu",
        "machine/memory_mb",
        "machine/process_cpu",
        "machine/process_rss_mb",
    }


def test_no_row_follows_the_stop(rows: Rows, start: Callable[..., UsageThread]) -> None:
    usage = start(gpu=False)
    rows.take()

    begin = time.monotonic()
    usage.stop()
    took_s = time.monotonic() - begin
    count = len(rows.rest())

    assert took_s < 1.0
    assert not usage._thread.is_alive()  # type: ignore[union-attr]
    assert len(rows.rest()) == count


def test_switched_off_it_starts_no_thread(rows: Rows, start: Callable[..., UsageThread]) -> None:
    before = threading.active_count()
    usage = start(cpu=False, gpu=False)

    assert threading.active_count() == before
    usage.stop()
    assert usage.means_since() == {}


def test_a_writer_that_raises_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    calls = threading.Semaphore(0)

    def write(row: dict) -> None:
        calls.release()
        raise ZeroDivisionError("mine")

    usage = UsageThread(0.01, write, gpu=False)
    with caplog.at_level(logging.INFO):
        usage.start()
        for _ in range(3):
            assert calls.acquire(timeout=20.0)
        usage.stop()

    assert [record.getMessage() for record in caplog.records] == [
        "machine usage: the log of machine usage failed, ZeroDivisionError: mine"
    ]


def test_a_psutil_that_fails_is_unavailable(
    rows: Rows, start: Callable[..., UsageThread], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)

    with caplog.at_level(logging.INFO):
        usage = start(gpu=False)
        row = rows.take()
        rows.take()

    assert row == {"cpu": "unavailable", "memory": "unavailable", "process": "unavailable"}
    assert usage.means_since() == {}
    assert len(caplog.records) == 1


def test_importing_the_module_loads_neither_psutil_nor_nvml() -> None:
    code = "import sys, digideep.utility.usage; print({'psutil', 'pynvml', 'numpy'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
