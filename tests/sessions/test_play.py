"""Playing: exactly the episodes asked for, the same ones again, and nothing else changed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import TOY, Ended, read, tree

import digideep

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with checkpoints 0, 2 and 4, signed with a key that the tests do not have."""
    with pytest.MonkeyPatch.context() as quick:
        quick.setattr("os.fsync", lambda descriptor: None)
        quick.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        directory = tmp_path_factory.mktemp("trained")
        knobs = {"number_epochs": 2, "test_win_size": 3}
        return digideep.run(TOY, knobs, session_path=str(directory), log_level="fatal").paths.root


@pytest.fixture
def play(command: Run, trained: Path) -> Callable[..., Ended]:
    def run(*argv: str, expect: int = 0) -> Ended:
        return command("--load-checkpoint", str(trained), "--play", "--trust-session", *argv, expect=expect)

    return run


def _results(ended: Ended) -> Any:
    return read(ended.evaluation / "results.json")


def test_results_hold_every_episode_and_their_mean(play: Run, trained: Path) -> None:
    ended = play("--episodes", "5")

    results = _results(ended)
    returns = [episode["return"] for episode in results["episodes"]]
    mean = math.fsum(returns) / 5
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in returns) / 5)
    assert (results["checkpoint"], results["seed"], results["deterministic"]) == ("checkpoint-4", 1, True)
    assert results["frame"] == read(trained / "summary.json")["frame"]
    assert results["env_kwargs"] == {}
    assert len({episode["seed"] for episode in results["episodes"]}) == 5
    assert (results["mean_return"], results["std_return"]) == (mean, deviation)
    assert results["success_rate"] in [n / 5 for n in range(6)]
    assert ended.out[0].startswith(f"evaluation: {trained}/evaluations/evaluation_")
    assert ended.out[1:] == [f"mean return {mean:.6g} +- {deviation:.6g} over 5 episodes"]


def test_a_play_repeats_the_test_of_its_checkpoint(play: Run, trained: Path) -> None:
    results = _results(play())

    last_test = read(trained / "summary.json")["last_test"]
    assert (results["mean_return"], len(results["episodes"])) == (last_test["mean_return"], last_test["n"])


def test_two_plays_are_equal_whatever_the_environments_and_workers(play: Run) -> None:
    first = _results(play("--episodes", "6"))
    others = [
        _results(play("--episodes", "6", "--set", f"/explorer/eval/num_envs={envs}", f"/explorer/eval/num_workers={w}"))
        for envs, w in ((1, 0), (5, 0), (3, 2))
    ]

    assert [other["episodes"] for other in others] == [first["episodes"]] * 3


def test_a_seed_gives_other_episodes_and_the_same_again(play: Run) -> None:
    usual, first, second = (_results(play(*seed)) for seed in ([], ["--seed", "7"], ["--seed", "7"]))

    assert first["seed"] == 7
    assert first["episodes"] == second["episodes"]
    assert first["episodes"] != usual["episodes"]


def test_sampled_actions_are_reproducible_and_differ_from_the_likeliest(play: Run) -> None:
    usual, first, second = (_results(play(*how)) for how in ([], ["--stochastic"], ["--stochastic"]))

    assert (usual["deterministic"], first["deterministic"]) == (True, False)
    assert first["episodes"] == second["episodes"]
    assert [e["seed"] for e in first["episodes"]] == [e["seed"] for e in usual["episodes"]]
    assert [e["return"] for e in first["episodes"]] != [e["return"] for e in usual["episodes"]]


def test_playing_changes_nothing_but_evaluations(play: Run, trained: Path) -> None:
    before = [entry for entry in tree(trained) if not entry[0].startswith("evaluations")]

    ended = play("--set", "/explorer/eval/n_episodes=2")

    assert [entry for entry in tree(trained) if not entry[0].startswith("evaluations")] == before
    assert len(_results(ended)["episodes"]) == 2
    monitor = list((ended.evaluation / "monitor").rglob("*.csv"))
    assert len(monitor) == 1
    assert len(monitor[0].read_text().splitlines()) == 4


