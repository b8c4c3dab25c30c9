from __future__ import annotations

from benchmarks import soak
from benchmarks.soak import Minute

EARLY = Minute(us_per_frame=20.0, rss_mb=300.0, descriptors=10, threads=4, processes=2)


def test_time_of_a_frame_is_that_of_the_middle_epoch_of_the_minute() -> None:
    epochs = [(0.0, 0), (50.0, 1000), (50.02, 2000), (50.03, 3000), (52.0, 4000), (52.03, 5000)]

    assert round(soak._us_per_frame(epochs, seconds=5.0), 6) == 25.0


def test_minute_that_holds_one_epoch_is_measured_from_the_one_before() -> None:
    assert round(soak._us_per_frame([(0.0, 0), (100.0, 1000)], seconds=60.0)) == 100_000


def test_frame_may_take_five_percent_longer_and_not_more() -> None:
    assert soak._verdict(EARLY, EARLY._replace(us_per_frame=20.9)) == []
    assert soak._verdict(EARLY, EARLY._replace(us_per_frame=21.2)) == ["a frame takes 1.06 times as long"]
