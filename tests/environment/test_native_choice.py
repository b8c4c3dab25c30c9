"""Which kind of environments is stepped: a rule that no measurement changes, recorded and reused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Ended
from fakes_native import COUNTING, copied, explorer
from toys import same_run

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.environment.wrappers.config import FrameStackConfig
from digideep.errors import MissingExtraError
from digideep.params import cartpole_ppo
from digideep.testing import CountingActor
from digideep.utility.node import node
from digideep.utility.seeding import derive
from digideep.utility.yaml12 import loads_yaml

CARTPOLE = ("--params", "digideep.params.cartpole_ppo")
FEW = ("num_workers=auto", "number_epochs=2", "test_activate=false")
SHORT = (
    "num_envs=4",
    "n_steps=16",
    "epoch_size=2",
    "minibatch_size=32",
    "test_win_size=1",
    "stop_return=null",
    "total_frames=0",
)


@pytest.mark.parametrize(
    ("name", "fields", "backend", "told"),
    [
        ("CartPole-v1", {}, "native", "native, since CartPole-v1 has a vector form whose state is saved"),
        (COUNTING, {}, "native", "native, since"),
        ("CartPole-v1", {"num_envs": 3}, "single", "single, since there are fewer than 4 environments"),
        ("CartPole-v1", {"num_workers": 0}, "single", "single, since num_workers is 0 and not 'auto'"),
        ("CartPole-v1", {"num_workers": 2}, "single", "single, since num_workers is 2 and not 'auto'"),
        ("CartPole-v1", {"on_env_error": "reset"}, "single", "single, since on_env_error is 'reset'"),
        ("CartPole-v1", {"on_nonfinite": "reset"}, "single", "single, since on_nonfinite is 'reset'"),
        (
            COUNTING,
            {"kwargs": {"rank": 9}},
            "single",
            "single, since the vector form of CountingVector-v0 takes no rank",
        ),
        ("CartPole-v1", {"env": {"wrappers": (node(FrameStackConfig, n=2),)}}, "native", "native, since"),
        ("Pendulum-v1", {}, "single", "single, since Pendulum-v1 has no vector form of its own"),
        ("NativeSameStep-v0", {}, "single", "single, since SameStepVectorEnv declares SAME_STEP"),
        ("NativeStateless-v0", {}, "single", "single, since NativeStateless-v0 has no state to save"),
        ("NativeStateless-v0", {"exact": False}, "native", "native, since NativeStateless-v0 has a vector form"),
    ],
)
def test_auto_takes_the_vector_form_by_rule_and_the_log_says_why(
    name: str,
    fields: dict[str, Any],
    backend: str,
    told: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("digideep.environment.vec.choose.granted_cores", lambda: 1)

    with caplog.at_level("INFO"):
        sampler = explorer(name, **{"backend": "auto", "num_workers": "auto", "num_envs": 4, **fields})
    sampler.close()

    assert sampler.backend == backend
    assert f"backend auto: {told}" in caplog.text


@pytest.mark.parametrize("mode", ["test", "eval"])
def test_tests_and_plays_have_single_environments(mode: Any) -> None:
    env = node(EnvConfig, model_name="CartPole-v1")
    config = ExplorerConfig(env=env, num_envs=2, n_episodes=2, backend="native")
    sampler = Explorer(config, mode=mode, seed=1)

    assert sampler.backend == "single"
    sampler.close()


def test_a_number_of_workers_beside_a_back_end_asked_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        sampler = explorer("CartPole-v1", num_workers=2)
    sampler.close()

    assert (sampler.num_workers, sampler.backend) == (0, "native")
    assert "num_workers: 2 asked for, none taken: the back end native steps in this process" in caplog.text


def test_one_generator_is_seeded_once_and_several_one_by_one() -> None:
    seeds = {}
    for name in (COUNTING, "NativeCounting-v0"):
        sampler = explorer(name, seed=11)
        sampler.set_actors({"agent": CountingActor(strict=False)})
        seeds[name] = copied(sampler.update())["/observations/observation"][:, 0, 1].astype(int).tolist()
        sampler.close()

    first = derive(11, "train") % 2**20
    assert seeds[COUNTING] == [first, first + 1, first + 2]
    assert seeds["NativeCounting-v0"] == [derive(11, "train", i) % 2**20 for i in range(3)]


def test_zero_and_two_workers_still_give_the_same_bits() -> None:
    chunks = []
    for num_workers in (0, 2):
        sampler = explorer(COUNTING, backend="auto", num_workers=num_workers)
        sampler.set_actors({"agent": CountingActor(strict=False)})
        chunks.append(copied(sampler.update()))
        assert sampler.backend == "single"
        sampler.close()

    for key, expected in chunks[0].items():
        np.testing.assert_array_equal(chunks[1][key], expected, err_msg=key)


def test_presets_step_single_environments() -> None:
    train = cartpole_ppo.gen_params(cartpole_ppo.cpanel)["explorer"]["train"]

    assert (train["num_workers"], train["backend"]) == (0, "auto")


def test_the_choice_is_recorded_and_a_resume_takes_it(command: Callable[..., Ended], tmp_path: Path) -> None:
    made = command(
        *CARTPOLE,
        "--session-path",
        str(tmp_path),
        "--set",
        *SHORT,
        "num_workers=auto",
        "number_epochs=2",
        "test_activate=false",
    )
    session = Path(made.out[0].removeprefix("session: "))
    entries = json.loads((session / "repeal.json").read_text())
    chosen = next(entry["new"] for entry in entries if entry["path"] == "/engine/chosen")

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/n_epochs=3")

    assert (chosen["backend"], chosen["num_workers"]) == ("native", 0)
    assert (
        loads_yaml((session / "params.yaml").read_text(), where="params.yaml")["explorer"]["train"]["backend"] == "auto"
    )
    assert (session / "report.log").read_text().count("backend auto: native") == 1  # the resume had nothing to choose
    assert json.loads((session / "summary.json").read_text())["exactness"] == "exact"


def test_the_program_resumes_native_environments_to_the_same_bits(
    command: Callable[..., Ended], tmp_path: Path
) -> None:
    place = ("--session-path", str(tmp_path), "--session-name")
    sets = ("--set", *SHORT, *FEW, "backend=native")

    straight = command(*CARTPOLE, *place, "straight", *sets).session
    stopped = command(*CARTPOLE, *place, "stopped", *sets, "max_exec_iter=1", expect=75).session
    command("--load-checkpoint", str(stopped), "--resume")

    assert same_run(straight, stopped) == []


def test_check_resume_names_a_vector_environment_without_a_state(command: Callable[..., Ended]) -> None:
    changes = ("model_name=NativeStateless-v0", "from_module=fakes_native", "backend=native")

    ended = command(*CARTPOLE, "--check-resume", "1", "--set", *SHORT, "number_epochs=1", *changes, expect=8)

    assert "expected an environment that gives its state, found NativeStateless-v0 has no state to save" in ended.err


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            ["model_name=Pendulum-v1", "backend=native"],
            "/explorer/train/backend: expected an environment that 'native' can step, found that Pendulum-v1 has no "
            "vector form of its own; use 'single'",
        ),
        (["backend=envpool", "model_name=digideep.testing:Toy-v0"], "EnvPool has no Toy-v0; use 'single'"),
        (["backend=vector"], "backend: expected one of 'auto', 'single', 'native', 'envpool', found string 'vector'"),
        (
            ["backend=native", f"model_name={COUNTING}", 'env_kwargs={"rank": 3}'],
            "found that the vector form of CountingVector-v0 takes no rank; use 'single'",
        ),
        (
            ["backend=native", "num_envs=3", "/explorer/train/act_groups=2"],
            "num_envs: expected an even number for act_groups 2, found 3; use an even one, or act_groups 1",
        ),
        (
            ['play_wrappers=[{"type": "digideep.environment.wrappers.config:FrameStackConfig"}]'],
            "/env/play_wrappers: expected the observations of training",
        ),
    ],
)
def test_what_cannot_be_stepped_so_is_one_line_and_leaves_nothing(
    command: Callable[..., Ended], tmp_path: Path, changes: list[str], told: str
) -> None:
    if "backend=envpool" in changes:
        pytest.importorskip("envpool", reason="the extra envpool is not installed")

    ended = command(*CARTPOLE, "--session-path", str(tmp_path), "--set", *changes, expect=2)

    assert told in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_two_groups_are_no_obstacle_to_a_vector_environment(command: Callable[..., Ended]) -> None:
    ended = command(
        *CARTPOLE, "--dry-run", "--set", "backend=native", "num_envs=4", "/explorer/train/act_groups=2",
        "n_steps=8", "minibatch_size=8", "epoch_size=1", "total_frames=1", "test_activate=false",
    )  # fmt: skip

    assert "goal: 1 frames" in ended.err


def test_envpool_and_games_as_they_are_write_nothing_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("envpool", reason="the extra envpool is not installed")
    program = (
        "from digideep.environment.config import EnvConfig\n"
        "from digideep.environment.make import make_env\n"
        "from digideep.environment.vec.native_envpool import make_envpool\n"
        "make_envpool(EnvConfig('CartPole-v1'), num_envs=2, limit=None).env.close()\n"
        "make_env(EnvConfig('ALE/Pong-v5')).close()\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=tmp_path)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_missing_envpool_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)

    with pytest.raises(MissingExtraError) as caught:
        explorer("CartPole-v1", backend="envpool")

    assert "found no 'envpool'; pip install \"digideep[envpool]\"" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_failure_of_native_environments_ends_the_program_in_one_line_and_leaves_a_note(
    command: Callable[..., Ended], tmp_path: Path
) -> None:
    changes = [
        "model_name=NativeFaulty-v0",
        "from_module=fakes_native",
        "backend=native",
        'env_kwargs={"fault": "step"}',
    ]

    ended = command(*CARTPOLE, "--session-path", str(tmp_path), "--set", *SHORT, "number_epochs=1", *changes, expect=7)

    session = Path(ended.out[0].removeprefix("session: "))
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("digideep: error: environments 0 to 3 (NativeFaulty-v0, native, seed ")
    assert "step 3 of all): KeyError: 'torque'" in last
    note = (session / "crash" / "note.txt").read_text()
    assert note.startswith("a step of a vector environment cannot be walked to again in a single one; ")
    assert "KeyError: 'torque'" in note and note.count("\n") == 1