def test_a_dry_play_prints_and_leaves_nothing(play: Run, trained: Path) -> None:
    before = tree(trained)

    ended = play("--dry-run")

    assert ended.out[0] == "evaluation: none (dry run)"
    assert ended.out[1].startswith("mean return ")
    assert tree(trained) == before


def test_results_may_go_elsewhere_and_the_session_may_be_read_only(
    play: Run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(trained)
    opened = _refuse_writes_below(trained, monkeypatch)

    ended = play("--output", str(tmp_path / "out" / "deep"))

    assert ended.evaluation == tmp_path / "out" / "deep"
    assert _results(ended)["checkpoint"] == "checkpoint-4"
    assert tree(trained) == before
    assert opened == []


def _refuse_writes_below(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make opening for writing fail as on a read-only disk, also for root; return where it was tried."""
    import os

    tried: list[str] = []
    really = os.open

    def open_(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(path).startswith(str(directory)):
            tried.append(str(path))
            raise OSError(30, os.strerror(30), str(path))
        return really(path, flags, *more, **options)

    monkeypatch.setattr("os.open", open_)
    return tried


def test_best_and_a_number_name_a_checkpoint(play: Run, trained: Path) -> None:
    scores = {c["name"]: c["mean_return"] for c in read(trained / "summary.json")["checkpoints"]}
    best = max((name for name in scores if scores[name] is not None), key=lambda name: scores[name])

    assert _results(play("--checkpoint", "best"))["checkpoint"] == best
    assert _results(play("--checkpoint", "2"))["checkpoint"] == "checkpoint-2"
    assert "checkpoint-3" in play("--checkpoint", "3", expect=5).err


def test_a_fresh_policy_plays_inside_a_session_made_for_it(command: Run, toy: Toy, tmp_path: Path) -> None:
    ended = command(*toy("fresh"), "--play", "--episodes", "2")

    assert ended.evaluation.parent == tmp_path / "fresh" / "evaluations"
    assert _results(ended)["checkpoint"] is None
    assert not (tmp_path / "fresh" / "checkpoints").exists()
    assert (tmp_path / "fresh" / "meta.json").exists()


def test_a_fresh_policy_plays_dry(command: Run, toy: Toy, tmp_path: Path) -> None:
    before = tree(tmp_path)

    ended = command(*toy("fresh"), "--play", "--episodes", "2", "--dry-run")

    assert ended.out[0] == "evaluation: none (dry run)"
    assert tree(tmp_path) == before


def test_other_arguments_of_the_environment_reach_tests_and_plays_only(command: Run, toy: Toy) -> None:
    knobs = {
        "model_name": "toy_parts:ToyRecording-v0",
        "env_kwargs": {"bonus": 1.0},
        "play_env_kwargs": {"bonus": 10.0},
        "number_epochs": 1,
        "normalize_rewards": False,
    }
    session = command(*toy("kwargs"), "--cpanel", json.dumps(knobs)).session
    ended = command("--load-checkpoint", str(session), "--play")

    row = json.loads((session / "varlog.jsonl").read_text().splitlines()[0])["data"]
    assert (row["train/return"]["mean"], row["test/return"]["mean"]) == (4.0, 40.0)
    assert (_results(ended)["env_kwargs"], _results(ended)["mean_return"]) == ({"bonus": 10.0}, 40.0)
    assert _results(ended)["success_rate"] in (0.0, 1.0)


def test_a_play_of_a_session_in_use_needs_no_lock(command: Run, trained: Path, play: Run) -> None:
    from digideep.pipeline.locks import SessionLock

    with SessionLock(trained):
        assert _results(play())["checkpoint"] == "checkpoint-4"


def test_a_refused_play_leaves_nothing_in_a_directory_that_was_there(
    play: Callable[..., Ended], tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")

    ended = play("--output", str(mine), "--checkpoint", "999", expect=5)

    assert "999" in ended.err
    assert [path.name for path in mine.iterdir()] == ["notes.txt"]
