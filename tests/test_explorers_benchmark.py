"""The benchmark of explorers: what is compared, and what is told."""

from __future__ import annotations

import pytest

from benchmarks import explorers
from benchmarks.ways import Stepped, ours


class Steps:
    """Takes as long a step as it was told."""

    def __init__(self, seconds: float, *, saves_state: bool = True) -> None:
        self.seconds, self.saves_state = seconds, saves_state
        self.is_closed = False

    def time(self, steps: int) -> float:
        return self.seconds

    def close(self) -> None:
        self.is_closed = True


def refuse() -> Steps:
    raise ImportError("no module\nof that name")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Steps]:
    """Return what is stepped: what `auto` chose, this process, workers, and somebody else, who is the fastest."""
    made = [Steps(0.002), Steps(0.004), Steps(0.0016), Steps(0.001, saves_state=False)]
    auto, one, two, other = made
    ways = [Stepped("digideep: this process", lambda: one), Stepped("digideep: 2 workers", lambda: two)]
    monkeypatch.setattr(explorers, "auto", lambda name, num_envs: (auto, "native"))
    monkeypatch.setattr(explorers, "ours", lambda *a, **k: [*ways, Stepped("digideep: native", refuse)])
    monkeypatch.setattr(explorers, "peers", lambda *a, **k: [Stepped("Other", lambda: other), Stepped("Gone", refuse)])
    return made


def test_auto_is_compared_with_every_way_that_can_be_made(made: list[Steps]) -> None:
    choice, compared, missing = explorers.measure("Some-v0", 8, seconds=0.0)

    assert choice == "native"
    assert [(one.way, round(one.ratio, 3)) for one in compared] == [
        ("digideep: this process", 2.0), ("digideep: 2 workers", 0.8), ("digideep: native", 1.0), ("Other", 0.5)
    ]  # fmt: skip
    assert (compared[0].auto_rate, compared[0].rate) == (4000.0, 2000.0)
    assert missing == ["Gone: no module of that name"]
    assert all(one.is_closed for one in made)


def test_the_best_is_that_whose_state_is_saved(made: list[Steps], capsys: pytest.CaptureFixture[str]) -> None:
    code = explorers.main(["Some-v0", "-n", "8", "--seconds", "0"])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert "Some-v0, 8 environments; auto: native" in lines
    assert lines[-1] == "    0.80  against the best whose state is saved (digideep: 2 workers)"
    assert sum("state saved" in line for line in lines) == 3


def test_ways_of_our_own_are_real() -> None:
    ways = {way.name: way.make for way in ours("CartPole-v1", 2, cores=2)}

    stepping = ways["digideep: this process"]()
    seconds = stepping.time(10)
    stepping.close()

    assert list(ways) == [
        "digideep: this process", "digideep: 2 workers", "digideep: 1 worker and this process", "digideep: native",
        "digideep: envpool",
    ]  # fmt: skip
    assert stepping.saves_state
    assert 0 < seconds < 0.1
