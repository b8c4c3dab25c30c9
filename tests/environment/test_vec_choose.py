"""How the number of workers is chosen."""

from __future__ import annotations

import dataclasses

import pytest
from fakes_vec import ALLOWED, explorer

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.vec import choose
from digideep.environment.vec.base import VecEnv, share
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.serial import SerialVecEnv
from digideep.errors import DigideepError, EnvironmentFailure, NonFiniteError

CARTPOLE = EnvConfig()


class FakeVecEnv:
    def __init__(self, num_workers: int, closed: list[int]) -> None:
        self.num_workers, self.closed = num_workers, closed

    def close(self) -> None:
        self.closed.append(self.num_workers)


def fake(monkeypatch: pytest.MonkeyPatch, *, cores: int, speeds: dict[int, float]) -> list[int]:
    closed: list[int] = []
    monkeypatch.setattr(choose, "granted_cores", lambda: cores)
    monkeypatch.setattr(choose, "make_vec_env", lambda *a, num_workers, **k: FakeVecEnv(num_workers, closed))
    monkeypatch.setattr(choose, "measure", lambda vec, seconds: speeds[vec.num_workers])
    return closed


def test_the_fastest_way_is_taken_and_the_log_has_the_figures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed = fake(monkeypatch, cores=4, speeds={0: 100.0, 2: 180.0, 4: 300.0})

    with caplog.at_level("INFO"):
        choice = choose.choose_workers(CARTPOLE, num_envs=8)

    assert choice == 4
    assert closed == [0, 2, 4]
    assert "0 workers 100, 2 workers 180, 4 workers 300" in caplog.text


def test_of_two_that_are_nearly_as_fast_the_one_with_fewer_processes_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, cores=4, speeds={0: 100.0, 2: 105.0, 4: 109.0})

    assert choose.choose_workers(CARTPOLE, num_envs=8) == 0


def test_no_more_workers_than_environments_or_cores_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = fake(monkeypatch, cores=8, speeds={0: 1.0, 2: 2.0})

    assert choose.choose_workers(CARTPOLE, num_envs=3) == 2
    assert closed == [0, 2]


def test_one_core_needs_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = fake(monkeypatch, cores=1, speeds={})

    assert choose.choose_workers(CARTPOLE, num_envs=8) == 0
    assert closed == []


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Box-v0"])
def test_measuring_steps_real_environments(name: str) -> None:
    config = EnvConfig(model_name=name, from_module="fakes_vec" if name == "Box-v0" else None)
    vec = choose.make_vec_env(config, num_envs=2, num_workers=0, allowed=ALLOWED)

    figure = choose.measure(vec, seconds=0.01)
    vec.close()

    assert figure > 100


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
    def fail(vec: VecEnv, seconds: float) -> float:
        raise error

    fake(monkeypatch, cores=2, speeds={})
    monkeypatch.setattr(choose, "measure", fail)
    config = ExplorerConfig(num_envs=2, num_workers="auto", n_steps=1)
    lenient = dataclasses.replace(config, **{forgiving: "reset"})  # type: ignore[arg-type]

    assert choose.resolve_workers(lenient, CARTPOLE, allowed=ALLOWED, is_measured=True) == (0, {"num_workers": 0})
    with pytest.raises(type(error)):
        choose.resolve_workers(config, CARTPOLE, allowed=ALLOWED, is_measured=True)


def test_an_explorer_tells_what_was_chosen_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digideep.environment.vec.choose.choose_workers", lambda *a, **k: 0)

    train, test = explorer(num_workers="auto"), explorer(mode="test", num_workers="auto")
    train.close()
    test.close()

    assert (train.num_workers, train.chosen) == (0, {"num_workers": 0})
    assert (test.num_workers, test.chosen) == (0, {})


def test_shares_are_neighbours_and_differ_by_one_at_most() -> None:
    assert share(8, 3) == [range(0, 3), range(3, 6), range(6, 8)]
    assert share(2, 2) == [range(0, 1), range(1, 2)]
