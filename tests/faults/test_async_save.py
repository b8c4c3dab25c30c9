"""Saving beside training: one at a time, counted where it fails, waited for at every exit, and no thread left."""

from __future__ import annotations

import copy
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from fakes import TOY, TOY_DIRECTORY, Ended, Program, checkpoints, read, rows, wait_until
from savers import Bench, save_threads

import digideep
from digideep.errors import DigideepError, NonFiniteError, StorageError
from digideep.pipeline.checkpoint import CheckpointStore
from digideep.pipeline.contents import Contents
from digideep.pipeline.runner import Runner
from digideep.pipeline.saving import Saver
from digideep.utility.differences import first_difference

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]
Change = Callable[[CheckpointStore, int], None]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "session")
    yield bench
    bench.close()
    assert save_threads() == []


@pytest.fixture
def at_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Return a function that has another one called right before each commit, in the thread that commits."""
    really = CheckpointStore.commit

    def install(change: Change) -> None:
        def commit(self: CheckpointStore, number: int, content: Contents, **options: Any) -> Path:
            change(self, number)
            return really(self, number, content, **options)

        monkeypatch.setattr(CheckpointStore, "commit", commit)

    return install


def state(number: int) -> dict[str, Any]:
    return {"agents.agent": {"w": np.full(100, number, "float32")}, "runner": {"cycle": number}}


# The saver alone


def test_training_goes_on_while_the_disk_is_busy_and_nothing_is_announced_before_it_is_durable(bench: Bench) -> None:
    bench.disk.gate.clear()

    bench.begin(1, state(1))

    assert bench.disk.arrived.wait(30.0)
    assert bench.said == [] and save_threads() == ["save"]
    bench.disk.gate.set()
    bench.saver.look(wait=True)
    assert bench.said == ["checkpoint-1"]
    assert bench.disk.calls == ["rename checkpoint-1", "durable", "said"]
    assert save_threads() == []


def test_the_next_save_waits_for_the_one_under_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.disk.gate.clear()
    bench.begin(1, state(1))
    seen: list[list[str]] = []
    really = CheckpointStore.gather
    monkeypatch.setattr(
        CheckpointStore, "gather", lambda self, parts: [seen.append(list(bench.said)), really(self, parts)][1]
    )
    opening = threading.Timer(0.05, bench.disk.gate.set)
    opening.start()

    bench.begin(2, state(2))

    opening.join()
    assert seen == [["checkpoint-1"]]
    bench.saver.look(wait=True)
    assert bench.said == ["checkpoint-1", "checkpoint-2"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EFBIG])
def test_a_failure_is_counted_at_the_next_look_and_the_third_in_a_row_is_raised(
    bench: Bench, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench.begin(1, state(1), wait=True)
    bench.disk.number = number

    bench.disk.refusals = 2
    for checkpoint in (2, 3):
        bench.begin(checkpoint, state(checkpoint))
        bench.saver.look(wait=True)
    bench.begin(4, state(4))
    bench.saver.look(wait=True)  # a success: counting begins anew
    bench.disk.refusals = 3
    for checkpoint in (5, 6):
        bench.begin(checkpoint, state(checkpoint))
    bench.begin(7, state(7))
    with pytest.raises(
        StorageError, match=rf"checkpoint-7: expected to write \d+ bytes, found {errno.errorcode[number]}"
    ):
        bench.saver.look(wait=True)

    counted = [record.getMessage()[:11] for record in caplog.records if "failed" in record.getMessage()]
    assert counted == ["save 1 of 3", "save 2 of 3", "save 1 of 3", "save 2 of 3", "save 3 of 3"]
    assert bench.said == ["checkpoint-1", "checkpoint-4"]
    assert bench.load()["runner"] == {"cycle": 4}


def test_the_last_save_decides_alone_and_is_raised(bench: Bench) -> None:
    bench.disk.refusals, bench.disk.number = 3, errno.ENOSPC
    bench.begin(1, state(1))
    bench.saver.look(wait=True)
    bench.begin(2, state(2))

    with pytest.raises(StorageError, match=r"checkpoint-3: .* found ENOSPC"):
        bench.begin(3, state(3), wait=True)
    bench.begin(3, state(3), wait=True)

    assert bench.said == ["checkpoint-3"]


def test_a_fault_of_ours_in_the_thread_is_raised_where_training_looks(bench: Bench, at_commit: Any) -> None:
    def fault(store: CheckpointStore, number: int) -> None:
        raise ZeroDivisionError("a bug")

    at_commit(fault)
    bench.begin(1, state(1))

    with pytest.raises(ZeroDivisionError, match="a bug"):
        bench.saver.look(wait=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused_before_anything_is_handed_over(bench: Bench, bad: float) -> None:
    weights = np.ones(1000, "float32")
    weights[77] = bad

    with pytest.raises(NonFiniteError, match=r"agents.agent: expected finite numbers, found .* at \(77,\) of /w"):
        bench.begin(1, {"agents.agent": {"w": weights}})

    assert save_threads() == [] and not bench.paths.checkpoints.exists()


def test_a_memory_too_large_to_copy_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "digideep.pipeline.checkpoint.gather",
        lambda *a, _gather=sys.modules["digideep.pipeline.contents"].gather, **k: _gather(*a, copied_bytes=0, **k),
    )
    from digideep.types import LiveSegments, Segment

    segments = LiveSegments([Segment("a", {"/rows": np.ones((10, 2))})])

    bench.begin(1, {"memory.train": {"segments": segments}})

    assert bench.said == ["checkpoint-1"] and save_threads() == []


def test_summary_and_retention_follow_the_commit_and_agree_with_the_disk(bench: Bench) -> None:
    for number in range(1, 6):
        bench.begin(number, state(number))
    bench.saver.look(wait=True)

    summary = json.loads(bench.paths.summary.read_text())
    assert [entry["name"] for entry in summary["checkpoints"]] == ["checkpoint-4", "checkpoint-5"]
    assert sorted(os.listdir(bench.paths.checkpoints)) == ["checkpoint-4", "checkpoint-5"]
    assert summary["epoch"] == 5 and summary["frame"] == 50


def test_a_number_that_stands_is_announced_again_and_not_written(bench: Bench) -> None:
    bench.begin(1, state(1), wait=True)
    inode = bench.paths.checkpoint(1).stat().st_ino

    bench.begin(1, state(2))
    bench.saver.look(wait=True)

    assert bench.said == ["checkpoint-1", "checkpoint-1"]
    assert bench.paths.checkpoint(1).stat().st_ino == inode
    assert bench.load(1)["runner"] == {"cycle": 1}


def test_what_is_metered_is_the_time_that_training_waited(bench: Bench) -> None:
    bench.disk.gate.clear()
    bench.begin(1, state(1))
    bench.disk.refusals, bench.disk.number = 1, errno.EIO
    bench.disk.gate.set()
    bench.saver.look(wait=True)
    assert bench.logs.monitor.peek("time/save_s") is None  # a save that failed was none

    bench.disk.gate.clear()
    bench.begin(2, state(2))
    threading.Timer(0.3, bench.disk.gate.set).start()
    while (found := bench.logs.monitor.peek("time/save_s")) is None:
        bench.saver.look()

    assert found["num"] == 1 and found["max"] < 0.2


# Whole runs


def test_a_run_leaves_no_thread_and_times_what_the_thread_does(tmp_path: Path) -> None:
    session = digideep.run(TOY, {"test_win_size": 1}, session_path=str(tmp_path), log_level="fatal")

    assert save_threads() == []
    tree = read(session.paths.timers)["children"]["save"]["children"]["write"]
    assert tree["is_parallel"] is True
    assert {"logs", "files", "retention", "room"} <= tree["children"].keys()
    assert sum(row["data"].get("time/save_s", {"num": 0})["num"] for row in rows(session.paths.varlog)) >= 2


def test_sigterm_while_a_save_is_under_way_waits_for_it_and_saves_once_more(
    command: Run, toy: Toy, at_commit: Any
) -> None:
    def interrupted(store: CheckpointStore, number: int) -> None:
        if number == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    at_commit(interrupted)

    ended = command(*toy("stopped", "number_epochs=0", "total_frames=100000", "test_activate=false"), expect=143)

    last = checkpoints(ended.session)[-1]
    assert ended.saved[1] == "checkpoint-2" and ended.saved[-1] == f"checkpoint-{last}" and last >= 2
    assert read(ended.session / "summary.json")["exit_code"] == 143
    assert save_threads() == []


def test_an_error_in_training_waits_for_the_save_under_way(
    command: Run, toy: Toy, at_commit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    at_commit(lambda store, number: number == 2 and failed.wait(30.0))
    really = Runner.train_cycle

    def failing(self: Runner) -> None:
        if self.state.cycle == 2:
            failed.set()
            raise DigideepError("training: expected to go on, found that it does not")
        really(self)

    monkeypatch.setattr(Runner, "train_cycle", failing)

    ended = command(*toy("failed", "test_activate=false"), expect=1)

    summary = read(ended.session / "summary.json")
    assert checkpoints(ended.session) == [0, 2]
    assert (summary["state"], [entry["name"] for entry in summary["checkpoints"]]) == (
        "failed", ["checkpoint-0", "checkpoint-2"],
    )  # fmt: skip
    assert ended.saved == ["checkpoint-0", "checkpoint-2"] and save_threads() == []


def test_A8_a_checkpoint_holds_what_was_there_when_it_was_asked_for_although_training_went_on(
    command: Run, toy: Toy, at_commit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[int, Any] = {}
    went_on = threading.Event()
    really_begin, really_cycle = Saver.begin, Runner.train_cycle

    def begin(self: Saver, number: int, components: Any, *arguments: Any, **options: Any) -> None:
        asked[number] = copy.deepcopy(dict(components))
        weights = next(iter(components["agents.agent"]["policy"].values()))
        assert not weights.flags.writeable  # lent, to be copied at once
        really_begin(self, number, components, *arguments, **options)

    def cycle(self: Runner) -> None:
        really_cycle(self)
        if self.state.cycle == 3:
            went_on.set()

    monkeypatch.setattr(Saver, "begin", begin)
    monkeypatch.setattr(Runner, "train_cycle", cycle)
    at_commit(lambda store, number: number == 2 and went_on.wait(30.0))

    session = command(*toy("asked", "test_activate=false", "keep_last=9")).session

    store = CheckpointStore(session / "checkpoints", session_id="", run_id="look")
    assert len(asked) > 2
    for number, components in asked.items():
        loaded = store.load(number).components
        assert {name: first_difference(components[name], loaded[name]) for name in components} == dict.fromkeys(
            components, ""
        )
    different = first_difference(asked[2]["agents.agent"], asked[4]["agents.agent"])
    assert different


def test_a_save_that_never_succeeds_lets_the_session_start_anew(command: Run, toy: Toy, at_commit: Any) -> None:
    def refuse(store: CheckpointStore, number: int) -> None:
        raise StorageError("expected room, found none")

    at_commit(refuse)
    ended = command(*toy("never", "test_activate=false"), expect=9)
    at_commit(lambda store, number: None)

    resumed = command("--load-checkpoint", str(ended.session), "--resume", "--set", "test_activate=false", expect=2)
    assert "test_activate" in resumed.err
    resumed = command("--load-checkpoint", str(ended.session), "--resume")

    assert resumed.saved[0] == "checkpoint-0"


def test_D4_a_disk_that_hangs_inside_a_save_does_not_hold_up_sigterm(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    params = str(TOY_DIRECTORY / "hanging_params.py")
    sets = ["--set", "number_epochs=0", "total_frames=100000", "test_activate=false", "grace_s=2"]
    program = start("--params", params, "--session-path", str(tmp_path), "--session-name", "hangs", *sets)
    program.wait_for("saved ")
    varlog = tmp_path / "hangs" / "varlog.jsonl"
    wait_until(lambda: varlog.exists() and varlog.read_text().count("\n") >= 2)  # now training waits for the first save

    began = time.monotonic()
    program.send(signal.SIGTERM)
    ended = program.end()

    assert ended.code == 143 and time.monotonic() - began < 10.0
    assert ended.err.splitlines()[-1].startswith("stopped inside a cycle: checkpoint-0 stands, ")
    assert checkpoints(tmp_path / "hangs") == [0]


INTERPRETER = """
import sys, threading, time
import numpy as np
sys.path.insert(0, sys.argv[2])
from saves import META, components, store_at
from digideep.pipeline.writer import Writer
store, writer = store_at(sys.argv[1]), Writer()
def write(stack):
    time.sleep(0.2)
    store.commit(1, content, meta=META, logs={})
    print("saved 1", flush=True)
