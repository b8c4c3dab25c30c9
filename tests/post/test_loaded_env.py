"""The environment of a session, made by its reader: wrapped as its policies know it, by the same rules of trust."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from digideep.environment.config import EnvConfig
from digideep.environment.wrappers.config import MaskObservationConfig
from digideep.errors import TrustError, UsageError
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.trust import sign
from digideep.post import load
from digideep.utility.node import node

Maker = Callable[..., SessionPaths]

RUNNER = {"type": "digideep.pipeline.config:RunnerConfig", "n_epochs": 3, "on_epoch": None}
HIDDEN = [node(MaskObservationConfig, keep=[0, 2])]
WORLD = """
import gymnasium
import my_entry_of_a_test

gymnasium.register("MyWorldOfATest-v0", entry_point=my_entry_of_a_test.World)
"""
ENTRY = """
from gymnasium.envs.classic_control import CartPoleEnv

class World(CartPoleEnv):
    pass
"""


def _params(**env: Any) -> dict[str, Any]:
    return {"env": node(EnvConfig, **env), "runner": RUNNER}


def test_the_environment_has_its_wrappers(new_session: Maker) -> None:
    paths = new_session(params=_params(model_name="CartPole-v1", wrappers=HIDDEN))

    env = load(paths.root).make_env()

    assert env.reset(seed=1)[0].shape == (2,)
    env.close()


def test_the_environment_is_that_of_tests_and_plays_with_later_changes(new_session: Maker) -> None:
    paths = new_session(params=_params(model_name="CartPole-v1", play_wrappers=HIDDEN))
    entry = {"path": "/env/max_episode_steps", "old": None, "new": 2, "epoch": 0, "time": ""}
    paths.repeal.write_text(json.dumps([entry]))

    env = load(paths.root).make_env()

    assert env.reset(seed=1)[0].shape == (2,)
    assert [env.step(0)[3] for _ in range(2)] == [False, True]
    env.close()


def test_parameters_without_an_environment_are_one_line(new_session: Maker) -> None:
    with pytest.raises(UsageError, match="expected an environment, found none; restore it from a copy"):
        load(new_session(params={"env": [], "runner": RUNNER}).root).make_env()


def test_an_environment_of_ones_own_comes_from_the_session_once_it_is_trusted(
    new_session: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    paths = new_session(params=_params(model_name="MyWorldOfATest-v0", from_module="my_world_of_a_test"))
    for name, text in (("my_world_of_a_test", WORLD), ("my_entry_of_a_test", ENTRY)):
        (paths.modules / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    with pytest.raises(TrustError, match="my_world_of_a_test"):
        load(paths.root).make_env()
    assert "my_world_of_a_test" not in sys.modules
    sign(paths, modules=["my_world_of_a_test"])
    env = load(paths.root).make_env()

    assert Path(str(sys.modules["my_entry_of_a_test"].__file__)).parent == paths.modules
    assert env.reset(seed=1)[0].shape == (4,)
    assert list(paths.modules.rglob("__pycache__")) == []
