from __future__ import annotations

import re
from pathlib import Path

import pytest

from digideep.environment.check import main
from digideep.environment.play import main as play

MODULE = """
import os
import time
import gymnasium
import numpy as np
from gymnasium import spaces
from digideep.testing import FaultyEnv, ToyEnv

class Frozen(gymnasium.Env):
    observation_space = action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}
    def step(self, action):
        self.steps += 1
        return int(action), 1.0, self.steps == 3, False, {}

class Forgetful(ToyEnv):
    def get_state(self):
        return {**super().get_state(), "steps": 0}

class Text(Frozen):
    observation_space = spaces.Text(4)

class Wide(Frozen):
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.array([1.0, 3.5], np.float32), *super().step(action)[1:]

class Slow(Frozen):
    def __init__(self, seconds=60):
        self.seconds = seconds
    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)

gymnasium.register("Wide-v0", Wide, max_episode_steps=5)
gymnasium.register("Slow-v0", Slow)
gymnasium.register("Frozen-v0", Frozen)
gymnasium.register("Forgetful-v0", Forgetful)
gymnasium.register("Text-v0", Text)
for fault in ("urandom", "step", "reset", "init", "close", "nan", "shape"):
    gymnasium.register(f"Bad{fault}-v0", FaultyEnv, kwargs={"fault": fault})
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checked_envs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_everything_is_told_about_a_good_environment(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--model", "CartPole-v1"])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[0] == "CartPole-v1"
    assert lines[2:4] == ["action       discrete, 0 to 1", "time limit   500 steps"]
    assert re.fullmatch(r"cost         step [\d.]+ us, reset [\d.]+ us \(means of 1000 and \d+\)", lines[4])
    assert lines[5:] == ["same seed    same episode", "state        saved, restored to the same course"]


def test_an_environment_without_a_state_says_why_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--model", "Frozen-v0", "--module", "checked_envs"])

    assert code == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "state        not saved, resume starts new episodes: Frozen-v0 has no state to save: "
        "Frozen has no get_state() and set_state(state)"
    )


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("Nope-v0", 2, "no environment 'Nope-v0' is registered"),
        ("Text-v0", 2, "observation space: expected Box, Discrete"),
        ("Badinit-v0", 7, "making it raised RuntimeError: this environment fails when it is made"),
        ("Badreset-v0", 7, "raised RuntimeError: this environment fails when it is reset"),
        ("Badstep-v0", 7, "raised RuntimeError: this environment fails when it is stepped"),
        ("Badclose-v0", 7, "raised RuntimeError: this environment fails when it is closed"),
        ("Badshape-v0", 7, r"expected shape (3,) of float32, found (4,) of float32"),
        ("Badnan-v0", 8, "'/observations/observation' is nan at step 1"),
        ("Badurandom-v0", 8, "expected the same episode from the same seed and actions, found a difference at /1/0"),
        ("Forgetful-v0", 8, "expected a restored state to go on as the saved one did, found a difference: saved after"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_code(
    name: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = main(["--model", f"checked_envs:{name}"])

    err = capsys.readouterr().err
    assert (result, err.count("\n")) == (code, 1)
    assert err.startswith("digideep: error: ") and message in err


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "digideep.environment.check", "--model", "Frozen-v0", "--module", "checked_envs"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Frozen-v0\n")


def test_an_observation_outside_of_its_box_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--model", "Wide-v0", "--module", "checked_envs"])

    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning ")]
    assert (code, told) == (
        0,
        [
            "warning      /observations/observation is 3.5 at step 1 (first bad index 1), declared from -1 to 1; "
            "training does not look at bounds, correct the space or the observation"
        ],
    )


def test_an_environment_that_does_not_come_back_ends_at_the_time_limit(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--model", "Slow-v0", "--module", "checked_envs", "--timeout", "1"])

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 7
    assert line.startswith(
        "digideep: error: environment Slow-v0: expected to be examined within 1 s (--timeout), found that it is not; "
        "it was at "
    )
    assert "checked_envs.py:" in line


def test_arguments_of_the_environment_are_given_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    named = ["--model", "Slow-v0", "--module", "checked_envs", "--env-kwargs"]

    assert main([*named, '{"seconds": 0}']) == 0
    assert main([*named, '{"second": 0}']) == 2
    assert main([*named, "[0]"]) == 2
    assert "--env-kwargs: expected a JSON object, found '[0]'" in capsys.readouterr().err


STACK = '[{"type": "digideep.environment.wrappers.config:FrameStackConfig", "n": 2}]'
USERS = """
import dataclasses
import gymnasium
from digideep.environment.wrappers.config import WrapperConfig

@dataclasses.dataclass(frozen=True)
class HalfConfig(WrapperConfig):
    builds = "checked_wrappers:Half"

class Half(gymnasium.Wrapper):
    def __init__(self, env, config):
        super().__init__(env)
    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward / 2.0, *rest
"""


def test_wrappers_are_given_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--model", "CartPole-v1", "--wrappers", STACK])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[1].startswith("observation  box (2, 4) of float32")
    assert lines[-1] == "state        saved, restored to the same course"


def test_a_wrapper_of_the_users_is_trusted_where_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checked_wrappers.py").write_text(USERS)
    wrappers = '[{"type": "checked_wrappers:HalfConfig"}]'

    assert main(["--model", "CartPole-v1", "--wrappers", wrappers]) == 0
    assert play(["--model", "CartPole-v1", "--wrappers", wrappers, "--n-step", "4"]) == 0
    assert "run 0: return 2, length 4, stopped by --n-step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrappers", "found"),
    [
        (
            '{"type": "x:Y"}',
            '--wrappers: expected a JSON list of objects, found \'{"type": "x:Y"}\'; write it like \'[{',
        ),
        ("[1]", "--wrappers: expected a JSON list of objects, found '[1]'"),
        ("[{]", "--wrappers: expected JSON"),
        ('[{"n": 2}]', "/env/wrappers/0"),
    ],
)
def test_what_is_no_list_of_wrappers_is_one_line(wrappers: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--model", "CartPole-v1", "--wrappers", wrappers])

    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    assert found in err