content = store.gather(components(1))
writer.start(write)
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise ValueError('x')"])
def test_an_interpreter_that_ends_waits_for_the_save_and_does_not_hang(tmp_path: Path, end: str) -> None:
    command = [sys.executable, "-c", INTERPRETER + end, str(tmp_path / "checkpoints"), str(Path(__file__).parent)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60.0)

    assert done.stdout == "saved 1\n"
    assert CheckpointStore(tmp_path / "checkpoints", session_id="session", run_id="next").load().number == 1


def test_a_save_that_is_under_way_is_none_that_is_due(bench: Bench) -> None:
    before = bench.saver.saved_at
    bench.disk.gate.clear()

    bench.begin(1, state(1))

    assert bench.saver.saved_at > before
    bench.disk.refusals, bench.disk.number = 1, errno.ENOSPC
    bench.disk.gate.set()
    bench.saver.look(wait=True)
    assert bench.saver.saved_at == before


def test_without_a_thread_training_waits_for_the_save(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        bench.begin(1, state(1))

        assert bench.said == ["checkpoint-1"]

    bench.begin(2, state(2), wait=True)
    assert bench.said == ["checkpoint-1", "checkpoint-2"]
    bench.saver.close()


def test_the_summary_is_written_although_older_checkpoints_cannot_be_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(CheckpointStore, "retain", Mock(side_effect=StorageError("expected to remove, found EIO")))

    bench.begin(1, state(1), wait=True)

    assert [entry["name"] for entry in read(bench.paths.summary)["checkpoints"]] == ["checkpoint-1"]
    assert caplog.text.count("checkpoint-1 stands, but what follows a save failed") == 1
