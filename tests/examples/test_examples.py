"""Each example does what its page says: trained by the command line, resumed, read again."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from digideep.post import Loader, load
from digideep.testing import check_state_roundtrip

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PARAMS = ("corridor_ppo", "huber_ppo", "residual_ppo")
SMALL = ("number_epochs=2", "total_frames=0", "stop_return=null", "epoch_size=1", "test_win_size=2", "num_envs=2")

Command: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs Python in an empty directory, with sessions below it."""
    directory = tmp_path_factory.mktemp("examples")
    environment = {**os.environ, "DIGIDEEP_SESSIONS": str(directory / "sessions"), "OMP_NUM_THREADS": "1"}
    environment["HOME"] = str(directory)
    environment.pop("XDG_STATE_HOME", None)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def residual(command: Command) -> Loader:
    """Give a session with a network of one's own, stopped half way and resumed."""
    session = train(command, "residual_ppo", "n_steps=32", "width=16", "blocks=1", "max_exec_iter=1")
    done = command("-m", "digideep.main", "--load-checkpoint", str(session.path), "--resume")
    assert done.returncode == 0, done.stderr
    return session


def train(command: Command, name: str, *assignments: str) -> Loader:
    """Return the session of a short training with the parameters of an example."""
    options = ("--params", str(EXAMPLES / f"{name}.py"), "--no-monitor-cpu", "--no-monitor-gpu")
    done = command("-m", "digideep.main", *options, "--set", *SMALL, *assignments)
    assert done.returncode in (0, 75), done.stderr
    # The key that signed it lies in the home of these programs, not in the one of this test.
    return load(done.stdout.splitlines()[0].removeprefix("session: "), trust_session=True)


def undefined_metrics(session: Loader) -> list[str]:
    """Return the metrics in the last line of a session's log that docs/metrics.md does not define."""
    page = (EXAMPLES.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    last = (session.path / "varlog.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    own = re.compile(r"(env|test)/(door|detour|is_success)")
    names = {own.sub(r"\1/<name>", name).replace("/agent/", "/<agent>/") for name in json.loads(last)["data"]}
    return sorted(name for name in names if f"`{name}`" not in page)


def test_every_example_is_short_and_its_page_names_it() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")

    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}

    assert len(lengths) == 7
    assert {name: length for name, length in lengths.items() if length >= 60} == {}
    assert [name for name in lengths if name not in page] == []


@pytest.mark.parametrize("name", PARAMS)
def test_parameters_are_described_by_path(name: str, command: Command) -> None:
    done = command("-m", "digideep.main", "--params", str(EXAMPLES / f"{name}.py"), "--describe")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["knob", "value", "type", "unit", "meaning"]


def test_state_of_the_corridor_can_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    corridor = importlib.import_module("corridor")

    check_state_roundtrip(corridor.CorridorEnv)


def test_corridor_gives_metrics_and_its_door_moves_away_as_training_goes_on(command: Command) -> None:
    session = train(command, "corridor_ppo", "n_steps=64", "corridor_length=6")

    doors = session.varlog()["env/door/max"]
    assert session.params["env"]["env_kwargs"] == {"length": 6}
    assert session.params["env"]["play_env_kwargs"] == {"length": 6, "shortest": 6}
    assert doors.tolist() == [2.0, 4.0]
    assert set(session.varlog()) >= {"env/detour", "env/is_success", "test/is_success"}
    assert session.summary["exactness"] == "exact"
    assert undefined_metrics(session) == []
    # Its module is installed nowhere: reading takes the copy in the session.
    done = command(str(EXAMPLES / "read_session.py"), str(session.path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("knob", "expected"), [("corridor_length=1.5", "integer"), ("carefull=true", "'careful'")])
def test_knobs_of_the_corridor_are_checked(knob: str, expected: str, command: Command) -> None:
    done = command("-m", "digideep.main", "--params", str(EXAMPLES / "corridor_ppo.py"), "--set", knob)

    assert done.returncode == 2
    assert expected in done.stderr


def test_network_of_ones_own_is_trained_and_saved(residual: Loader) -> None:
    policy = residual.load_checkpoint().components["agents.agent"]["policy"]
    before = residual.load_checkpoint(0).components["agents.agent"]["policy"]

    assert policy["network.blocks.0.layers.1.weight"].shape == (16, 16)
    assert (policy["network.first.weight"] != before["network.first.weight"]).any()


def test_overridden_loss_is_what_the_agent_learns_from(command: Command) -> None:
    session = train(command, "huber_ppo", "n_steps=32", "huber_delta=0.001")

    log = (session.path / "report.log").read_text(encoding="utf-8")
    assert "reference: HuberAgent overrides value_loss" in log
    # Beyond delta the loss is less than delta times the error, and no error is above 500; squared, it would be 20.
    assert 0.0 < session.varlog()["update/agent/value_loss"][0] < 0.5


def test_session_goes_on_with_the_code_that_it_carries(residual: Loader) -> None:
    carried = sorted(path.name for path in (residual.path / "modules").glob("*.py"))

    assert carried == ["residual_network.py", "residual_ppo.py"]
    assert (residual.summary["state"], residual.summary["epoch"]) == ("done", 2)


def test_a_recurrent_policy_plays_in_an_environment_with_wrappers(command: Command) -> None:
    options = ("--params", "digideep.params.cartpole_hidden_ppo_recurrent", "--no-monitor-cpu", "--no-monitor-gpu")
    small = (*SMALL, "n_steps=16", "units=4", "hidden_sizes=[4]")
    trained = command("-m", "digideep.main", *options, "--session-name", "hidden", "--set", *small)
    assert trained.returncode == 0, trained.stderr

    done = command(str(EXAMPLES / "read_session.py"), trained.stdout.splitlines()[0].removeprefix("session: "))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("one episode: ")


def test_a_session_is_read_and_its_policy_plays(residual: Loader, command: Command) -> None:
    done = command(str(EXAMPLES / "read_session.py"), str(residual.path))

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{residual.path.name}: done (goal: 2 epochs) at frame {residual.summary['frame']}"
    assert lines[1].startswith("best test: ")
    assert [line.split(":")[0] for line in lines[-4:]] == [*(f"checkpoint-{n}" for n in range(3)), "one episode"]
