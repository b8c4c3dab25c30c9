"""The serial engine through a session: what is chosen, what is told, and a state that is the same after a load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import TOY, read, state

import digideep
from digideep.check_resume import first_difference
from digideep.errors import ConfigError
from digideep.pipeline.engine import SerialEngine


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def _run(directory: Path, **knobs: Any) -> Path:
    knobs = {"test_win_size": 1, "number_epochs": 2, **knobs}
    root: Path = digideep.run(TOY, knobs, session_path=str(directory), log_level="fatal").paths.root
    return root


def test_what_was_chosen_is_recorded_once_and_reused(tmp_path: Path) -> None:
    root = _run(tmp_path, max_exec_iter=1, num_workers="auto")

    digideep.run(load_checkpoint=str(root), resume=True, log_level="fatal")

    (entry,) = [entry for entry in read(root / "repeal.json") if entry["path"] == "/engine/chosen"]
    assert {"device", "threads", "learner_path", "num_workers"} <= entry["new"].keys()
    assert entry["new"]["device"] == "cpu"


def test_a_training_tells_what_computes_and_a_play_nothing_of_learning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    knobs = {"number_epochs": 1, "total_frames": 0, "epoch_size": 1, "test_activate": False}
    options = {"session_path": str(tmp_path), "log_level": "info"}

    session = digideep.run("digideep.params.sacv2_params", knobs, set={"/engine/num_threads": 2}, **options)
    training = capfd.readouterr().err
    digideep.run(load_checkpoint=str(session.paths.root), play=True, episodes=1, log_level="info")
    play = capfd.readouterr().err

    assert training.count("agent agent learns by packed: ") == training.count("torch threads: ") == 1
    assert "torch threads: 1, beside 2 of the learner (/engine/num_threads)" in training
    assert ("learn" in play, play.count("torch threads: 1 (/engine/num_threads)")) == (False, 1)


def test_components_that_were_loaded_are_those_that_were_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _run(tmp_path, max_exec_iter=1)
    found: list[str] = []
    load = SerialEngine.load_components

    def comparing(self: SerialEngine, components: Any) -> None:
        load(self, components)
        for name, value in self.components().items():
            found.extend(filter(None, [first_difference(value, components[name], path=name)]))

    monkeypatch.setattr(SerialEngine, "load_components", comparing)

    digideep.run(load_checkpoint=str(root), resume=True, log_level="fatal")

    assert found == []


def test_frames_are_real_transitions_only(tmp_path: Path) -> None:
    root = _run(tmp_path)

    counters = state(root)["counters"]
    assert counters["updates"] == 4
    # A chunk has 4 x 16 steps; the step after an episode's last one is none of them.
    assert 4 * 64 - counters["episodes"] <= counters["env_steps"] < 4 * 64
    assert counters["agent_steps"] == counters["env_steps"]


@pytest.mark.parametrize("params", [TOY, "digideep.testing.toy_dqn", "digideep.testing.toy_a2c"])
def test_a_training_on_the_most_likely_actions_is_refused_at_the_start(params: str, tmp_path: Path) -> None:
    deterministic = {"/explorer/train/deterministic": True}

    with pytest.raises(ConfigError, match=r"^/explorer/train/deterministic: expected false, .* found true; set it to"):
        digideep.run(params, {"number_epochs": 1}, set=deterministic, session_path=str(tmp_path), log_level="fatal")


@pytest.mark.parametrize("goal", [{"total_frames": 96, "number_epochs": 0}, {"total_frames": 0, "number_epochs": 1}])
def test_a_warm_up_beyond_the_goal_is_warned_of(
    goal: dict[str, int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    knobs = {"num_envs": 4, "n_steps": 12, "epoch_size": 2, "warm_up": 97, "test_activate": False, **goal}

    digideep.run("digideep.testing.toy_dqn", knobs, session_path=str(tmp_path), log_level="info")

    told = "/agents/agent/warm_up: expected fewer rows than the training has frames (96), found 97: little or nothing"
    assert capfd.readouterr().err.count(told) == 1


@pytest.mark.parametrize("params", ["digideep.testing.toy_dqn", "digideep.testing.toy_ppo", "digideep.testing.toy_a2c"])
def test_a_run_whose_last_chunk_passes_the_goal_does_not_warn_that_nothing_is_learnt_any_more(
    params: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    knobs = {"total_frames": 100, "number_epochs": 0, "epoch_size": 1, "num_envs": 4, "n_steps": 8, "lr_final": 0.0}
    options = {"session_path": str(tmp_path), "log_level": "info"}

    session = digideep.run(params, {**knobs, "test_activate": False}, **options)
    ended = capfd.readouterr().err
    repeal = {"/runner/total_frames": 300}
    digideep.run(load_checkpoint=str(session.paths.root), resume=True, repeal=repeal, log_level="info")
    beyond = capfd.readouterr().err

    assert state(session.paths.root)["counters"]["env_steps"] >= 300
    told = "/agents/agent/lr_horizon: the learning rate is 0 from frame 100 on and nothing is learnt any more"
    assert (ended.count(told), beyond.count(told)) == (0, 1)
