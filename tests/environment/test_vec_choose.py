"""How the number of workers is chosen."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fakes_vec import ALLOWED, explorer

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.vec import choose
from digideep.environment.vec.base import VecEnv, share
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.serial import SerialVecEnv
from digideep.environment.vec.ways import HERE, Trial, Way, candidates, compare
from digideep.errors import DigideepError, EnvironmentFailure, NonFiniteError

CARTPOLE = EnvConfig()


class FakeVecEnv:
    def __init__(self, way: Way, closed: list[Way]) -> None:
        self.way, self.closed = way, closed

    def close(self) -> None:
        self.closed.append(self.way)


class FakeTrial:
    """Takes as long a step as it was told; `looks` counts."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = seconds
        self.looks = 0

    def look(self) -> float:
        self.looks += 1
        return self.seconds[self.looks % len(self.seconds)]

    def time(self, steps: int) -> float:
        return self.look()


def fake(monkeypatch: pytest.MonkeyPatch, *, cores: int, seconds: dict[Way, float]) -> list[Way]:
    closed: list[Way] = []

    def make(config: EnvConfig, *, num_workers: int, parent_steps: bool, **rest: Any) -> FakeVecEnv:
        return FakeVecEnv(Way(num_workers, parent_steps), closed)

    monkeypatch.setattr(choose, "granted_cores", lambda: cores)
    monkeypatch.setattr(choose, "make_vec_env", make)
    monkeypatch.setattr(choose, "Trial", lambda vec: FakeTrial(seconds[vec.way]))
    monkeypatch.setattr(choose, "_COMPARE_S", 0.0)
    monkeypatch.setattr(choose, "_LOOK_S", 0.0)
    return closed


ONE, THREE = Way(1, True), Way(3, True)


def test_the_fastest_way_is_taken_and_the_log_has_the_figures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed = fake(monkeypatch, cores=4, seconds={HERE: 0.008, ONE: 0.005, THREE: 0.002})

    with caplog.at_level("INFO"):
        way, figures = choose.choose_workers(CARTPOLE, num_envs=8)

    assert way == THREE
    assert closed == [ONE, THREE, HERE]
    assert figures == {
        "this process": 1000.0,
        "1 worker and this process": 1600.0,
        "3 workers and this process": 4000.0,
    }
    assert "this process 1,000, 1 worker and this process 1,600, 3 workers and this process 4,000" in caplog.text


def test_figures_agree_with_the_choice_where_the_load_has_changed_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, cores=2, seconds={HERE: 0.008, ONE: 0.005})
    monkeypatch.setattr(choose, "first_figure", lambda trial, seconds: 0.002)  # four times as fast as a moment later

    way, figures = choose.choose_workers(CARTPOLE, num_envs=8)

    assert (way, figures) == (ONE, {"this process": 4000.0, "1 worker and this process": 6400.0})


def test_of_two_that_are_nearly_as_fast_the_one_with_fewer_processes_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, cores=4, seconds={HERE: 0.01, ONE: 0.0097, THREE: 0.0095})

    assert choose.choose_workers(CARTPOLE, num_envs=8)[0] == THREE

    fake(monkeypatch, cores=4, seconds={HERE: 0.01, ONE: 0.0097, THREE: 0.0097})

    assert choose.choose_workers(CARTPOLE, num_envs=8)[0] == HERE


@pytest.mark.parametrize(("cores", "num_envs"), [(1, 8), (8, 1)])
def test_one_core_or_one_environment_needs_no_measurement(
    monkeypatch: pytest.MonkeyPatch, cores: int, num_envs: int
) -> None:
    closed = fake(monkeypatch, cores=cores, seconds={})

    assert choose.choose_workers(CARTPOLE, num_envs=num_envs) == (HERE, {})
    assert closed == []


def test_no_process_is_started_for_steps_that_are_over_before_it_would_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = fake(monkeypatch, cores=4, seconds={HERE: 15e-6})

    assert choose.choose_workers(CARTPOLE, num_envs=2)[0] == HERE
    assert closed == [HERE]


@pytest.mark.parametrize(
    ("num_envs", "cores", "step_s", "parent_steps", "expected"),
    [
        (8, 4, 0.001, True, [ONE, THREE]),
        (8, 2, 0.001, True, [ONE]),
        (3, 8, 0.001, True, [ONE, Way(2, True)]),
        (8, 4, 0.001, False, [Way(2), Way(4)]),
        (8, 4, 0.8, True, [Way(2), THREE]),  # a share of half a second of this process would hide a death for as long
    ],
)
def test_ways_to_try(num_envs: int, cores: int, step_s: float, parent_steps: bool, expected: list[Way]) -> None:
    assert candidates(num_envs=num_envs, cores=cores, step_s=step_s, parent_steps=parent_steps) == expected


