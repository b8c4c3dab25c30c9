"""How workers start: what they can import, what is told when they cannot, and what becomes of what they say."""

from __future__ import annotations

import contextlib
import errno
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import psutil
import pytest
from fakes_vec import Follower, explorer
from test_vec_process import Factory, is_gone, run, wait_until

from digideep.environment.config import EnvConfig
from digideep.environment.vec.child import Child
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.serial import SerialVecEnv
from digideep.errors import UsageError, WorkerError
from digideep.utility.imports import import_module

USERS = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
import {beside}

class Pole(CartPoleEnv):
    pass

gymnasium.register("{id}", entry_point="{name}:Pole", max_episode_steps=20)
"""


def users_module(directory: Path, name: str) -> str:
    """Write a module that registers an environment, and one beside it that it imports; return the id."""
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.py").write_text(USERS.format(beside=f"{name}_beside", id=f"{name}-v0", name=name))
    (directory / f"{name}_beside.py").touch()
    return f"{name}-v0"


@pytest.fixture
def registry() -> Iterator[None]:
    """Forget what a test has registered and imported."""
    ids, modules = set(gymnasium.registry), set(sys.modules)
    yield
    for name in set(gymnasium.registry) - ids:
        del gymnasium.registry[name]
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize("entry", ["text", "path beside it", "relative"])
@pytest.mark.usefixtures("registry")
def test_modules_of_a_directory_on_the_path_are_found_in_workers(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"users_{entry.partition(' ')[0]}"
    model = users_module(tmp_path / "code", name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("code" if entry == "relative" else str(tmp_path / "code"))
    if entry == "path beside it":
        monkeypatch.setattr(sys, "path", [Path("nowhere"), *sys.path])  # of no effect in Python, and no error either

    vec = ProcessVecEnv(EnvConfig(model_name=f"{name}:{model}"), num_envs=2, num_workers=1, allowed=(name,))
    vec.close()

    assert vec.spec.max_episode_steps == 20


@pytest.mark.usefixtures("registry")
def test_modules_of_a_directory_that_has_left_the_path_are_found_in_workers(tmp_path: Path) -> None:
    model = users_module(tmp_path, "users_left")
    import_module("users_left", where="test", allowed=("users_left",), search=(tmp_path,))
    assert str(tmp_path) not in sys.path

    config = EnvConfig(model_name=model, from_module="users_left")
    vec = ProcessVecEnv(config, num_envs=2, num_workers=1, allowed=("users_left",))
    vec.close()

    assert vec.spec.id == model


@pytest.mark.usefixtures("registry")
def test_an_environment_that_only_this_process_knows_is_told_from_a_wrong_id() -> None:
    gymnasium.register("OnlyHere-v0", entry_point="fakes_vec:ScriptEnv")

    with pytest.raises(UsageError, match=r"env/from_module: expected the module that registers 'OnlyHere-v0'"):
        ProcessVecEnv(EnvConfig(model_name="OnlyHere-v0"), num_envs=1, num_workers=1)
    with pytest.raises(UsageError, match="takes no argument 'masspole'"):
        ProcessVecEnv(EnvConfig(model_name="CartPole-v1", env_kwargs={"masspole": 1}), num_envs=1, num_workers=1)


def test_a_worker_that_cannot_import_what_it_needs_says_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gymnasium.py").write_text("raise ImportError('no gymnasium of this version')\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(WorkerError) as raised:
        ProcessVecEnv(EnvConfig(), num_envs=2, num_workers=1)

    assert re.fullmatch(
        r"environments 0 to 1 \(CartPole-v1, worker 0\): expected a running worker, found that it ended with exit "
        r"code 1 \(pid \d+\); it said last: ImportError: no gymnasium of this version",
        str(raised.value),
    )
    assert "Traceback" in raised.value.traceback_text  # type: ignore[attr-defined]


def test_a_machine_without_room_for_processes_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, me = subprocess.Popen, psutil.Process()
    started: list[Any] = []
    before = me.num_fds()

    def limited(*arguments: Any, **options: Any) -> Any:
        if started:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        started.append(begin(*arguments, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", limited)

    with pytest.raises(UsageError, match=r"num_workers: expected 2 processes, found that number 1 cannot be started"):
        ProcessVecEnv(EnvConfig(), num_envs=2, num_workers=2)
    assert is_gone(started[0].pid)
    assert me.num_fds() == before


STARTING = """
import sys
from digideep.environment.vec.child import Child
child = Child(0, range(1))
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_worker_whose_parent_dies_while_it_starts_ends_too() -> None:
    command = [sys.executable, "-c", STARTING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())

        parent.kill()

        assert wait_until(lambda: is_gone(worker))


def test_a_worker_that_has_ended_keeps_its_number_until_it_is_cleared_away() -> None:
    child = Child(0, range(1))
    psutil.Process(child.pid).kill()

    assert wait_until(lambda: not child.is_running)

    # Were its end taken here, a group of that number could be a stranger's by the time `end` kills it.
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    child.end(grace_s=0.0)
    child.output.close()
    assert not psutil.pid_exists(child.pid)


def test_the_last_words_of_a_worker_are_kept_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    factory = Factory()
    vec = factory(fault="print and die", fault_at=2, workers=1)

    with contextlib.closing(vec), pytest.raises(WorkerError, match="ended with exit code 3") as raised:
        run(vec, 4)

    assert raised.value.traceback_text == "torque → ∞"  # type: ignore[attr-defined]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_nothing_goes_to_standard_output(num_workers: int, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fault = "" if num_workers == 0 else "print"  # what an environment prints in this process is its own
    made = explorer(num_workers=num_workers, kwargs={"fault": fault}, monitor_dir=tmp_path)
    made.set_actors({"agent": Follower()})
    for _ in range(3):
        made.update()
    made.timings()
    made.state_dict()
    made.close()

    assert capfd.readouterr().out == ""


def test_workers_and_this_process_tell_the_same_spec() -> None:
    for config in (EnvConfig(), EnvConfig(model_name="Pendulum-v1"), EnvConfig(model_name="Blackjack-v1")):
        serial, process = SerialVecEnv(config, num_envs=1), ProcessVecEnv(config, num_envs=1, num_workers=1)

        serial.close()
        process.close()

        assert process.spec == serial.spec
