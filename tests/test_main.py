"""The program as a whole: errors of users are one line with their code, quick, and leave nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import TOY, Ended, read, tree

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

PROBE = """
import json, sys
from digideep import main
code = main.main(sys.argv[1:]) if hasattr(main, "main") else None
heavy = sorted({"torch", "gymnasium", "numpy", "tensorboard", "yaml"} & set(sys.modules))
sys.stderr.write(json.dumps([code, heavy]) + "\\n")
"""

BAD = [
    [],
    ["--parms", "x"],
    ["--params"],
    ["--params", "nowhere.at_all"],
    ["--params", "digideep.params.cartpole_pp"],
    ["--params", "missing.py"],
    ["--params", "missing.yaml"],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", "{"],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", "[1]"],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", '{"a": NaN}'],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", '{"seed": 1, "seed": 2}'],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", "[" * 2000],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", "@missing.json"],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", '{"gama": 0.9}'],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", '{"seed": 1.5}'],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", '{"seed": null}'],
    ["--params", "digideep.params.cartpole_ppo", "--cpanel", '{"num_envs": 0}'],
    ["--params", "digideep.params.cartpole_ppo", "--repeal", '{"/runner/n_epoch": 3}'],
    ["--params", "digideep.params.cartpole_ppo", "--repeal", '{"runner": 3}'],
    ["--params", "digideep.params.cartpole_ppo", "--repeal", '{"/": 3}'],
    ["--params", "digideep.params.cartpole_ppo", "--set", "seed"],
    ["--params", "digideep.params.cartpole_ppo", "--set", "seed=x"],
    ["--params", "digideep.params.cartpole_ppo", "--set", "seed=1", "seed=2"],
    ["--params", "digideep.params.cartpole_ppo", "--set", "/runner/seed=1", "seed=2"],
    ["--params", "digideep.params.cartpole_ppo", "--set", "number_epochs=3"],
    ["--params", "digideep.params.cartpole_ppo", "--set", "total_frames=0"],
    ["--params", "digideep.params.cartpole_ppo", "--session-name", "../x"],
    ["--params", "digideep.params.cartpole_ppo", "--session-name", "x{nothing}"],
    ["--params", "digideep.params.cartpole_ppo", "--resume"],
    ["--params", "digideep.params.cartpole_ppo", "--load-checkpoint", "x", "--resume"],
    ["--params", "digideep.params.cartpole_ppo", "--dry-run", "--create-session-only"],
    ["--params", "digideep.params.cartpole_ppo", "--episodes", "3"],
    ["--params", "digideep.params.cartpole_ppo", "--play", "--episodes", "0"],
    ["--params", "digideep.params.cartpole_ppo", "--device", "tpu"],
    ["--params", "digideep.params.cartpole_ppo", "--log-level", "loud"],
    ["--params", "digideep.params.cartpole_ppo", "--session-path", "/dev/null"],
    ["--load-checkpoint", "missing", "--resume"],
    ["--load-checkpoint", ".", "--play"],
    ["--load-checkpoint", "x"],
    ["--load-checkpoint", "x", "--resume", "--play"],
    ["--load-checkpoint", "x", "--resume", "--checkpoint", "newest"],
    ["--load-checkpoint", "x", "--resume", "--dry-run"],
]


@pytest.mark.parametrize("argv", BAD, ids=lambda argv: " ".join(argv)[:70] or "nothing")
def test_a_wrong_command_is_one_line_and_leaves_nothing(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIGIDEEP_SESSIONS", str(tmp_path / "sessions"))

    ended = command(*argv, expect=2)

    assert ended.out == []
    assert ended.err.startswith("digideep: error: ")
    assert ended.err.count("\n") == 1
    assert ": expected " in ended.err or "unknown" in ended.err
    assert list(tmp_path.iterdir()) == []


ENVIRONMENTS = [
    ("model_name=CartPol-v1", "CartPole"),
    ("model_name=nowhere_at_all:CartPole-v1", "nowhere_at_all"),
    ("from_module=nowhere_at_all", "nowhere_at_all"),
    ('env_kwargs={"lenght": 3}', "lenght"),
]


@pytest.mark.parametrize(("assignments", "named"), ENVIRONMENTS)
def test_a_wrong_environment_is_told_before_anything_is_made(
    command: Run, tmp_path: Path, assignments: str, named: str
) -> None:
    argv = ["--params", "digideep.params.cartpole_ppo", "--session-path", str(tmp_path / "sessions")]

    ended = command(*argv, "--set", assignments, expect=2)

    assert (ended.out, ended.err.count("\n")) == ([], 1)
    assert named in ended.err
    assert not (tmp_path / "sessions").exists() or list((tmp_path / "sessions").iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "code", "heavy"),
    [
        (["--parms", "x"], 2, []),
        (["--params", "digideep.params.cartpole_ppo", "--set", "gama=1"], 2, []),
        (["--params", "digideep.params.cartpole_pp"], 2, []),
        (["--load-checkpoint", "missing", "--resume"], 2, []),
        (["--params", "digideep.params.cartpole_ppo", "--session-name", "taken"], 2, ["torch"]),
        (["--params", "digideep.params.cartpole_ppo", "--set", "model_name=CartPol-v1"], 2, ["torch"]),
    ],
    ids=["option", "knob", "preset", "session", "name", "environment"],
)
def test_usage_errors_import_no_torch(tmp_path: Path, argv: list[str], code: int, heavy: list[str]) -> None:
    (tmp_path / "taken").mkdir()

    done = subprocess.run(
        [sys.executable, "-c", PROBE, *argv, *(["--session-path", str(tmp_path)] if "--params" in argv else [])],
        capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip

    found, imported = json.loads(done.stderr.splitlines()[-1])
    assert found == code
    forbidden = {"torch", "tensorboard"} if heavy else {"torch", "gymnasium", "numpy", "tensorboard"}
    assert set(imported) & forbidden == set()


FAULTS = [
    ("init", 7), ("reset", 7), ("step", 7), ("nan", 8), ("inf", 8), ("reward_nan", 8), ("shape", 7), ("dtype", 7),
    ("info", 7), ("exit", 7),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_a_failing_environment_is_one_line_with_its_code_and_the_session_stays(
    digideep: Run, toy: Toy, fault: str, code: int
) -> None:
    knobs = {
        "model_name": "digideep.testing:Faulty-v0", "env_kwargs": {"fault": fault, "at": 3}, "num_workers": 1,
        "play_env_kwargs": {}, "number_epochs": 1,
    }  # fmt: skip
    if fault == "reset":
        knobs["env_kwargs"] = {"fault": fault, "at": 0}

    ended = digideep(*toy("faulty"), "--cpanel", json.dumps(knobs), expect=code)

    error = ended.err.splitlines()[-1]
    assert error.startswith("digideep: error: ")
    assert "Traceback" not in ended.err
    summary = read(ended.session / "summary.json")
    assert (summary["state"], summary["exit_code"]) == ("failed", code)
    assert read(ended.session / "meta.json")["runs"][0]["exit_code"] == code


def test_a_fault_of_ours_is_exit_1_with_its_traceback_in_the_report(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from digideep.pipeline.engine import SerialEngine

    monkeypatch.setattr(SerialEngine, "cycle", None)  # a function of the test would be code of the user

    ended = command(*toy("bug"), expect=1)

    report = ended.session / "report.log"
    error = ended.err.splitlines()[-1]
    assert error.startswith("digideep: error: ") and str(report) in error
    assert "Traceback" not in ended.err
    assert "TypeError: 'NoneType' object is not callable" in report.read_text() and "Traceback" in report.read_text()
    assert read(ended.session / "summary.json")["exit_code"] == 1


def test_nothing_is_printed_twice_whatever_a_library_does_to_logging(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    root = logging.getLogger()
    handlers = list(root.handlers)
    monkeypatch.setattr(root, "handlers", [*handlers, logging.StreamHandler()])

    ended = command(*toy("once", "number_epochs=1", "test_activate=false"))

    lines = [line for line in ended.err.splitlines() if "epoch 1 |" in line]
    assert len(lines) == 1


def test_a_start_that_fails_late_leaves_nothing_new(command: Run, toy: Toy, tmp_path: Path) -> None:
    session = command(*toy("one", "number_epochs=1", "test_activate=false")).session
    before = [entry for entry in tree(session) if entry[0] not in ("running.lock", "report.log")]

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/n_epochs=x", expect=2)
    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/no=1", expect=2)

    assert [entry for entry in tree(session) if entry[0] not in ("running.lock", "report.log")] == before


def test_tensorboard_is_served_on_loopback_and_ends_with_the_run(
    start: Callable[..., object], toy: Toy, tmp_path: Path
) -> None:
    import re
    import signal
    import urllib.request

    import psutil
    from fakes import wait_until

    program = start(*toy("served", "number_epochs=100000", "test_activate=false"), "--tensorboard")
    program.wait_for("saved ")  # type: ignore[attr-defined]
    pid = program.pid  # type: ignore[attr-defined]
    report = tmp_path / "served" / "report.log"
    wait_until(lambda: "http://" in report.read_text(), timeout_s=60)
    (url,) = set(re.findall(r"http://[^\s,;]+", report.read_text()))
    children = psutil.Process(pid).children(recursive=True)
    listening = [c.laddr.ip for child in children for c in child.net_connections() if c.status == psutil.CONN_LISTEN]

    with urllib.request.urlopen(url, timeout=20) as answer:
        status = answer.status
    program.send(signal.SIGKILL)  # type: ignore[attr-defined]
    program.end()  # type: ignore[attr-defined]

    assert status == 200
    assert set(listening) == {"127.0.0.1"}
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def test_the_toy_is_a_parameter_module_like_any_other(command: Run) -> None:
    described = command("--params", TOY, "--describe", "--json")

    assert "num_envs" in json.loads("\n".join(described.out)).__repr__()