def test_ways_are_told_in_words() -> None:
    assert [str(way) for way in (HERE, Way(1), ONE, THREE)] == [
        "this process", "1 worker", "1 worker and this process", "3 workers and this process"
    ]  # fmt: skip


def test_a_load_that_comes_and_goes_decides_nothing() -> None:
    loaded = FakeTrial(0.005, 0.005, 0.08, 0.005, 0.09)
    ratio = compare(FakeTrial(0.010), loaded, seconds=60.0)  # type: ignore[arg-type]

    assert ratio == 2.0
    assert loaded.looks == 9  # and it ends there, since the answer is clear


def test_who_seems_slower_is_looked_at_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = FakeTrial(0.04)
    monkeypatch.setattr("digideep.environment.vec.ways.perf_counter", iter(range(99)).__next__)

    ratio = compare(FakeTrial(0.010), slower, seconds=12.0)  # type: ignore[arg-type]

    assert ratio == 0.25
    assert slower.looks == 12


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Box-v0"])
@pytest.mark.parametrize("way", [HERE, Way(1), ONE])
def test_measuring_steps_real_environments(name: str, way: Way) -> None:
    config = EnvConfig(model_name=name, from_module="fakes_vec" if name == "Box-v0" else None)
    vec = choose.make_vec_env(config, num_envs=2, **way._asdict(), allowed=ALLOWED)

    seconds = Trial(vec).time(20)
    ticks = vec.tick
    vec.close()

    assert 0 < seconds < 0.1
    assert ticks == 21


def test_zero_workers_are_this_process_and_more_are_processes() -> None:
    made: list[VecEnv] = [choose.make_vec_env(CARTPOLE, num_envs=2, num_workers=n) for n in (0, 1)]
    for vec in made:
        vec.close()

    assert [type(vec) for vec in made] == [SerialVecEnv, ProcessVecEnv]


@pytest.mark.parametrize(
    ("error", "forgiving"),
    [(EnvironmentFailure("step"), "on_env_error"), (NonFiniteError("reward"), "on_nonfinite")],
    ids=["error", "nonfinite"],
)
def test_what_training_forgives_does_not_end_the_measurement(
    monkeypatch: pytest.MonkeyPatch, error: DigideepError, forgiving: str
) -> None:
    def fail(trial: Any, *, seconds: float) -> float:
        raise error

    closed = fake(monkeypatch, cores=2, seconds={HERE: 1.0})
    monkeypatch.setattr(choose, "first_figure", fail)
    config = ExplorerConfig(num_envs=2, num_workers="auto", n_steps=1)
    lenient = dataclasses.replace(config, **{forgiving: "reset"})  # type: ignore[arg-type]

    assert choose.resolve_workers(lenient, CARTPOLE, allowed=ALLOWED, mode="train") == (
        HERE,
        {"num_workers": 0, "parent_steps": False, "env_steps_per_s": {}},
    )
    with pytest.raises(type(error)):
        choose.resolve_workers(config, CARTPOLE, allowed=ALLOWED, mode="train")
    assert closed == [HERE, HERE]


def test_an_explorer_tells_what_was_chosen_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (Way(2, True), {"this process": 5.0})
    monkeypatch.setattr("digideep.environment.vec.choose.choose_workers", lambda *a, **k: found)

    train, test = explorer(num_workers="auto"), explorer(mode="test", num_workers="auto")
    train.close()
    test.close()

    assert (train.num_workers, train.parent_steps) == (2, True)
    assert train.chosen == {"num_workers": 2, "parent_steps": True, "env_steps_per_s": {"this process": 5.0}}
    assert (test.num_workers, test.parent_steps, test.chosen) == (0, False, {})


def test_shares_are_neighbours_and_differ_by_one_at_most() -> None:
    assert share(8, 3) == [range(0, 3), range(3, 6), range(6, 8)]
    assert share(2, 2) == [range(0, 1), range(1, 2)]


def test_shares_of_two_groups_are_alike() -> None:
    assert share(10, 4, groups=2) == [range(0, 3), range(3, 5), range(5, 8), range(8, 10)]
