from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import track as module
from benchmarks.result import Result, parse_result
from benchmarks.track import Facts, Track, parse_options, peak_memory_mb

FACTS = Facts("digideep", 3072, 48, 9155, {"digideep": "0.1.0"}, {})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The reading of the clock, to be set by the test."""
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def run(clock: list[float], *, per_iteration: int) -> Track:
    """Three iterations of 1,000 frames, a second each after a first one of 10 s, each with so many episodes."""
    track = Track(0.0)
    clock[0] = 2.0
    track.mark(0)
    for iteration, ended in enumerate((12.0, 13.0, 14.0)):
        clock[0] = ended
        for number in range(per_iteration):
            track.episode(float(per_iteration * iteration + number))
        track.mark(1000 * (iteration + 1))
    return track


def test_clock_starts_after_the_iteration_that_warms_up(clock: list[float]) -> None:
    result = run(clock, per_iteration=1).result("B1", seed=3, facts=FACTS, ended=16.0)

    assert (result.frames, result.steps_per_s, result.startup_s) == (3000, 500.0, 12.0)


def test_final_return_is_the_mean_of_the_last_hundred_episodes(clock: list[float]) -> None:
    result = run(clock, per_iteration=60).result("B1", seed=3, facts=FACTS)

    assert (result.episodes, result.final_return) == (180, 129.5)


def test_curve_shows_the_episodes_that_had_ended_at_each_point(clock: list[float]) -> None:
    result = run(clock, per_iteration=2).result("B1", seed=3, facts=FACTS)

    assert result.curve == [0.5, 0.5, 0.5, 1.5, 1.5, 1.5, 2.5, 2.5, 2.5, 2.5]


def test_run_in_which_no_episode_ends_has_no_return(clock: list[float]) -> None:
    result = run(clock, per_iteration=0).result("B1", seed=3, facts=FACTS)

    assert (result.final_return, result.curve, result.solved_s) == (None, [None] * 10, None)


def test_solved_is_when_the_mean_of_a_hundred_returns_first_reaches_the_bound(clock: list[float]) -> None:
    track = Track(0.0)
    clock[0] = 1.0
    track.mark(0)
    for number in range(100):
        track.episode(474.0, at=2.0 + number)
    track.episode(574.0, at=102.0)
    track.mark(1000)
    clock[0] = 200.0

    assert track.result("B1", seed=1, facts=FACTS).solved_s == 101.0


def test_returns_that_come_later_must_be_as_many_as_the_episodes(clock: list[float]) -> None:
    track = run(clock, per_iteration=1)

    with pytest.raises(ValueError, match="expected the returns of 3 episodes, found 2"):
        track.fill_in([1.0, 2.0])

    track.fill_in([1.0, 2.0, 6.0])
    assert track.result("B1", seed=1, facts=FACTS).final_return == 3.0


def test_result_survives_its_line(make_result: Callable[..., Result]) -> None:
    result = make_result(curve=[None, 1.0])

    assert parse_result("chatter\n" + result.to_line() + "\n") == result


@pytest.mark.parametrize("output", ["", "chatter", json.dumps({"contender": "digideep"})])
def test_output_without_a_result_is_refused(output: str) -> None:
    with pytest.raises(ValueError, match="expected a result in the last line"):
        parse_result(output)


def test_every_program_takes_the_same_options() -> None:
    options: Any = parse_options(["B2", "--seed=4", "--frames=100", "--threads=2", "--mode=async"], mode="serial")

    assert (options.setting.update_epochs, options.seed, options.frames, options.threads) == (10, 4, 100, 2)
    assert options.mode == "async"


def test_peak_memory_is_that_of_this_process() -> None:
    before = peak_memory_mb()

    block = bytearray(64 << 20)
    block[:: 1 << 12] = b"x" * len(block[:: 1 << 12])

    assert 10 < before < peak_memory_mb()


def test_speed_of_replay_is_measured_from_the_frames_that_warm_up(clock: list[float]) -> None:
    track = Track(0.0)
    for at, frames in ((1.0, 0), (2.0, 1_000), (4.0, 1_199), (5.0, 1_200), (15.0, 2_200)):
        clock[0] = at
        track.mark(frames)

    result = track.result("B5", seed=1, facts=FACTS)

    assert (result.steps_per_s, result.startup_s) == (100.0, 5.0)


def test_return_of_replay_is_that_of_as_many_episodes_as_its_setting_says(clock: list[float]) -> None:
    track = Track(0.0)
    track.mark(0)
    for number in range(20):
        track.episode(-400.0 + 20.0 * number, at=1.0 + number)
    track.mark(4_200)
    clock[0] = 21.0

    result = track.result("B5", seed=1, facts=FACTS)

    assert (result.final_return, result.solved_s) == (-110.0, 16.0)
