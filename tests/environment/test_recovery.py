"""The count of forgiven errors: bounded in the log, and the first one kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digideep.environment.recovery import Recovery
from digideep.environment.vec.base import Fault, traced
from digideep.environment.vec.origin import WORDS, forget, read_origin, write_origin
from digideep.errors import DigideepError, EnvironmentFailure


class Faulty:
    """Stands in for environments, one of which fails whenever it is asked."""

    def __init__(self, *, is_lost: bool = False) -> None:
        self.count = 0
        self.is_lost = is_lost
        self.rebuilt: list[int] = []

    def take_faults(self) -> list[Fault]:
        self.count += 1
        error = traced(EnvironmentFailure(f"error {self.count}"), "Traceback of it")
        return [Fault(3, error, self.is_lost)]

    def rebuild(self, envs: list[int]) -> None:
        self.rebuilt += envs


def with_crash(error: DigideepError) -> None:
    error.crash = {"of": str(error)}  # type: ignore[attr-defined]


def test_every_error_is_counted_and_the_log_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    first: list[DigideepError] = []
    vec: Any = Faulty()
    recovery = Recovery(vec, budget=1000, on_first=first.append)

    for _ in range(1000):
        recovery.take(with_crash)
    with pytest.raises(EnvironmentFailure) as raised:
        recovery.take(with_crash)

    assert recovery.env_errors == 1000
    assert str(raised.value) == "error 1001; env_error_budget 1000 is spent; the first of this process was: error 1"
    assert [str(error) for error in first] == ["error 1"]
    assert len(caplog.records) == 100 + 9
    assert sum(bool(record.__dict__["details"]) for record in caplog.records) == 10
    assert vec.rebuilt == [3] * 1000


def test_a_lost_worker_is_no_error_of_an_environment() -> None:
    vec: Any = Faulty(is_lost=True)
    recovery = Recovery(vec, budget=0)

    faults = recovery.take(with_crash)

    assert [fault.env for fault in faults] == [3]
    assert recovery.env_errors == 0
    assert vec.rebuilt == []


def test_what_ends_the_run_carries_the_way_to_the_first_failure() -> None:
    vec: Any = Faulty()
    recovery = Recovery(vec, budget=1)
    recovery.take(with_crash)
    last = EnvironmentFailure("last")

    recovery.final(last, with_crash)

    assert last.crash == {"of": "error 1"}  # type: ignore[attr-defined]


def test_a_first_failure_that_cannot_be_walked_to_leaves_the_place_to_a_later_one() -> None:
    first: list[DigideepError] = []
    vec: Any = Faulty()
    recovery = Recovery(vec, budget=3, on_first=first.append)
    recovery.take(lambda error: None)
    last = EnvironmentFailure("last")

    recovery.final(last, with_crash)
    recovery.take(with_crash)

    assert last.crash == {"of": "last"}  # type: ignore[attr-defined]
    assert [str(error) for error in first] == ["error 2"]


def test_what_an_episode_began_with_is_kept_to_the_bit() -> None:
    class Bare:
        _np_random = np.random.default_rng(5)

    Bare._np_random.integers(0, 10, dtype=np.uint32)  # half a draw is left over
    words = np.zeros((2, WORDS), np.uint64)
    write_origin(words[0], Bare(), seed=-1)
    write_origin(words[1], Bare(), seed=7)
    generator, seeded = read_origin(words[0]), read_origin(words[1])
    write_origin(words[1], object(), seed=-1)

    assert generator == {"seed": None, "rng": Bare._np_random.bit_generator.state}
    assert seeded == {"seed": 7, "rng": None}
    assert read_origin(words[1]) is None
    forget(words)
    assert read_origin(words[0]) is None
