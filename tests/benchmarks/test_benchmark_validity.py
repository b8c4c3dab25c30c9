from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.result import Result
from benchmarks.validity import checks

PEER = "stable-baselines3"


def broken(ours: list[Result], theirs: list[Result]) -> list[str]:
    return [check.name for check in checks(ours, theirs) if not check.holds]


def test_equal_work_passes(make_result: Callable[..., Result]) -> None:
    assert broken([make_result()], [make_result(PEER)]) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"frames": 10_240}, []),  # every row is a real transition
        ({"frames": 9_900}, ["real transitions of digideep"]),  # 340 rows fewer, but 240 episodes
        ({"gradient_steps": 150}, ["gradient steps"]),
        ({"parameters": 9000}, ["parameters"]),
        ({"final_return": 100.0}, ["return at the end"]),
        ({"final_return": 300.0}, []),
        ({"final_return": None}, []),
    ],
)
def test_each_condition_is_noticed(
    make_result: Callable[..., Result], fields: dict[str, Any], expected: list[str]
) -> None:
    assert broken([make_result(**fields)], [make_result(PEER)]) == expected


def test_resets_that_are_counted_as_transitions_are_noticed(make_result: Callable[..., Result]) -> None:
    # One episode a hundred rows: with the resets among the frames nothing is missing, and no reset takes a row.
    ours = make_result(frames=10_240 - 100, episodes=240)

    assert broken([ours], [make_result(PEER)]) == ["real transitions of digideep"]


def test_return_is_compared_with_the_interval_not_with_the_mean(make_result: Callable[..., Result]) -> None:
    theirs = [make_result(PEER, seed=seed, final_return=value) for seed, value in enumerate((100.0, 200.0, 300.0))]

    assert broken([make_result(final_return=150.0)], theirs) == []
    assert broken([make_result(final_return=90.0)], theirs) == ["return at the end"]


@pytest.mark.parametrize(("gradient_steps", "expected"), [(1360, []), (1400, ["gradient steps"])])
def test_rows_that_are_acted_at_random_are_not_learnt_from(
    make_result: Callable[..., Result], gradient_steps: int, expected: list[str]
) -> None:
    # Resets take rows: 1,359 gradient steps come to the same as 1,250, after the first 1,000 rows.
    fields: dict[str, Any] = {"setting": "B12-steady", "frames": 6_000}
    ours = make_result(**fields, rows=6_436, gradient_steps=gradient_steps, episodes=436)

    assert broken([ours], [make_result(PEER, **fields, rows=6_000, gradient_steps=1_250, episodes=416)]) == expected


@pytest.mark.parametrize(("gradient_steps", "expected"), [(3_264, []), (3_290, ["gradient steps"])])
def test_chunk_in_which_the_warm_up_ends_is_learnt_from_as_a_whole(
    make_result: Callable[..., Result], gradient_steps: int, expected: list[str]
) -> None:
    fields: dict[str, Any] = {"setting": "B5", "frames": 4_224, "rows": 4_224, "episodes": 21}
    ours = make_result(**fields, gradient_steps=3_225)

    assert broken([ours], [make_result(PEER, **fields, gradient_steps=gradient_steps)]) == expected
