"""What people report of resumes that gave another curve, each as it must be here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, checkpoints, differences, read, rows, state

import digideep

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]


@pytest.mark.parametrize("preset", ["cartpole_ppo", "pendulum_ppo", "acrobot_ppo"])
def test_every_optimiser_of_every_preset_has_stepped_after_a_load(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from digideep.agent.ppo.agent import PPOAgent

    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    knobs = {"number_epochs": 2, "total_frames": 0, "epoch_size": 1, "n_steps": 16, "max_exec_iter": 1,
             "test_activate": False, "stop_return": None}  # fmt: skip
    path = digideep.run(f"digideep.params.{preset}", knobs, session_path=str(tmp_path), log_level="fatal").paths.root
    loaded: list[dict[str, object]] = []
    load = PPOAgent.load_state_dict

    def watching(self: PPOAgent, saved: dict[str, object]) -> None:
        load(self, saved)
        loaded.append(self.state_dict())

    monkeypatch.setattr(PPOAgent, "load_state_dict", watching)

    digideep.run(load_checkpoint=str(path), resume=True, log_level="fatal")

    steps = [value for key, value in _leaves(loaded[0]) if key.endswith("/step") and "optim" in key]
    assert steps and all(float(value) > 0 for value in steps)  # type: ignore[arg-type]


def _leaves(tree: object, path: str = "") -> list[tuple[str, object]]:
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() for leaf in _leaves(value, f"{path}/{key}")]
    return [(path, tree)]


def test_annealing_neither_restarts_nor_jumps_when_the_budget_is_raised(command: Run, toy: Toy) -> None:
    session = command(*toy("annealed", "test_activate=false")).session

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/n_epochs=6")

    rates = [row["data"]["update/agent/lr"]["mean"] for row in rows(session / "varlog.jsonl")]
    assert len(rates) == 6
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == 0.0


def test_a_changed_setting_is_applied_and_recorded(command: Run, toy: Toy) -> None:
    session = command(*toy("edited", "lr_final=null", "max_exec_iter=2", "test_activate=false"), expect=75).session

    command("--load-checkpoint", str(session), "--resume", "--set", "/agents/agent/lr=0.25", "/runner/max_iter=0")

    rates = [row["data"]["update/agent/lr"]["mean"] for row in rows(session / "varlog.jsonl")]
    assert rates == [0.001, 0.001, 0.25, 0.25]
    entry = next(e for e in read(session / "repeal.json") if e["path"] == "/agents/agent/lr")
    assert (entry["old"], entry["new"], entry["epoch"]) == (0.001, 0.25, 2)


def test_the_frame_budget_counts_all_processes_together(command: Run, toy: Toy) -> None:
    sets = ["number_epochs=0", "total_frames=400", "test_activate=false"]
    straight = command(*toy("straight", *sets)).session
    session = command(*toy("spot", *sets), moments={"learnt 2": ["SIGTERM"]}, expect=143).session
    command("--load-checkpoint", str(session), "--resume", moments={"learnt 5": ["SIGTERM"]}, expect=143)

    command("--load-checkpoint", str(session), "--resume")

    assert differences(straight, session) == []
    assert 400 <= read(session / "summary.json")["frame"] < 400 + 64


def test_a_stop_inside_an_epoch_keeps_epoch_cycle_and_frame(command: Run, toy: Toy) -> None:
    session = command(*toy("inside"), moments={"learnt 3": ["SIGTERM"]}, expect=143).session

    runner = state(session)["runner"]
    assert (checkpoints(session)[-1], runner["epoch"], runner["cycle"], runner["epoch_cycles"]) == (3, 1, 3, 1)
    assert state(session)["counters"]["env_steps"] == read(session / "summary.json")["frame"]


@pytest.mark.parametrize("name", ["Recording", "Forgetful"])
def test_what_an_environment_was_told_of_the_progress_is_not_lost(command: Run, toy: Toy, name: str) -> None:
    knobs = {"model_name": f"toy_parts:Toy{name}-v0", "normalize_rewards": False, "test_activate": False}
    cpanel = ["--cpanel", json.dumps(knobs)]
    straight = command(*toy("straight"), *cpanel).session
    session = command(*toy("stopped"), *cpanel, moments={"learnt 5": ["SIGTERM"]}, expect=143).session

    resumed = command("--load-checkpoint", str(session), "--resume")

    assert differences(straight, session) == [], resumed.err


def test_going_back_to_the_best_point_is_one_option(command: Run, toy: Toy) -> None:
    session = command(*toy("best", "keep_last=9", "test_win_size=2")).session
    summary = read(session / "summary.json")
    best = summary["best_test"]["checkpoint"]
    assert all(set(entry) == {"name", "epoch", "frame", "mean_return"} for entry in summary["checkpoints"])

    ended = command(
        "--load-checkpoint", str(session), "--checkpoint", "best", "--resume", "--set", "/runner/n_epochs=5"
    )

    assert f"resumes from {best}," in ended.err
