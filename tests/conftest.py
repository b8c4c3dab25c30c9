"""What many tests share: a private place for keys and sessions, and sessions made without training."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Before torch is imported: on tensors as small as those of tests its threads only wait for each other, for minutes if
# several test processes share the processors. Programs that tests start set a number of threads of their own.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent / "faults"))

from fakes import TOY, Ended, Program
from ledger import Ledger
from mutants import MUTANTS, VARIABLE, apply

from digideep.pipeline.fsio import publish, publish_json
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.meta import new_meta, write_meta
from digideep.pipeline.snapshot import find_sources, save_modules, stamp_template
from digideep.pipeline.summary import Summary
from digideep.utility.yaml12 import dumps_yaml

PARAMS: dict[str, Any] = {
    "env": {"type": "digideep.environment.config:EnvConfig", "model_name": "CartPole-v1", "from_module": None},
    "runner": {"type": "digideep.pipeline.config:RunnerConfig", "n_epochs": 3, "on_epoch": None},
    "agents": {"agent": {"type": "digideep.agent.ppo.config:PPOConfig"}},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that makes the product wrong, to see that tests notice."""
    parser.addoption("--mutant", choices=sorted(MUTANTS), help="change the product in this way first")


def pytest_configure(config: pytest.Config) -> None:
    """Keep account of promises and skips, unless the product is to be wrong; Ctrl-C works here and below."""
    # Ignored in a shell's background job and below nohup, and then in every program that a test starts.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    mutant = config.getoption("--mutant")
    config.pluginmanager.register(Ledger(keeps=mutant is None, is_worker=hasattr(config, "workerinput")), "ledger")
    if mutant is not None:
        os.environ[VARIABLE] = mutant
        apply(mutant)


@pytest.fixture(autouse=True)
def _private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep keys and default sessions of tests away from those of the user who runs them."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("DIGIDEEP_SESSIONS", str(home / "sessions"))
    monkeypatch.delenv("DIGIDEEP_TRUSTED_ROOTS", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)  # the end of a job that runs these tests is not theirs


@pytest.fixture
def new_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SessionPaths]:
    """Return a function that makes a session in which nothing was trained."""

    def make(name: str = "session_1", *, params: dict[str, Any] | None = None, **summary: Any) -> SessionPaths:
        paths = SessionPaths(tmp_path / name)
        paths.root.mkdir()
        with monkeypatch.context() as quick:  # a hundred fsyncs, which no test of a session's content needs
            quick.setattr(os, "fsync", lambda descriptor: None)
            write_meta(paths, new_meta(preset="digideep.params.cartpole_ppo", message="a trial"))
            publish_json(paths.cpanel, {"seed": 1})
            publish(paths.params, dumps_yaml(PARAMS if params is None else params).encode())
            publish_json(paths.repeal, [])
            stamp_template(paths)
            save_modules(paths, find_sources([]), options=["--resume", "--play", "--load-checkpoint", "--set"])
            dataclasses.replace(Summary(state="stopped", exit_code=75, reason="max_iter"), **summary).write(paths)
        return paths

    return make


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Return a function that starts the program with some arguments and returns it while it runs."""
    started: list[Program] = []

    def begin(*argv: str, **options: Any) -> Program:
        started.append(Program(*argv, **{"cwd": tmp_path, **options}))
        return started[-1]

    yield begin
    for program in started:
        program.close()


@pytest.fixture
def digideep(start: Callable[..., Program]) -> Callable[..., Ended]:
    """Return a function that runs the program to its end, which has to be the expected one."""

    def run(*argv: str, expect: int = 0, **options: Any) -> Ended:
        ended = start(*argv, **options).end()
        assert ended.code == expect, f"{argv}: exit code {ended.code}\n{ended.out}\n{ended.err}"
        return ended

    return run


@pytest.fixture
def resume(digideep: Callable[..., Ended]) -> Callable[..., Ended]:
    """Return a function that goes on with a session."""

    def go_on(session: Path, *more: str, **options: Any) -> Ended:
        return digideep("--load-checkpoint", str(session), "--resume", *more, **options)

    return go_on


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Return a function that runs the program in this process, without waiting for the disk."""
    from digideep.main import main

    def run(*argv: str, expect: int = 0, moments: dict[str, list[str]] | None = None) -> Ended:
        monkeypatch.setattr("os.fsync", lambda descriptor: None)
        monkeypatch.setenv("TOY_MOMENTS", json.dumps(moments or {}))
        capfd.readouterr()
        code = main(list(argv))
        out, err = capfd.readouterr()
        assert code == expect, f"{argv}: exit code {code}\n{out}\n{err}"
        return Ended(code, out.splitlines(), err)

    return run


@pytest.fixture
def toy(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that gives the arguments of a toy training: its session's name, and what to `--set`."""

    def arguments(name: str, *assignments: str) -> list[str]:
        sets = ["--set", *assignments] if assignments else []
        return ["--params", TOY, "--session-path", str(tmp_path), "--session-name", name, *sets]

    return arguments
