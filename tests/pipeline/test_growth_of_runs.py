"""A run takes no memory that it does not give back: sampling, learning, statistics, logs."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import digideep
from digideep.pipeline.runner import Runner

N_STEPS = 16
UNSEEN_CYCLES = 20  # everything is slower once allocations are traced
WARM_CYCLES, CYCLES = 50, 125  # of 16 steps: 2,000 steps after the warm-up, an epoch in each cycle
ALLOWED_BYTES = 8000  # a list that grows by one known object a step takes 16,000, one line that an epoch keeps 25,000


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return where the bytes that are allocated will stand, after the warm-up and at the end."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    train_cycle, found, cycles = Runner.train_cycle, list[int](), 0

    def counted(self: Runner) -> None:
        nonlocal cycles
        train_cycle(self)
        cycles += 1
        if cycles == UNSEEN_CYCLES:
            tracemalloc.start()
        elif cycles in (WARM_CYCLES, WARM_CYCLES + CYCLES):
            gc.collect()
            found.append(tracemalloc.get_traced_memory()[0])

    monkeypatch.setattr(Runner, "train_cycle", counted)
    return found


@pytest.mark.parametrize("num_workers", [0, 2])
def test_two_thousand_steps_of_a_run_take_no_memory(tmp_path: Path, traced: list[int], num_workers: int) -> None:
    knobs: dict[str, Any] = {
        "num_workers": num_workers,
        "n_steps": N_STEPS,
        "epoch_size": 1,
        "number_epochs": WARM_CYCLES + CYCLES,
        "update_epochs": 1,
        "test_activate": False,
        "save_interval": 0,
    }
    try:
        quiet: dict[str, Any] = {"log_level": "fatal", "monitor_cpu": False, "monitor_gpu": False}
        digideep.run("digideep.testing.toy_ppo", knobs, session_path=str(tmp_path), **quiet)
    finally:
        tracemalloc.stop()

    before, after = traced
    assert after - before < ALLOWED_BYTES
