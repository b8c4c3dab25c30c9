"""Benchmarks of methods with a replay memory: who takes part, what is told about them, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import limits_replay
from benchmarks.contenders import CONTENDERS, present
from benchmarks.installing import PEERS
from benchmarks.report import render
from benchmarks.result import Result
from benchmarks.settings import REPLAY_SETTINGS
from benchmarks.tables import Figure, Table

PARTS = (
    "environments", "acting", "rest of a rollout", "draw", "targets", "critics", "policy", "Adam and targets' step",
    "rest of an update", "logs and the rest",
)  # fmt: skip


@pytest.fixture
def peers(tmp_path: Path) -> Path:
    for peer in PEERS:
        (tmp_path / peer).mkdir()
        (tmp_path / peer / "installed.txt").touch()
    return tmp_path


def names(setting: str, peers: Path) -> list[str]:
    found, missing = present(setting, cores=1, peers=peers)
    assert missing == []
    return [contender.name for contender in found]


def test_sac_is_compared_with_both_rhythms_of_the_peer(peers: Path) -> None:
    assert names("B5", peers) == [
        "digideep",
        "digideep, exact: false",
        "digideep, 64 steps, then 64 updates",
        "stable-baselines3",
        "stable-baselines3 (cpu)",
        "stable-baselines3 (cpu, 64 steps, then 64 updates)",
        "rllib (sync vectorisation)",
    ]


@pytest.mark.parametrize("setting", ["B5-ddpg", "B5-td3"])
def test_deterministic_methods_are_compared_with_the_peer_that_has_them(setting: str, peers: Path) -> None:
    assert names(setting, peers) == [
        "digideep",
        "digideep, exact: false",
        "digideep, 64 steps, then 64 updates",
        "stable-baselines3",
        "stable-baselines3 (cpu)",
        "stable-baselines3 (cpu, 64 steps, then 64 updates)",
    ]


@pytest.mark.parametrize("name", ["B0-sac", "B0-ddpg"])
def test_learning_curves_are_compared_with_the_peer_alone(peers: Path, name: str) -> None:
    assert names(name, peers) == ["digideep", "stable-baselines3 (cpu)"]


def test_dqn_comes_in_batches_of_gradient_steps_already(peers: Path) -> None:
    assert names("B12", peers) == [
        "digideep",
        "digideep, exact: false",
        "stable-baselines3",
        "stable-baselines3 (cpu)",
        "rllib (sync vectorisation)",
    ]


def test_programs_of_one_name_never_train_the_same_setting() -> None:
    for setting in REPLAY_SETTINGS:
        found = [contender.name for contender in CONTENDERS if setting in contender.settings]

        assert len(found) == len(set(found))


def test_table_of_sac_says_what_was_trained(make_table: Callable[..., Table]) -> None:
    text = render([make_table("B5")])

    assert "### B5: SAC on Pendulum, 1 core" in text
    assert "`Pendulum-v1`, one gradient step after each frame, so that steps/s are gradient steps a second" in text
    assert "networks of 256 x 256 with relu, target networks move by 0.005" in text
    assert "| return of -200 after |" in text


def test_tables_of_deterministic_methods_say_what_they_add(make_table: Callable[..., Table]) -> None:
    text = render([make_table("B5-ddpg"), make_table("B5-td3")])

    ddpg, td3 = (text.split(f"### {name}: ")[1] for name in ("B5-ddpg", "B5-td3"))
    assert "target networks move by 0.005, actions have normal noise of 0.1," in ddpg.split("###")[0]
    assert (
        "one gradient step in 2 moves the policy and, by 0.005, target networks, target actions have noise of 0.2 "
        "within 0.5, actions have normal noise of 0.1," in td3
    )


def test_table_of_dqn_says_how_often_it_learns(make_table: Callable[..., Table]) -> None:
    text = render([make_table("B12"), make_table("B12-steady")])

    assert "128 gradient steps after every 256 frames, batches of 64" in text
    assert "the target network is copied after every 128 gradient steps" in text
    assert "one gradient step after every 4 frames" in text


def test_curves_of_sac_come_with_the_time_to_the_return(make_table: Callable[..., Table]) -> None:
    table = make_table("B0-sac")
    runs = [run._replace(solved_s=10.0 + run.seed) if run.contender == "digideep" else run for run in table.runs]

    text = render([table._replace(runs=runs)])

    assert "digideep reached -200 in 3 of 3 runs, after 12.0 s (median)." in text
    assert "stable-baselines3 (cpu) reached -200 in 0 of 3 runs." in text


def test_time_of_sac_stands_above_the_limits_of_both_libraries(make_table: Callable[..., Table]) -> None:
    table = make_table("B5")
    runs = [run._replace(profile=dict.fromkeys(PARTS, 3.0), steps_per_s=250.0) for run in table.runs]
    least = [Figure("critics", "us", "", [us], [], group=group) for group, us in (("B5 numpy", 2.0), ("B5 torch", 4.0))]

    text = render([table._replace(runs=runs), Table("limits", 1, 1, table.machine, [], least)])

    assert "| B5 | 3 | 3 | 3 | 3 | 3 | 3 | 3 | 3 | 3 | 3 | 4,000 | 250 |" in text
    assert "| B5, limit in numpy |  |  |  |  |  | 2 |  |  |  |  | 2 | 500,000 |" in text
    assert "| B5, limit in torch |  |  |  |  |  | 4 |  |  |  |  | 4 | 250,000 |" in text


def test_time_of_ppo_and_of_sac_are_tables_of_their_own(
    make_table: Callable[..., Table], make_result: Callable[..., Result]
) -> None:
    ppo = ("environments", "acting", "rest of a rollout", "learning", "rest of an update", "logs and the rest")
    one = make_table("B1")._replace(runs=[make_result(profile=dict.fromkeys(ppo, 1.0))])
    two = make_table("B5")._replace(runs=[make_result(setting="B5", profile=dict.fromkeys(PARTS, 1.0))])

    text = render([one, two])

    assert text.count("### Where the time goes") == 1
    assert text.count("| acting | rest of a rollout |") == 2


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_limit_computes_what_a_network_has_to(library: str) -> None:
    made = limits_replay.libraries()[library]
    rng = np.random.default_rng(7)
    tower = limits_replay.Tower(made, (3, 5, 2), rows=4, rng=rng)
    first, second = (np.asarray(weight).copy() for weight in tower._weights)
    inputs, by = np.asarray(tower._given[0]).copy(), np.asarray(tower._by[-1]).copy()

    tower.forward()
    tower.backward()

    hidden = np.maximum(inputs @ first, 0.0)
    by_hidden = (by @ second.T) * (hidden > 0.0)
    np.testing.assert_allclose(np.asarray(tower._given[-1]), hidden @ second, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.asarray(tower._gradients[1]), hidden.T @ by, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.asarray(tower._gradients[0]), inputs.T @ by_hidden, rtol=1e-5, atol=1e-7)

    tower.backward(of_inputs=True)

    np.testing.assert_allclose(np.asarray(tower._by[0]), by_hidden @ first.T, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_every_part_of_the_limit_is_a_column(library: str) -> None:
    small = REPLAY_SETTINGS["B5"]._replace(hidden_sizes=(4,), batch_size=2)

    parts = limits_replay.parts_of(small, limits_replay.libraries()[library])
    for act in parts.values():
        act()

    assert list(parts) == ["acting", "draw", "targets", "critics", "policy", "Adam and targets' step"]
    assert set(parts) <= set(PARTS)
