from __future__ import annotations

import pytest

from benchmarks.statistics import difference_of_means, mean_interval, median_difference, median_ratio


def test_ratio_is_the_median_of_neighbours_not_the_ratio_of_medians() -> None:
    ours, theirs = [10.0, 20.0, 90.0], [10.0, 5.0, 30.0]

    assert median_ratio(ours, theirs).value == 3.0


def test_runs_without_spread_have_an_interval_without_width() -> None:
    assert median_ratio([6.0, 6.0], [2.0, 2.0]) == (3.0, 3.0, 3.0)
    assert median_difference([6.0, 6.0], [2.0, 2.0]) == (4.0, 4.0, 4.0)
    assert mean_interval([5.0, 5.0]) == (5.0, 5.0, 5.0)
    assert difference_of_means([5.0, 5.0], [2.0, 2.0, 2.0]) == (3.0, 3.0, 3.0)


def test_interval_lies_within_what_was_measured_and_holds_the_value() -> None:
    estimate = mean_interval([1.0, 2.0, 3.0, 10.0])

    assert 1.0 <= estimate.low < estimate.value == 4.0 < estimate.high <= 10.0


def test_same_runs_give_the_same_interval() -> None:
    assert mean_interval([1.0, 2.0, 4.0]) == mean_interval([1.0, 2.0, 4.0])


def test_runs_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        median_ratio([1.0, 2.0], [1.0])


def test_estimate_is_shown_with_its_interval() -> None:
    assert str(median_ratio([6.0], [2.0])) == "3.00 [3.00, 3.00]"
