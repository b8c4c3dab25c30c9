"""How long one side looks for the word of the other before it sleeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from digideep.environment.vec import signals
from digideep.environment.vec.signals import Patience

WORD = 3


class Core:
    """A clock that goes on by 5 microseconds a look; giving way takes what it is told, and does what it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, away_us: float, then: Callable[[], None]) -> None:
        self.now_ns, self.away_ns, self.then = 0, int(1000 * away_us), then
        self.times_away = 0
        monkeypatch.setattr(signals, "perf_counter_ns", self.clock)
        monkeypatch.setattr("os.sched_yield", self.give_way)

    def clock(self) -> int:
        self.now_ns += 5_000
        return self.now_ns

    def give_way(self) -> None:
        self.times_away += 1
        self.now_ns += self.away_ns
        self.then()


@pytest.fixture
def view() -> memoryview:
    return memoryview(bytearray(8 * 16)).cast("q")


def nothing() -> None:
    """Do nothing."""


def test_a_word_that_is_there_needs_no_look(monkeypatch: pytest.MonkeyPatch, view: memoryview) -> None:
    core = Core(monkeypatch, away_us=1, then=nothing)
    view[WORD] = 8

    assert Patience(500_000).sees(view, WORD, 7)
    assert (core.now_ns, core.times_away) == (0, 0)


def test_who_is_alone_looks_to_the_end(monkeypatch: pytest.MonkeyPatch, view: memoryview) -> None:
    core = Core(monkeypatch, away_us=1, then=nothing)
    patience = Patience(500_000)

    seen = [patience.sees(view, WORD, 7) for _ in range(2)]

    assert seen == [False, False]
    assert 2 * 500_000 <= core.now_ns < 2 * 520_000
    assert core.times_away > 2 * 70


def test_what_happens_while_others_are_given_way_is_seen(monkeypatch: pytest.MonkeyPatch, view: memoryview) -> None:
    def answer() -> None:
        view[WORD] = 7

    core = Core(monkeypatch, away_us=900, then=answer)

    assert Patience(500_000).sees(view, WORD, 7)
    assert core.times_away == 1


def test_on_a_core_that_others_want_looks_are_short_for_a_while(
    monkeypatch: pytest.MonkeyPatch, view: memoryview
) -> None:
    core = Core(monkeypatch, away_us=3000, then=nothing)
    patience = Patience(500_000)

    patience.sees(view, WORD, 7)
    after_the_first = (core.times_away, core.now_ns)
    for _ in range(200):
        patience.sees(view, WORD, 7)
    after_short_ones = (core.times_away, (core.now_ns - after_the_first[1]) // 200)
    patience.sees(view, WORD, 7)

    assert after_the_first[0] == 1
    assert after_short_ones == (1, 25_000)
    assert core.times_away == 2
