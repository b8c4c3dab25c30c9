"""The comparison of sessions is sharp: whatever is left out of a restored state is noticed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes import TOY, differences

import digideep
from digideep.agent.ppo.agent import PPOAgent
from digideep.environment.explorer import Explorer
from digideep.pipeline.engine import SerialEngine
from digideep.pipeline.runner import Runner
from digideep.utility import seeding
from digideep.utility.monitoring import Monitor
from digideep.utility.statistics import Statistics

QUICK = {"number_epochs": 2, "epoch_size": 2, "test_win_size": 1}


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as quick:
        quick.setattr("os.fsync", lambda descriptor: None)
        quick.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        directory = tmp_path_factory.mktemp("straight")
        yield digideep.run(TOY, QUICK, session_path=str(directory), log_level="fatal").paths.root


def _interrupted(directory: Path) -> Path:
    """Train one cycle and a half epoch, and go on."""
    path = digideep.run(TOY, {**QUICK, "max_exec_iter": 1}, session_path=str(directory), log_level="fatal").paths.root
    digideep.run(load_checkpoint=str(path), resume=True, log_level="fatal")
    return path


def test_nothing_forgotten_is_no_difference(straight: Path, tmp_path: Path) -> None:
    assert differences(straight, _interrupted(tmp_path)) == []


@pytest.mark.parametrize("part", sorted({"statistics", "counters", "explorer.train", "agents.agent"}))
def test_a_component_that_is_not_restored_is_noticed(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    load = SerialEngine.load_components

    def forgetful(self: Any, components: Mapping[str, Any]) -> None:
        load(self, {**components, part: self.components()[part]})

    monkeypatch.setattr(SerialEngine, "load_components", forgetful)

    assert differences(straight, _interrupted(tmp_path)) != []


def test_every_part_of_an_agent_that_is_not_restored_is_noticed(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, parts = PPOAgent.load_state_dict, list[str]()

    def forgetful(self: Any, saved: Mapping[str, Any]) -> None:
        parts.extend(key for key in saved if key not in parts)
        fresh = self.state_dict()
        load(self, {**saved, parts[len(seen)]: fresh[parts[len(seen)]]})

    monkeypatch.setattr(PPOAgent, "load_state_dict", forgetful)
    seen: dict[str, bool] = {}
    while len(seen) < max(1, len(parts)):
        directory = tmp_path / f"part{len(seen)}"
        directory.mkdir()
        found = differences(straight, _interrupted(directory))
        seen[parts[len(seen)]] = bool(found)

    assert len(seen) >= 3
    # A version and what only says what was done before may be equal in both; everything else is missed.
    assert [part for part, noticed in seen.items() if not noticed and "version" not in part] == []


def test_generators_that_are_not_restored_are_noticed(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digideep.pipeline.runner.set_rng_state", lambda state: None)
    monkeypatch.setattr("digideep.pipeline.runner.seed_everything", lambda seed: seeding.seed_everything(seed + 1))

    # A fresh start draws from other generators too, so only the one that was interrupted is at fault here.
    assert differences(straight, _interrupted(tmp_path)) != []


def test_generators_restored_before_what_draws_from_them_are_noticed(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = Runner.load_state_dict

    def drawing_afterwards(self: Any, state: Any) -> None:
        restore(self, state)
        import numpy as np

        np.random.random()

    monkeypatch.setattr(Runner, "load_state_dict", drawing_afterwards)

    assert "state/rng" in differences(straight, _interrupted(tmp_path))


@pytest.mark.parametrize("owner", [Monitor, Statistics, Explorer])
def test_a_part_of_the_logs_the_normaliser_or_the_explorer_that_is_not_restored_is_noticed(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any
) -> None:
    load = owner.load_state_dict
    fresh = "is_started" if owner is Explorer else None

    def forgetful(self: Any, state: Any) -> None:
        load(self, {**state, fresh: False}) if fresh else None

    monkeypatch.setattr(owner, "load_state_dict", forgetful)

    assert differences(straight, _interrupted(tmp_path)) != []
