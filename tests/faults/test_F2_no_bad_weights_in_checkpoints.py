"""F2: no checkpoint with weights, moments or statistics that are not finite is ever committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Ended, checkpoints, read
from safetensors.numpy import load_file

from digideep.agent.ppo.agent import PPOAgent
from digideep.model.flat import FlatAdam
from digideep.testing.q_agent import QAgent
from digideep.utility.statistics import Statistics

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

PATHS = {"packed": "activation=tanh", "fused": "activation=gelu", "reference": "activation=tanh"}


def check_ended_well(ended: Ended) -> None:
    """Check that every checkpoint that stands is finite, that the run said so, and that nothing is half done."""
    session = ended.session
    standing = checkpoints(session)
    assert [f"checkpoint-{number}" for number in standing] == sorted(set(ended.saved), key=lambda n: int(n[11:]))
    for number in standing:
        for path in (session / "checkpoints" / f"checkpoint-{number}").glob("*.safetensors"):
            if path.name.startswith(("agents.", "statistics")):
                bad = [name for name, array in load_file(path).items() if not np.isfinite(array).all()]
                assert bad == [], path
    summary = read(session / "summary.json")
    assert (summary["state"], summary["exit_code"]) == ("failed", 8)
    assert not (session / "done.lock").exists()
    assert ended.err.splitlines()[-1].startswith("digideep: error: ")
    assert "finite" in ended.err.splitlines()[-1]
    assert "RuntimeWarning" not in ended.err
    assert [path.name for path in (session / "checkpoints").iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("lr", ["1e20", "1e30"])
@pytest.mark.parametrize("path", PATHS)
def test_F2_an_enormous_learning_rate_ends_with_8_and_keeps_the_last_good_checkpoint(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch, path: str, lr: str
) -> None:
    if path == "reference":
        monkeypatch.setattr("digideep.agent.ppo.agent.overridden", lambda agent, base, *, methods: ["loss"])
    sets = ["test_activate=false", "number_epochs=20", "lr_final=null", f"lr={lr}", PATHS[path], "keep_last=9"]

    ended = command(*toy("diverged", *sets), expect=8)

    check_ended_well(ended)
    assert checkpoints(ended.session)[0] == 0


def poison_weights(self: PPOAgent) -> None:
    self._flat.values[3] = float("inf")


def poison_moments(self: PPOAgent) -> None:
    self._optimiser._state["exp_avg_sq"][3] = float("nan")


@pytest.mark.parametrize("poison", [poison_weights, poison_moments])
def test_F2_weights_and_moments_that_go_bad_after_the_last_look_are_not_saved(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch, poison: Callable[[PPOAgent], None]
) -> None:
    update = PPOAgent.update

    def poisoned(self: PPOAgent, *args: Any) -> None:
        update(self, *args)
        if self._updates == 4:
            poison(self)

    monkeypatch.setattr(PPOAgent, "update", poisoned)

    ended = command(*toy("poisoned", "test_activate=false"), expect=8)

    check_ended_well(ended)
    assert checkpoints(ended.session) == [0, 2]
    assert "nothing was saved" in ended.err.splitlines()[-1]


def test_F2_statistics_that_go_bad_are_not_saved(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = Statistics.merge

    def poisoned(self: Statistics, chunk: Any) -> None:
        merge(self, chunk)
        if self.version == 4:
            self._returns = self._returns._replace(m2=np.array(np.nan))

    monkeypatch.setattr(Statistics, "merge", poisoned)

    ended = command(*toy("poisoned", "test_activate=false"), expect=8)

    check_ended_well(ended)
    assert checkpoints(ended.session) == [0, 2]


def test_F2_a_step_that_an_optimiser_takes_to_infinity_is_not_saved(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = FlatAdam.step

    def poisoned(self: FlatAdam, lr: float, *, skip: torch.Tensor | None = None) -> None:
        step(self, lr, skip=skip)
        self._flat.values.mul_(float("inf"))

    monkeypatch.setattr(FlatAdam, "step", poisoned)

    ended = command(*toy("poisoned", "test_activate=false"), expect=8)

    check_ended_well(ended)
    assert checkpoints(ended.session) == [0]


def test_F2_a_target_network_is_looked_at_too(command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toys import arguments

    state_dict = QAgent.state_dict

    def poisoned(self: QAgent) -> dict[str, Any]:
        state = state_dict(self)
        if self._updates > 0:
            name = next(iter(state["target"]))
            state["target"][name] = np.full_like(state["target"][name], np.inf)
        return state

    monkeypatch.setattr(QAgent, "state_dict", poisoned)

    ended = command(*arguments("toy_q", tmp_path, "target", "num_workers=0", "test_activate=false"), expect=8)

    check_ended_well(ended)
    assert "target" in ended.err.splitlines()[-1]


@pytest.mark.parametrize("number", [float("nan"), np.float32("inf")])
def test_F2_a_number_of_an_agent_that_is_no_array_is_looked_at_too(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    state_dict = PPOAgent.state_dict

    def poisoned(self: PPOAgent) -> dict[str, Any]:
        state = state_dict(self)
        return {**state, "generators": {**state["generators"], "scales": [1.0, number]}} if self._updates else state

    monkeypatch.setattr(PPOAgent, "state_dict", poisoned)

    ended = command(*toy("poisoned", "test_activate=false"), expect=8)

    check_ended_well(ended)
    assert f"agents.agent/generators/scales/1: expected a finite number, found {number}" in ended.err.splitlines()[-1]
