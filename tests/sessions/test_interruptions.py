"""Signals from outside: what is saved, what the exit code is, and who is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fakes import TOY, Ended, Program, check_logs_continue, checkpoints, differences, read, wait_until

Run = Callable[..., Ended]
Start = Callable[..., Program]
Toy = Callable[..., list[str]]

ENDLESS = ["number_epochs=100000", "test_activate=false", "save_interval=0"]


def _children(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children(recursive=True) if "worker" in " ".join(child.cmdline())]


def _hanging(tmp_path: Path, **knobs: object) -> list[str]:
    """Return the knobs of an environment that hangs in its second episode, once it has made a file."""
    faulty = {"fault": "hang", "at": 2, "episode": 1, "once": str(tmp_path / "hangs")}
    return ["--cpanel", json.dumps({"model_name": "digideep.testing:Faulty-v0", "env_kwargs": faulty, **knobs})]


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_a_stopping_signal_saves_where_it_stands(start: Start, toy: Toy, name: str, code: int) -> None:
    program = start(*toy("stopped", *ENDLESS))
    program.wait_for("saved ")

    program.send(signal.Signals[name])
    ended = program.end()

    assert ended.code == code
    session = ended.session
    last = checkpoints(session)[-1]
    assert ended.out[-1] == f"saved {session}/checkpoints/checkpoint-{last}"
    summary = read(session / "summary.json")
    assert (summary["state"], summary["exit_code"], summary["reason"]) == ("stopped", code, name)
    assert read(session / "meta.json")["runs"][0]["exit_code"] == code
    assert not (session / "done.lock").exists()
    assert "Traceback" not in ended.err


def test_sigusr1_saves_and_goes_on(start: Start, toy: Toy) -> None:
    program = start(*toy("saving", *ENDLESS))
    program.wait_for("saved ")

    program.send(signal.SIGUSR1)
    program.wait_for("saved ")
    program.send(signal.SIGUSR1)
    program.wait_for("saved ")
    program.send(signal.SIGTERM)

    assert len(set(program.end().saved)) >= 3


def test_sigusr1_may_be_asked_to_stop(digideep: Run, resume: Run, toy: Toy) -> None:
    ended = digideep(*toy("stop", "on_sigusr1=stop"), moments={"cycle 3": ["SIGUSR1"]}, expect=75)

    assert ended.saved[-1] == "checkpoint-3"
    assert read(ended.session / "summary.json")["reason"] == "SIGUSR1"
    resume(ended.session)


def test_a_storm_of_sigusr1_changes_no_bit(start: Start, digideep: Run, toy: Toy) -> None:
    straight = digideep(*toy("straight", "number_epochs=12", "test_interval=4")).session
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    program = start(*toy("storm", "number_epochs=12", "test_interval=4"))
    program.wait_for("saved ")

    for _ in range(2000):
        try:
            program.send(signal.SIGUSR1)
        except ProcessLookupError:
            break
        if rng.random() < 0.01:
            time.sleep(rng.random() / 100)
    ended = program.end()

    assert ended.code == 0
    assert len(ended.saved) > 5
    assert differences(straight, ended.session) == []
    check_logs_continue(ended.session)


def test_a_hangup_that_was_ignored_stays_ignored(digideep: Run, toy: Toy) -> None:
    ended = digideep(*toy("nohup", "number_epochs=1"), moments={"cycle 1": ["SIGHUP"]}, ignored=[signal.SIGHUP])

    assert read(ended.session / "summary.json")["reason"] == "goal: 1 epochs"


@pytest.mark.parametrize(("name", "code", "saved"), [("SIGTERM", 143, "checkpoint-0"), ("SIGUSR1", 0, "checkpoint-1")])
def test_a_signal_during_start_up_is_neither_lost_nor_deadly(
    digideep: Run, toy: Toy, name: str, code: int, saved: str
) -> None:
    ended = digideep(*toy("early", "number_epochs=1"), moments={"start": [name]}, expect=code)

    assert ended.saved[:2][-1] == saved


def test_handlers_stand_before_anything_heavy_is_imported() -> None:
    program = (
        "import signal, sys\n"
        "from digideep.pipeline.signals import StopRequest\n"
        "heavy = {'torch', 'numpy', 'gymnasium', 'argparse', 'yaml'}\n"
        "tell = lambda self: (sys.stderr.write(str(sorted(heavy & set(sys.modules)))), sys.exit(0))\n"
        "StopRequest.install = tell\n"
        "from digideep.main import console\n"
        "console()\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stderr == "[]"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_hung_environment_is_left_within_the_grace_period(
    start: Start, resume: Run, toy: Toy, tmp_path: Path, workers: int
) -> None:
    program = start(*toy("hung"), *_hanging(tmp_path, num_workers=workers, grace_s=1.0))
    program.wait_for("saved ")
    wait_until((tmp_path / "hangs").exists)
    left = _children(program.pid)

    program.send(signal.SIGTERM)
    began = time.monotonic()
    ended = program.end()

    assert ended.code == 143
    assert time.monotonic() - began < 5.0  # the grace period is 1 s; the machine may be busy
    number = checkpoints(ended.session)[-1]
    line = f"stopped inside a cycle: checkpoint-{number} stands, "
    assert line in ended.err.splitlines()[-1]
    assert ended.err.splitlines()[-1].endswith(" frames will be repeated")
    assert len(left) == workers
    psutil.wait_procs(left, timeout=10)
    assert [process for process in left if process.is_running()] == []
    assert read(ended.session / "summary.json")["state"] == "stopped"
    resume(ended.session)


def test_a_second_interrupt_does_not_wait(start: Start, resume: Run, toy: Toy, tmp_path: Path) -> None:
    program = start(*toy("hung"), *_hanging(tmp_path, number_epochs=2))
    program.wait_for("saved ")
    wait_until((tmp_path / "hangs").exists)

    program.send(signal.SIGINT)
    program.send(signal.SIGINT)
    # Two that come at once may be one to the kernel: the third is the second then.
    wait_until(lambda: _sent_again(program))
    ended = program.end(timeout_s=20)

    assert ended.code == 130
    assert "Traceback" not in ended.err
    resume(ended.session)


def _sent_again(program: Program) -> bool:
    """Interrupt once more; whether the program has gone."""
    try:
        program.send(signal.SIGINT)
        time.sleep(0.05)
        return psutil.Process(program.pid).status() == psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return True


def test_signals_to_the_whole_group_do_not_kill_workers(start: Start, resume: Run, toy: Toy) -> None:
    program = start(*toy("group", *ENDLESS, "num_workers=2"))
    program.wait_for("saved ")
    assert len(_children(program.pid)) == 2

    os.killpg(program.pid, signal.SIGUSR1)
    program.wait_for("saved ")
    os.killpg(program.pid, signal.SIGINT)
    ended = program.end()

    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert "ended" not in ended.err.replace("ends after", "")
    resume(ended.session, "--set", "/runner/n_epochs=1", "/runner/max_iter=1")


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

    save, refused = CheckpointStore.save, list[int]()

    def full(self: CheckpointStore, number: int, *more: object, **options: object) -> object:
        if number >= 4:
            refused.append(number)
            raise StorageError(f"checkpoint-{number}: expected room, found none")
        return save(self, number, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(CheckpointStore, "save", full)

    ended = command(*toy("full", "number_epochs=9", "test_activate=false"), expect=9)

    assert refused == [4, 6, 8]
    assert ended.saved == ["checkpoint-0", "checkpoint-2"]
    summary = read(ended.session / "summary.json")
    assert (summary["state"], summary["exit_code"]) == ("failed", 9)


def test_a_failed_save_is_told_and_training_goes_on(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    from digideep.errors import StorageError
    from digideep.pipeline.checkpoint import CheckpointStore

    save = CheckpointStore.save

    def full_once(self: CheckpointStore, number: int, *more: object, **options: object) -> object:
        if number == 4:
            raise StorageError("checkpoint-4: expected room, found none")
        return save(self, number, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(CheckpointStore, "save", full_once)

    ended = command(*toy("full", "test_activate=false"))

    assert ended.saved == ["checkpoint-0", "checkpoint-2", "checkpoint-6", "checkpoint-8", "checkpoint-8"]
    assert ended.err.count("save 1 of 3 failed: checkpoint-4: expected room, found none") == 1


def test_done_needs_a_durable_last_save(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    from digideep.errors import StorageError
    from digideep.pipeline.checkpoint import CheckpointStore

    def full(self: CheckpointStore, number: int, *more: object, **options: object) -> object:
        raise StorageError("expected room, found none")

    monkeypatch.setattr(CheckpointStore, "save", full)

    ended = command(*toy("full", "number_epochs=1", "test_activate=false", "save_interval=0"), expect=9)

    assert not (ended.session / "done.lock").exists()
