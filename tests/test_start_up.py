"""What a start imports and waits for: each command only what it needs, since that is what its time goes into."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import digideep
from digideep.errors import StorageError
from digideep.pipeline.founding import Founded

PRESET = "digideep.params.cartpole_ppo"
PROBE = """
import json, sys
from digideep import main
code = main.main(sys.argv[1:])
sys.stderr.write(json.dumps([code, sorted(sys.modules)]) + "\\n")
"""
LIBRARIES = {"torch", "gymnasium", "numpy", "tensorboard", "google.protobuf", "yaml", "psutil", "safetensors", "rich"}
# What takes milliseconds each, and is needed where there is a session only.
OF_SESSIONS = {"hashlib", "subprocess", "multiprocessing", "platform", "tempfile", "uuid"} | {
    f"digideep.pipeline.{name}" for name in ("session", "snapshot", "trust", "fsio", "layout", "checkpoint", "relaunch")
}
# Nothing of a plain run takes these, though they are installed beside it or one of its libraries knows them.
NEVER = {
    "tensorboard",
    "tensorflow",
    "google.protobuf",
    "matplotlib",
    "PIL",
    "pandas",
    "scipy",
    "yaml",
    "torch._dynamo",
}


def imported(*argv: str, cwd: Path) -> tuple[int, set[str]]:
    """Return the exit code and the modules of a program of its own."""
    ended = subprocess.run([sys.executable, "-c", PROBE, *argv], cwd=cwd, capture_output=True, text=True, check=True)
    code, modules = json.loads(ended.stderr.splitlines()[-1])
    return code, set(modules)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["--parms", PRESET], 2),
        (["--params", PRESET, "--set", "lrr=1"], 2),
        (["--params", PRESET, "--set", "lr=x"], 2),
        (["--params", "digideep.params.cartpol_ppo"], 2),
    ],
    ids=["help", "version", "option", "key", "value", "preset"],
)
def test_what_is_told_without_a_session_imports_nothing_that_sessions_need(
    tmp_path: Path, argv: list[str], expected: int
) -> None:
    code, modules = imported(*argv, cwd=tmp_path)

    assert code == expected
    assert sorted(modules & (LIBRARIES | OF_SESSIONS)) == []


def test_a_session_that_is_not_there_is_told_before_what_would_read_it_is_imported(tmp_path: Path) -> None:
    code, modules = imported("--load-checkpoint", "nowhere", "--resume", cwd=tmp_path)

    assert code == 2
    assert sorted(modules & (LIBRARIES | {"digideep.pipeline.session", "digideep.pipeline.trust"})) == []


def test_a_wrong_environment_is_told_with_gymnasium_and_without_what_learns(tmp_path: Path) -> None:
    code, modules = imported("--params", PRESET, "--set", "model_name=CartPole-v99", cwd=tmp_path)

    assert code == 2
    assert sorted(modules & (LIBRARIES - {"gymnasium", "numpy"})) == []
    assert "digideep.pipeline.session" not in modules


def test_a_run_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    knobs = ["total_frames=300", "number_epochs=0", "n_steps=16", "epoch_size=1", "minibatch_size=64"]
    few = [*knobs, "test_win_size=1", "stop_return=null", "num_workers=0"]

    code, modules = imported("--params", PRESET, "--session-path", "sessions", "--set", *few, cwd=tmp_path)

    assert code == 0
    assert sorted(modules & NEVER) == []


def test_the_copy_of_the_code_is_durable_before_a_checkpoint_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    order: list[str] = []

    def slow(modules: Path) -> None:
        done.wait(10.0)
        order.append(f"durable {modules.name}")

    settle = Founded.settle

    def waiting(self: Founded) -> None:
        order.append("waits")
        done.set()
        settle(self)
        order.append("goes on")

    monkeypatch.setattr("digideep.pipeline.founding.synchronise", slow)
    monkeypatch.setattr(Founded, "settle", waiting)
    monkeypatch.setattr("digideep.pipeline.session.Session.save", lambda *_, **__: order.append("save"))

    digideep.run(PRESET, {"total_frames": 1, "n_steps": 4, "test_activate": False}, session_path=str(tmp_path))

    assert order[:4] == ["waits", "durable modules", "goes on", "save"]


def test_a_disk_that_refuses_the_copy_of_the_code_ends_the_run_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(modules: Path) -> None:
        raise StorageError(f"{modules}: expected to copy code to it, found EIO (Input/output error); check the disk")

    monkeypatch.setattr("digideep.pipeline.founding.synchronise", refused)

    with pytest.raises(StorageError, match="copy code to"):
        digideep.run(PRESET, {"total_frames": 1, "n_steps": 4, "test_activate": False}, session_path=str(tmp_path))

    assert list(tmp_path.iterdir()) == []
