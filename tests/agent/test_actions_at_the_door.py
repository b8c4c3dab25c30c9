"""Actions within [-1, 1] arrive at the environment in its own bounds, in training, tests and plays."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import TOY_DIRECTORY, Ended, read, rows
from made_agents import METHODS, Loop

from digideep.post import load

LOW, HIGH = np.array([-3.0, 0.0]), np.array([5.0, 1.0])
SETS = [
    "model_name=toy_door:ToyDoor-v0", "env_kwargs={}", "number_epochs=2", "num_workers=0", "test_win_size=2",
    "warm_up=128",
]  # fmt: skip


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOY_DIRECTORY))
    importlib.import_module("toy_door")


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("method", METHODS)
def test_what_the_memory_keeps_is_the_policys_and_what_the_environment_gets_its_own(method: str) -> None:
    with Loop(method, "ToyDoor-v0", warm_up=64) as loop:
        for _ in range(3):
            chunk = loop.cycle()

            raw, shown = chunk.arrays["/agents/agent/actions"], chunk.arrays["/observations/observation"]
            real = chunk.arrays["/masks"][:, 1:] == 1.0
            mapped = LOW + (raw[:, :-1] + 1.0) / 2.0 * (HIGH - LOW)
            assert np.abs(raw).max() <= 1.0
            np.testing.assert_allclose(shown[:, 1:][real], mapped[real], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_training_tests_and_plays_act_in_the_environments_bounds(
    command: Callable[..., Ended], tmp_path: Path, method: str
) -> None:
    params = str(TOY_DIRECTORY / f"acting_toy_{method}.py")
    argv = ["--params", params, "--session-path", str(tmp_path), "--session-name", "door", "--set", *SETS]

    session = command(*argv).session
    played = command("--load-checkpoint", str(session), "--play", "--episodes", "2")

    data: dict[str, Any] = {}
    for row in rows(session / "varlog.jsonl"):
        for name, figures in row["data"].items():
            data.setdefault(name, []).append(figures)
    assert -3.0 <= min(f["min"] for f in data["env/least_0"]) < -2.8 and min(
        f["min"] for f in data["env/least_1"]
    ) == pytest.approx(0.0, abs=0.03)
    assert 4.8 < max(f["max"] for f in data["env/most_0"]) <= 5.0 and max(
        f["max"] for f in data["env/most_1"]
    ) == pytest.approx(1.0, abs=0.03)
    policy, shown, expected = load(session).policy(), np.ones(2, np.float32), 0.0
    for _ in range(3):
        shown = np.asarray(policy.act(shown), np.float32)
        expected += float(shown[0] + 100.0 * shown[1])
    returns = [episode["return"] for episode in read(played.evaluation / "results.json")["episodes"]]
    assert returns == pytest.approx([expected] * 2, rel=1e-4)
    assert data["test/return"][-1]["mean"] == pytest.approx(expected, rel=1e-4)
