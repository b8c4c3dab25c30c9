"""Results that no run has given, for tests of what is made of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.result import Result
from benchmarks.tables import Table

MACHINE = {
    "cpu": "A CPU",
    "cores": 2,
    "platform": "Linux",
    "python": "3.11.7",
    "date": "2026-01-02",
    "load": [0.1, 0.2],
}


@pytest.fixture
def make_result() -> Callable[..., Result]:
    def make(contender: str = "digideep", **fields: Any) -> Result:
        peer = contender.startswith("stable")
        values: dict[str, Any] = {
            "setting": "B1",
            "seed": 1,
            "frames": 10_000 if not peer else 10_240,
            "rows": 10_240,
            "gradient_steps": 160,
            "parameters": 9155,
            "episodes": 240,
            "steps_per_s": 50_000.0 if not peer else 10_000.0,
            "startup_s": 2.0,
            "final_return": 200.0,
            "solved_s": None,
            "peak_mb": 250.0,
            "curve": [float(number) for number in range(10)],
            "versions": {"stable_baselines3": "2.9.2"} if peer else {"digideep": "0.1.0"},
            "choices": {},
            "profile": {},
        }
        return Result(contender=contender, **{**values, **fields})

    return make


@pytest.fixture
def make_table(make_result: Callable[..., Result]) -> Callable[..., Table]:
    """A table of three repetitions of digideep and both rows of Stable-Baselines3, the second of them the faster."""

    def make(setting: str = "B1", *, cores: int = 1) -> Table:
        runs = []
        for seed in (1, 2, 3):
            runs.append(make_result(seed=seed, setting=setting, steps_per_s=50_000.0 + seed))
            runs.append(make_result("stable-baselines3", seed=seed, setting=setting, steps_per_s=10_000.0))
            runs.append(make_result("stable-baselines3 (cpu)", seed=seed, setting=setting, steps_per_s=12_500.0))
        return Table(setting, cores, 1, MACHINE, runs, [])

    return make
