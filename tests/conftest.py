"""What many tests share: a private place for keys and sessions, and sessions made without training."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture(autouse=True)
def _private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep keys and default sessions of tests away from those of the user who runs them."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("DIGIDEEP_SESSIONS", str(home / "sessions"))
    monkeypatch.delenv("DIGIDEEP_TRUSTED_ROOTS", raising=False)


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
