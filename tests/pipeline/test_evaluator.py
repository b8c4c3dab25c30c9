"""The summary of an evaluation, and the environment that tests and plays see."""

from __future__ import annotations

import pytest

from digideep.pipeline.evaluation import Evaluation, play_env
from digideep.types import Episode


def _episode(return_: float, **metrics: float) -> Episode:
    return Episode(0, 0, return_, 1, None, metrics)


def test_the_summary_has_mean_population_deviation_and_success_rate() -> None:
    result = Evaluation.of([_episode(1.0, is_success=1.0), _episode(3.0, is_success=0.0), _episode(5.0)])

    assert (result.mean_return, result.success_rate) == (3.0, 0.5)
    assert result.std_return == pytest.approx((8 / 3) ** 0.5)


def test_without_successes_there_is_no_rate() -> None:
    assert Evaluation.of([_episode(1.0)]).success_rate is None


@pytest.mark.parametrize(("play", "seen"), [(None, {"a": 1}), ({"b": 2}, {"b": 2}), ({}, {})])
def test_arguments_for_plays_take_the_place_of_the_others(play: object, seen: object) -> None:
    params = {"env": {"model_name": "x", "env_kwargs": {"a": 1}, "play_env_kwargs": play}}

    assert play_env(params)["env_kwargs"] == seen
    assert params["env"]["env_kwargs"] == {"a": 1}
