from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path

import pytest

from digideep.utility.tensorboard import EVENT_FILE, EventLog, serve


def _events(directory: Path) -> list[tuple[int, str, float]]:
    """What TensorBoard's own reader finds: (step, tag, value)."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto import event_pb2

    events = map(event_pb2.Event.FromString, RawEventFileLoader(str(directory / EVENT_FILE)).Load())
    return [(event.step, value.tag, value.simple_value) for event in events for value in event.summary.value]


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventLog(tmp_path)
    for step in (0, 1024, 2048):
        log.scalars(step, {"train/return": step / 2, "update/agent/entropy": 0.5})
    log.close()

    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert accumulator.Tags()["scalars"] == ["train/return", "update/agent/entropy"]
    returns = accumulator.Scalars("train/return")
    assert [(event.step, event.value) for event in returns] == [(0, 0.0), (1024, 512.0), (2048, 1024.0)]
    assert os.listdir(tmp_path) == [EVENT_FILE]


def test_one_event_holds_all_values_of_a_step(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

    log = EventLog(tmp_path)
    log.scalars(1, {f"tag{i}": i for i in range(40)})

    records = list(RawEventFileLoader(str(log.path)).Load())

    assert len(records) == 2  # the version, and one event
    assert len(_events(tmp_path)) == 40


def test_the_file_appears_with_the_first_value(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "tensorboard")
    assert log.sync() == (EVENT_FILE, 0)
    log.scalars(1, {})
    assert not (tmp_path / "tensorboard").exists()

    log.scalars(1, {"x": 1.0})

    assert _events(tmp_path / "tensorboard") == [(1, "x", 1.0)]


def test_a_tag_has_one_value_a_step_and_steps_never_go_back(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.scalars(10, {"a": 1.0, "b": 1.0})
    log.scalars(10, {"a": 2.0, "c": 2.0})
    log.scalars(5, {"a": 3.0, "d": 3.0})
    log.scalars(11, {"a": math.nan, "b": 1e39, "c": 4})

    assert _events(tmp_path) == [(10, "a", 1.0), (10, "b", 1.0), (10, "c", 2.0), (5, "d", 3.0), (11, "c", 4.0)]
    assert (log.out_of_order, log.not_finite) == (1, 2)


def test_a_resume_continues_the_same_file_from_where_the_checkpoint_stood(tmp_path: Path) -> None:
    first = EventLog(tmp_path)
    first.scalars(1, {"a": 1.0})
    first.scalars(2, {"b": 2.0})
    name, length = first.sync()
    first.scalars(3, {"a": 3.0, "b": 3.0})
    first.close()
    assert name == EVENT_FILE
    assert 0 < length < (tmp_path / EVENT_FILE).stat().st_size

    second = EventLog(tmp_path)
    assert second.truncate(length) == length
    second.scalars(2, {"a": 20.0, "b": 20.0})
    second.scalars(3, {"a": 30.0})

    assert _events(tmp_path) == [(1, "a", 1.0), (2, "b", 2.0), (2, "a", 20.0), (3, "a", 30.0)]
    assert os.listdir(tmp_path) == [EVENT_FILE]


def test_a_file_cut_to_nothing_begins_anew(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.scalars(5, {"a": 1.0})

    log.truncate(0)
    log.scalars(1, {"a": 2.0})

    assert _events(tmp_path) == [(1, "a", 2.0)]
    assert b"brain.Event:2" in log.path.read_bytes()


def test_an_event_that_a_kill_cut_in_two_is_removed(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.scalars(1, {"a": 1.0})
    length = log.sync().length
    log.scalars(2, {"a": 2.0})
    log.close()
    whole = log.path.read_bytes()

    for cut in range(length, len(whole)):
        log.path.write_bytes(whole[:cut])
        again = EventLog(tmp_path)
        again.scalars(2, {"a": 20.0})
        again.close()
        assert _events(tmp_path) == [(1, "a", 1.0), (2, "a", 20.0)]


@pytest.mark.parametrize("tail", [b"\xff" * 100, b"\x05" + b"\0" * 11 + b"\xff" * 9])
def test_rubbish_at_the_end_is_removed(tmp_path: Path, tail: bytes) -> None:
    log = EventLog(tmp_path)
    log.scalars(1, {"a": 1.0})
    log.close()
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + tail)

    assert EventLog(tmp_path).sync().length == len(whole)


def test_a_clock_that_jumps_back_does_not_reorder_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    times = iter([1000.0, 1001.0, 500.0, 1002.0])
    monkeypatch.setattr("digideep.utility.tensorboard.time.time", lambda: next(times))
    log = EventLog(tmp_path)
    for step in range(3):
        log.scalars(step, {"a": 1.0})

    assert [event.wall_time for event in EventFileLoader(str(log.path)).Load()] == [1000.0, 1001.0, 1001.0, 1002.0]


def test_a_failing_disk_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = EventLog(tmp_path / "file" / "tensorboard")

    log.scalars(1, {"a": 1.0})

    assert log.failures > 0


def test_neither_torch_nor_tensorflow_is_imported(tmp_path: Path) -> None:
    code = f"""
        import sys
        import digideep.utility.tensorboard as module
        assert not any(name.split(".")[0] == "tensorboard" for name in sys.modules)
        log = module.EventLog({str(tmp_path)!r})
        log.scalars(1, {{"a": 1.0}})
        log.truncate(log.sync().length)
        print({{"torch", "tensorflow"}} & set(sys.modules))
    """

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )

    assert (done.stdout.strip(), done.stderr) == ("set()", "")


def test_the_server_answers_and_ends_with_close(tmp_path: Path) -> None:
    EventLog(tmp_path).scalars(1, {"a": 1.0})
    told: list[str] = []
    server = serve(tmp_path, on_ready=told.append)
    try:
        url = server.wait(30.0)

        assert url is not None and url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{url}data/logdir", timeout=10) as answer:
            assert str(tmp_path) in answer.read().decode()
    finally:
        server.close()
    assert server.process.returncode == 0
    assert told == [url]


@pytest.mark.parametrize("ready", [False, True])
def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path, ready: bool) -> None:
    code = f"""
        import time
        from digideep.utility.tensorboard import serve
        server = serve({str(tmp_path)!r})
        assert not {ready} or server.wait(30.0)
        print(server.process.pid, flush=True)
        time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    server = os.pidfd_open(int(parent.stdout.readline()))

    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()

    readable, _, _ = select.select([server], [], [], 20.0)
    os.close(server)
    assert readable, "the server outlived its parent"


def test_a_server_that_cannot_start_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(tmp_path, host="256.0.0.1")

    assert server.wait(30.0) is None
    server.close()

    assert "TensorBoard did not start" in caplog.text
