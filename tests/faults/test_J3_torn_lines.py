"""A last line that a kill or a power cut has torn is no problem, wherever it is torn."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, check_logs_continue, read, rows

from digideep.environment.monitor_files import MonitorFiles
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.logs import SessionLogs
from digideep.types import Episode

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

EVENTS = "tensorboard/events.out.tfevents.0000000000.digideep"
NAMES = ("varlog.jsonl", "prolog.jsonl", "monlog.jsonl", EVENTS, "monitor/train/0.monitor.csv")


def _write(paths: SessionPaths, *epochs: int, lengths: dict[str, int] | None = None) -> dict[str, int]:
    """Write rows of some epochs into every log, after cutting them where `lengths` says; return the lengths."""
    logs = SessionLogs(paths, cpu=False, gpu=False)
    if lengths is not None:
        logs.cut(lengths)
    monitor = MonitorFiles(paths.monitor, mode="train", env_id="Toy-v0")
    for epoch in epochs:
        logs.monitor.set_meta(epoch=epoch, frame=10 * epoch, episode=epoch)
        for name in ("train/return", "update/agent/policy_loss", "update/agent/value_loss"):
            logs.monitor.monitor(name, float(epoch))
        logs.log_epoch()
        logs._write_usage({"cpu": {"total": 0.5, "per_cpu": [0.25, 0.75]}})
        for number in range(10):
            monitor.write(Episode(0, number, 1.0, 3, 7, {}), worker=0)
        monitor.flush()
    found = logs.lengths()
    monitor.close()
    logs.stop()
    return found


def _ends(name: str, content: bytes) -> list[int]:
    """Return where the records of a log end, 0 included."""
    if name != EVENTS:
        return [0, *(i + 1 for i, byte in enumerate(content) if byte == 0x0A)]
    ends = [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + 16 + struct.unpack_from("<Q", content, ends[-1])[0])
    return ends


@pytest.mark.parametrize("name", NAMES)
def test_J3_each_of_the_last_200_bytes_may_be_where_a_log_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    whole, torn = SessionPaths(tmp_path / "whole"), SessionPaths(tmp_path / "torn")
    whole.root.mkdir()
    known = _write(whole, 1, 2, 3, 4)  # that is when a checkpoint was saved
    _write(whole, 5, 6)
    content = (whole.root / name).read_bytes()
    ends = _ends(name, content)

    for lost in range(1, 201):
        (torn.root / name).parent.mkdir(parents=True)
        (torn.root / name).write_bytes(content[:-lost])
        _write(torn, 5, lengths={name: known[name]})

        kept = (torn.root / name).read_bytes()
        # No whole record that the checkpoint knew is lost; of half a record, and of what came later, nothing is left.
        expected = max(end for end in ends if end <= min(len(content) - lost, known[name]))
        assert kept[:expected] == content[:expected], lost
        records = 10 if name.endswith(".csv") else 1
        assert len([end for end in _ends(name, kept) if end > expected]) == records, lost
        assert _ends(name, kept)[-1] == len(kept), lost
        # A new record that was written behind half of another would be none.
        if name.endswith(".jsonl"):
            assert json.loads(kept[expected:])["meta"]["epoch"] == 5, lost
        elif name.endswith(".csv"):
            assert all(line.count(b",") == 3 for line in kept[expected:].splitlines()), lost
        shutil.rmtree(torn.root)


def test_J3_a_killed_session_with_all_logs_torn_goes_on(command: Run, digideep: Run, toy: Toy) -> None:
    seed = int(os.environ.get("DIGIDEEP_TEST_SEED", random.randrange(2**32)))
    print("DIGIDEEP_TEST_SEED", seed)
    rng = random.Random(seed)
    sets = ["test_win_size=1", "number_epochs=4", "save_interval=2"]
    session = digideep(*toy("torn", *sets), moments={"cycle 8": ["SIGKILL"]}, expect=-9).session
    known = read(session / "checkpoints" / "checkpoint-4" / "MANIFEST.json")["logs"]
    for name in (*NAMES, "report.log"):
        size = (session / name).stat().st_size if (session / name).exists() else 0
        if size > known.get(name, 0):
            os.truncate(session / name, size - rng.randrange(1, size - known.get(name, 0) + 1))
    (session / "timers.json").write_text('{"name": "ro')
    (session / "summary.json").write_text('{"state": "runn')

    ended = command("--load-checkpoint", str(session), "--resume")

    check_logs_continue(session)
    assert "resumes from checkpoint-4" in ended.err
    assert [row["meta"]["epoch"] for row in rows(session / "varlog.jsonl")] == [1, 2, 3, 4]
    assert read(session / "summary.json")["state"] == "done"
