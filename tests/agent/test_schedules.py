from __future__ import annotations

from digideep.agent.schedules import linear


def test_a_schedule_is_a_line_to_its_horizon_and_holds_the_final_value_after_it() -> None:
    values = [linear(1.0, 0.0, horizon=100, frame=frame) for frame in (0, 25, 99, 100, 1000)]

    assert values == [1.0, 0.75, 0.010000000000000009, 0.0, 0.0]


def test_a_schedule_may_rise() -> None:
    assert linear(1.0, 3.0, horizon=10, frame=5) == 2.0


def test_without_a_final_value_nothing_changes() -> None:
    assert linear(0.3, None, horizon=0, frame=10**9) == 0.3


def test_a_horizon_of_zero_is_over_at_once() -> None:
    assert linear(1.0, 0.5, horizon=0, frame=0) == 0.5
