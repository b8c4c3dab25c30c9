"""The trainings of docs/results.md: made once, kept, and shown as they were stored."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as driver
from benchmarks import learning
from benchmarks.learning import Learned, learn, means_of, read_learned, run_one, store_learned
from benchmarks.learning_page import PAGE, render_learned, sparkline
from benchmarks.learning_runs import RUNS, LearningRun
from benchmarks.measure import Failed
from benchmarks.monitors import Row, read_rows
from benchmarks.report import BEGIN, END

MACHINE = {"cpu": "A CPU", "cores": 2, "used": 1, "python": "3.11.7", "date": "2026-01-02", "load": [0.1, 0.9]}


@pytest.fixture
def make_learned() -> Callable[..., Learned]:
    def make(name: str = "cartpole_ppo", seed: int = 1, **fields: Any) -> Learned:
        run = next(run for run in RUNS if run.name == name)
        values: dict[str, Any] = {
            "command": run.command(seed),
            "frames": 100_000,
            "wall_s": 61.0,
            "test_return": 480.0,
            "test_episodes": 20,
            "train_return": 470.5,
            "episodes": 900,
            "first_tenth": 20.0,
            "last_tenth": 22.5,
            "curve": [None, *(float(number) for number in range(19))],
            "reason": "n_frames: 100000",
            "exactness": "exact",
            "version": "0.1.0",
            "machine": MACHINE,
        }
        return Learned(name, seed, **{**values, **fields})

    return make


@pytest.fixture
def train(make_learned: Callable[..., Learned]) -> Any:
    """A training that takes no time, with the list of those that were made."""

    def made(run: LearningRun, seed: int) -> Learned:
        made.calls.append((run.name, seed))  # type: ignore[attr-defined]
        return make_learned(run.name, seed)

    made.calls = []  # type: ignore[attr-defined]
    return made


def quiet(line: str) -> None:
    """Show nothing."""


def test_figures_of_the_page_are_those_of_the_stored_trainings() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page.split(BEGIN)[1].split(END)[0].strip() == render_learned(read_learned()).strip()


def test_trainings_that_are_stored_are_not_made_again(tmp_path: Path, train: Any) -> None:
    path = tmp_path / "results.json"
    learn(names=["cartpole_ppo"], seeds=2, path=path, train=train, show=quiet)

    learn(names=["cartpole_ppo", "acrobot_ppo"], path=path, train=train, show=quiet)

    assert train.calls == [
        ("cartpole_ppo", 1),
        ("cartpole_ppo", 2),
        ("cartpole_ppo", 3),
        ("acrobot_ppo", 1),
        ("acrobot_ppo", 2),
        ("acrobot_ppo", 3),
    ]
    assert [(one.name, one.seed) for one in read_learned(path)] == train.calls


def test_training_is_made_again_where_its_command_has_changed_or_that_is_asked_for(
    tmp_path: Path, train: Any, make_learned: Callable[..., Learned]
) -> None:
    path = tmp_path / "results.json"
    store_learned(path, make_learned(seed=1, command="python -m digideep.main --params another"))
    store_learned(path, make_learned(seed=2))

    learn(names=["cartpole_ppo"], seeds=2, path=path, train=train, show=quiet)
    learn(names=["cartpole_ppo"], seeds=2, again=True, path=path, train=train, show=quiet)

    assert train.calls == [("cartpole_ppo", 1), ("cartpole_ppo", 1), ("cartpole_ppo", 2)]
    assert [one.seed for one in read_learned(path)] == [1, 2]


def test_training_that_fails_is_told_and_the_others_are_made(
    tmp_path: Path, make_learned: Callable[..., Learned]
) -> None:
    def train(run: LearningRun, seed: int) -> Learned:
        if seed == 2:
            raise Failed("expected exit code 0, found 8: numbers")
        return make_learned(run.name, seed)

    lines: list[str] = []
    failed = learn(names=["classic_a2c"], path=tmp_path / "r.json", train=train, show=lines.append)

    assert failed == ["classic_a2c, seed 2"]
    assert "classic_a2c, seed 2 failed: expected exit code 0, found 8: numbers" in lines
    assert [one.seed for one in read_learned(tmp_path / "r.json")] == [1, 3]


def test_trainings_at_once_have_cores_of_their_own_and_are_all_stored(
    tmp_path: Path, make_learned: Callable[..., Learned], monkeypatch: pytest.MonkeyPatch
) -> None:
    met, bound = threading.Barrier(2, timeout=10.0), []

    def train(run: LearningRun, seed: int) -> Learned:
        met.wait()
        return make_learned(run.name, seed)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: bound.append(cores), raising=False)
    learn(names=["classic_a2c"], seeds=2, at_once=2, path=tmp_path / "r.json", train=train, show=quiet)

    assert sorted(bound) == [[2], [3, 5]]
    assert [one.seed for one in read_learned(tmp_path / "r.json")] == [1, 2]


@pytest.mark.skipif(sys.platform != "linux", reason="expected Linux: it alone binds threads to cores")
def test_training_is_bound_to_its_cores_and_this_program_is_not(
    tmp_path: Path, make_learned: Callable[..., Learned]
) -> None:
    allowed, found = os.sched_getaffinity(0), []

    def train(run: LearningRun, seed: int) -> Learned:
        found.append(os.sched_getaffinity(0))
        return make_learned(run.name, seed)

    learn(names=["classic_a2c"], seeds=1, at_once=len(allowed), path=tmp_path / "r.json", train=train, show=quiet)

    assert len(found[0]) == 1 and found[0] <= allowed
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize("number", [0, 100_000])
def test_more_trainings_at_once_than_cores_are_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(LookupError, match=rf"--at-once: expected 1 to \d+, .* found {number}"):
        learn(names=["classic_a2c"], at_once=number, path=tmp_path / "r.json", show=quiet)


def test_unknown_run_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"--only: expected some of cartpole_ppo, classic_a2c, .* found cartpol"):
        learn(names=["cartpol"], path=tmp_path / "r.json", show=quiet)


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"format": 1, "runs": [{"name": "cartpole_ppo"}]}')

    with pytest.raises(ValueError, match=r"other\.json: expected trainings of scripts/bench"):
        read_learned(path)


def test_means_are_those_of_episodes_that_end_in_each_share_of_the_frames() -> None:
    rows = [Row(1.0, 10.0, 50), Row(2.0, 20.0, 50), Row(3.0, 40.0, 200), Row(4.0, 60.0, 100)]

    assert means_of(rows, 4) == [15.0, None, 40.0, 60.0]
    assert means_of([], 2) == [None, None]


def test_rows_of_all_workers_come_in_the_order_of_their_ends(tmp_path: Path) -> None:
    (tmp_path / "0.monitor.csv").write_text('#{"t_start": 0}\nr,l,t,env\n1.5,10,0.5,0\n2.5,20,2.5,0\n')
    (tmp_path / "1.monitor.csv").write_text('#{"t_start": 0}\nr,l,t,env\n-3.0,30,1.5,1\n')

    assert read_rows(tmp_path) == [Row(0.5, 1.5, 10), Row(1.5, -3.0, 30), Row(2.5, 2.5, 20)]


def test_row_of_a_run_shows_mean_interval_goal_and_sources(make_learned: Callable[..., Learned]) -> None:
    text = render_learned([make_learned(seed=seed, test_return=470.0 + 10.0 * seed) for seed in (1, 2, 3)])

    row = "| PPO on CartPole-v1 | `cartpole_ppo` | 100,000 | 61 s | 3 | 490.0 (480.0 to 500.0) | at least 475 | yes |"
    assert row in text
    assert "[500.0 +- 0.0](https://github.com/DLR-RM/rl-baselines3-zoo/" in text
    assert "`python -m digideep.main --params digideep.params.cartpole_ppo --set seed=1`, and with 2, 3" in text
    assert "| 2 | 100,000 | 61 s | 490.0 of 20 episodes | 470.5 |" in text
    assert "digideep 0.1.0, A CPU, on 1 of 2 cores, Python 3.11.7, load 0.1 to 0.9, 2026-01-02." in text


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("cartpole_ppo", {"test_return": 470.0}, "at least 475 | no |"),
        ("cartpole_hidden_ppo", {"test_return": 100.0}, "below 450 | yes |"),
        ("cartpole_hidden_ppo", {"test_return": 480.0}, "below 450 | no |"),
        ("atari_ppo", {}, "| +2.5 (+2.5 to +2.5) | a rise of at least 3 | no |"),
        ("atari_ppo", {"last_tenth": 23.0}, "| +3.0 (+3.0 to +3.0) | a rise of at least 3 | yes |"),
        ("mujoco_td3", {}, "| 480.0 (480.0 to 480.0) | none |  |"),
        ("atari_ppo", {"last_tenth": None}, "| none | a rise of at least 3 | no |"),
    ],
)
def test_goal_is_reached_or_not(
    make_learned: Callable[..., Learned], name: str, fields: dict[str, Any], expected: str
) -> None:
    assert expected in render_learned([make_learned(name, **fields)])


def test_runs_without_all_seeds_are_told(make_learned: Callable[..., Learned]) -> None:
    text = render_learned([make_learned(seed=seed) for seed in (1, 2, 3)])

    assert "Not measured yet with all seeds: `classic_a2c`, `classic_dqn`," in text
    assert "`cartpole_ppo`," not in text


def test_curve_is_drawn_between_the_least_and_the_greatest_value() -> None:
    assert sparkline([0.0, None, 5.0, 10.0], low=0.0, high=10.0) == "▁ ▅█"
    assert sparkline([3.0, 3.0], low=3.0, high=3.0) == "▁▁"


def test_program_fills_the_page_without_training(
    tmp_path: Path, make_learned: Callable[..., Learned], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "run_one", lambda run, seed: pytest.fail("trained"))
    page, path = tmp_path / "page.md", tmp_path / "r.json"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    store_learned(path, make_learned())

    code = driver.main(["--results", "--only", "--output", str(path), "--page", str(page)])

    assert code == 0
    assert "### PPO on CartPole-v1" in page.read_text()


def test_a_line_says_that_trainings_are_stored_and_how_to_repeat_them(
    tmp_path: Path, train: Any, make_learned: Callable[..., Learned]
) -> None:
    path, lines = tmp_path / "r.json", list[str]()
    store_learned(path, make_learned(seed=1))

    learn(names=["cartpole_ppo"], seeds=2, path=path, train=train, show=lines.append)
    learn(names=["cartpole_ppo"], seeds=2, again=True, path=path, train=train, show=quiet)
    learn(names=[], path=path, train=train, show=lines.append)

    assert lines[0] == f"1 of 2 trainings are stored in {path} and not repeated; --again repeats them"
    assert [line for line in lines if "stored" in line] == lines[:1]


def test_own_trainings_are_kept_in_a_file_of_ones_own_and_printed(
    tmp_path: Path, make_learned: Callable[..., Learned], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(learning, "run_one", lambda run, seed: make_learned(run.name, seed))
    monkeypatch.setattr(driver, "write_page", lambda learned, page: pytest.fail(f"wrote {page}"))
    path = tmp_path / "mine.json"

    code = driver.main(["--results", "--only", "cartpole_ppo", "--output", str(path)])

    assert code == 0
    assert "### PPO on CartPole-v1" in capsys.readouterr().out
    assert [one.seed for one in read_learned(path)] == [1, 2, 3]


def test_program_ends_with_an_error_where_a_training_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(run: LearningRun, seed: int) -> Learned:
        raise Failed("no numbers")

    monkeypatch.setattr(learning, "run_one", fail)
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    arguments = ["--results", "--only", "acrobot_ppo", "--seeds", "1", "--output", str(tmp_path / "r.json")]

    code = driver.main([*arguments, "--page", str(page)])

    assert code == 1
    assert "scripts/bench: error: acrobot_ppo, seed 1 failed" in capsys.readouterr().err


def test_sources_are_links_and_runs_with_a_goal_have_three_seeds_and_each_a_name_of_its_own() -> None:
    assert len({run.name for run in RUNS}) == len(RUNS)
    for run in RUNS:
        assert run.seeds == (1, 2, 3) or (run.goal is None and run.seeds == (1,))
        assert all(one.link.startswith("https://") for one in run.published)


@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_run_names_a_preset_and_knobs_that_it_has(run: LearningRun) -> None:
    preset = importlib.import_module(f"digideep.params.{run.name}")

    assert {change.partition("=")[0] for change in run.changes} <= set(preset.cpanel)
    assert run.measure == "rise" or preset.cpanel["test_activate"]


def test_training_is_made_by_the_command_that_is_shown() -> None:
    short = ("total_frames=2048", "n_steps=64", "num_envs=4", "stop_return=null", "test_win_size=2", "epoch_size=4")
    run = LearningRun("cartpole_ppo", "a short one", 1.0, short)

    learned = run_one(run, 5)

    assert (
        learned.command
        == f"python -m digideep.main --params digideep.params.cartpole_ppo --set seed=5 {' '.join(short)}"
    )
    assert 2048 <= learned.frames < 2048 + 256
    assert (learned.test_episodes, learned.exactness, learned.seed) == (2, "exact", 5)
    assert learned.test_return is not None
    assert learned.episodes > 10
    assert learned.train_return is not None
    assert learned.first_tenth is not None
    assert len(learned.curve) == 20
    assert 0.5 < learned.wall_s < 300.0
    assert json.loads(json.dumps(learned._asdict())) == learned._asdict()


def test_training_that_ends_with_an_error_has_its_last_line() -> None:
    with pytest.raises(Failed, match=r"expected exit code 0, found 2: .*no_such_knob"):
        run_one(LearningRun("cartpole_ppo", "a wrong one", 1.0, ("no_such_knob=1",)), 1)
