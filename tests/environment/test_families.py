"""Packages that are not installed, and ids of former days: one line that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

from digideep.environment.check import main as check
from digideep.environment.config import EnvConfig
from digideep.environment.families import family_of_module, missing_extra, modern_id
from digideep.environment.make import make_env, prepare
from digideep.errors import MissingExtraError, UsageError

CARTPOLE = ["--params", "digideep.params.cartpole_ppo"]
LACKING = [
    ("LunarLander-v3", "Box2D", "box2d"),
    ("Hopper-v5", "mujoco", "mujoco"),
    ("ALE/Pong-v5", "ale_py", "atari"),
    ("PongNoFrameskip-v4", "ale_py", "atari"),
    ("Pong-v4", "ale_py", "atari"),
    ("ale_py:ALE/Pong-v5", "ale_py", "atari"),
    ("dm_control/cartpole-balance-v0", "shimmy", "dm"),
    ("shimmy:dm_control/cartpole-balance-v0", "shimmy", "dm"),
    ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
    ("minigrid:MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
    ("BabyAI-GoToObj-v0", "minigrid", "minigrid"),
    ("gymnasium.envs.box2d:LunarLander-v3", "Box2D", "box2d"),
    ("gymnasium.envs.mujoco:Hopper-v5", "mujoco", "mujoco"),
]


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes a package one that is not installed, whatever a test before has imported."""

    def forget(package: str) -> None:
        monkeypatch.setitem(sys.modules, package, None)
        for module in list(sys.modules):
            if module.startswith((f"{package}.", "gymnasium.envs.mujoco", "gymnasium.envs.box2d")):
                monkeypatch.delitem(sys.modules, module)
        for name in [name for name in gymnasium.registry if name.startswith(("dm_control/", "MiniGrid-", "BabyAI-"))]:
            monkeypatch.delitem(gymnasium.registry, name)

    return forget


def line(name: str, package: str, extra: str) -> str:
    return (
        f"/env/model_name: expected that {package} is installed, found that {name!r} needs {package}, which is not "
        f'installed; pip install "digideep[{extra}]"'
    )


@pytest.mark.parametrize(("name", "package", "extra"), LACKING)
def test_a_missing_package_is_one_line_that_names_the_extra(
    name: str, package: str, extra: str, hide: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    hide(package)

    code = check(["--model", name])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err == f"digideep: error: {line(name, package, extra)}\n"


def test_a_package_that_lacks_another_one_of_its_extra_names_that(
    hide: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide("dm_control")
    monkeypatch.setitem(sys.modules, "shimmy", SimpleNamespace())  # which registers nothing then

    with pytest.raises(MissingExtraError) as caught:
        prepare(EnvConfig("dm_control/cartpole-balance-v0"))

    assert str(caught.value) == line("dm_control/cartpole-balance-v0", "dm_control", "dm")


def test_packages_that_do_not_go_together_are_told_in_their_own_words() -> None:
    family = family_of_module("shimmy.registration")
    assert family is not None
    found = family._replace(packages=())

    error = missing_extra("dm_control/x-v0", found, where="/w", error=ImportError("cannot import name 'mj' from 'mu'"))

    assert str(error) == (
        "/w: expected packages that bring 'dm_control/x-v0', found cannot import name 'mj' from 'mu'; "
        'pip install "digideep[dm]"'
    )


def test_a_module_of_the_users_that_lacks_something_is_the_users_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hide: Callable[[str], None]
) -> None:
    hide("minigrid")
    (tmp_path / "lacking_envs.py").write_text("import minigrid\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(UsageError, match=r"lacking_envs.py:1: expected code that runs, found ModuleNotFoundError"):
        prepare(EnvConfig("Mine-v0", from_module="lacking_envs"), allowed=("lacking_envs",))


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_training_without_the_package_ends_at_once_and_leaves_nothing(workers: str, tmp_path: Path) -> None:
    hidden, sessions = tmp_path / "hidden", tmp_path / "sessions"
    hidden.mkdir()
    (hidden / "Box2D.py").write_text("raise ModuleNotFoundError(\"No module named 'Box2D'\", name='Box2D')\n")
    path = os.pathsep.join(filter(None, [str(hidden), os.environ.get("PYTHONPATH")]))
    sets = ["--set", "model_name=LunarLander-v3", f"num_workers={workers}"]

    ended = subprocess.run(
        [sys.executable, "-m", "digideep.main", *CARTPOLE, "--session-path", str(sessions), *sets],
        env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1] == f"digideep: error: {line('LunarLander-v3', 'Box2D', 'box2d')}"
    assert "Traceback" not in ended.stderr
    assert not sessions.exists() or list(sessions.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "today"),
    [
        ("Pong-v4", "ALE/Pong-v5"),
        ("PongNoFrameskip-v0", "ALE/Pong-v5"),
        ("PongDeterministic-v4", "ALE/Pong-v5"),
        ("MsPacman-ramNoFrameskip-v4", "ALE/MsPacman-v5"),
        ("Pong", "ALE/Pong-v5"),
        ("ALE/Pong-v5", None),
        ("Pongo-v4", None),
        ("CartPole-v1", None),
    ],
)
def test_old_names_of_games_are_known(name: str, today: str | None) -> None:
    assert modern_id(name) == today


@pytest.mark.parametrize("name", ["PongDeterministic-v4", "Pong", "Pong-v5", "Pong-ram-v0"])
def test_an_old_id_that_is_gone_names_the_one_of_today(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        prepare(EnvConfig(name))

    assert str(caught.value) == (
        f"/env/model_name: expected an id that is registered, found {name!r}, which is not; use 'ALE/Pong-v5'"
    )


@pytest.mark.parametrize("name", ["PongNoFrameskip-v4", "Pong-v0"])
def test_an_old_id_that_is_left_is_the_game_of_today_below_the_preprocessing(name: str) -> None:
    nodes: Any = ({"type": "digideep.environment.wrappers.config:AtariPreprocessingConfig"},)
    old = make_env(EnvConfig(name, wrappers=nodes))
    new = make_env(EnvConfig("ALE/Pong-v5", wrappers=nodes))

    first = [env.reset(seed=2)[0].tobytes() for env in (old, new)]
    later = [[env.step(t % 6)[0].tobytes() for t in range(20)][-1] for env in (old, new)]

    assert first[0] == first[1]
    assert later[0] == later[1]
