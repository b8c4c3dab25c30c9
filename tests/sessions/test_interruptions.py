"""What surrounds a run: who is left behind, closed pipes, sessions in use, saves that fail."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fakes import TOY, Ended, Program, read

Run = Callable[..., Ended]
Start = Callable[..., Program]
Toy = Callable[..., list[str]]

ENDLESS = ["number_epochs=100000", "test_activate=false", "save_interval=0"]


def _children(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children(recursive=True) if "worker" in " ".join(child.cmdline())]


def test_workers_end_with_a_killed_parent(start: Start, toy: Toy) -> None:
    program = start(*toy("killed", *ENDLESS, "num_workers=2"))
    program.wait_for("saved ")
    workers = _children(program.pid)
    assert len(workers) == 2

    program.send(signal.SIGKILL)
    ended = program.end()

    assert ended.code == -9
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("moments", "code"), [({}, 0), ({"cycle 1": ["SIGTERM"]}, 143)])
def test_every_environment_is_closed(
    digideep: Run, toy: Toy, tmp_path: Path, workers: int, moments: dict[str, list[str]], code: int
) -> None:
    closed = tmp_path / "closed"
    knobs = {
        "model_name": "toy_parts:ToyRecording-v0", "env_kwargs": {"closed": str(closed)}, "num_workers": workers,
        "number_epochs": 1, "test_activate": False, "normalize_rewards": False,
    }  # fmt: skip

    digideep(*toy("closing"), "--cpanel", json.dumps(knobs), moments=moments, expect=code)

    pids = closed.read_text().split()
    assert len(pids) >= 4
    assert len(set(pids)) >= max(1, workers)


def test_a_closed_stdout_never_stops_a_run(start: Start, toy: Toy) -> None:
    program = start(*toy("head"))
    first = program.wait_for("session: ")

    program.close_stdout()
    ended = program.end()

    assert ended.code == 0
    assert "Traceback" not in ended.err and "Broken" not in ended.err
    assert read(Path(first.removeprefix("session: ")) / "summary.json")["state"] == "done"


def test_a_real_pipe_to_head_leaves_the_exit_code(tmp_path: Path) -> None:
    command = (
        f'"{sys.executable}" -m digideep.main --list-params | head -1; '
        f'"{sys.executable}" -m digideep.main --params "{TOY}" --session-path "{tmp_path}" '
        f'--set number_epochs=1 test_activate=false | head -1; echo "${{PIPESTATUS[0]}}"'
    )

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)

    lines = done.stdout.splitlines()
    assert lines[1].startswith("session: ")
    assert lines[2:] == ["0"]
    assert "Broken" not in done.stderr and "Traceback" not in done.stderr


def test_a_session_in_use_is_exit_4_at_once(start: Start, digideep: Run, toy: Toy) -> None:
    program = start(*toy("busy", *ENDLESS))
    session = Path(program.wait_for("session: ").removeprefix("session: "))
    program.wait_for("saved ")

    ended = digideep("--load-checkpoint", str(session), "--resume", expect=4)

    assert ended.out == []
    assert f"process {program.pid}" in ended.err
    assert ended.err.count("\n") == 1


def test_three_failed_saves_in_a_row_end_a_run_with_9(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    from digideep.errors import StorageError
    from digideep.pipeline.checkpoint import CheckpointStore

    save, refused = CheckpointStore.commit, list[int]()

    def full(self: CheckpointStore, number: int, *more: object, **options: object) -> object:
        if number >= 4:
            refused.append(number)
            raise StorageError(f"checkpoint-{number}: expected room, found none")
        return save(self, number, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(CheckpointStore, "commit", full)

    ended = command(*toy("full", "number_epochs=9", "test_activate=false"), expect=9)

    assert refused == [4, 6, 8]
    assert ended.saved == ["checkpoint-0", "checkpoint-2"]
    summary = read(ended.session / "summary.json")
    assert (summary["state"], summary["exit_code"]) == ("failed", 9)


def test_a_failed_save_is_told_and_training_goes_on(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    from digideep.errors import StorageError
    from digideep.pipeline.checkpoint import CheckpointStore

    save = CheckpointStore.commit

    def full_once(self: CheckpointStore, number: int, *more: object, **options: object) -> object:
        if number == 4:
            raise StorageError("checkpoint-4: expected room, found none")
        return save(self, number, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(CheckpointStore, "commit", full_once)

    ended = command(*toy("full", "test_activate=false"))

    assert ended.saved == ["checkpoint-0", "checkpoint-2", "checkpoint-6", "checkpoint-8", "checkpoint-8"]
    assert ended.err.count("save 1 of 3 failed: checkpoint-4: expected room, found none") == 1


def test_done_needs_a_durable_last_save(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    from digideep.errors import StorageError
    from digideep.pipeline.checkpoint import CheckpointStore

    def full(self: CheckpointStore, number: int, *more: object, **options: object) -> object:
        raise StorageError("expected room, found none")

    monkeypatch.setattr(CheckpointStore, "commit", full)

    ended = command(*toy("full", "number_epochs=1", "test_activate=false", "save_interval=0"), expect=9)

    assert not (ended.session / "done.lock").exists()
