"""F4: a loss that is not finite stops before the optimiser's step, and its minibatch goes to `crash/`, to be read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Ended, checkpoints, read
from toys import arguments

from digideep.agent.dqn.agent import DQNAgent
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.rollout.batches import Rollout
from digideep.errors import NonFiniteError, TrustError, UsageError
from digideep.model.flat import FlatAdam, FlatParameters
from digideep.post import load_crash
from digideep.testing.q_agent import QAgent

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]
Array = np.ndarray[Any, Any]

_ADVANTAGES = 2  # among the figures of a rollout


@pytest.fixture
def poisoned() -> Iterator[dict[str, Any]]:
    """Make one row of the fourth chunk bad, and keep the weights of before; `steps` counts those of the optimiser."""
    seen: dict[str, Any] = {"steps": 0, "weights": None, "cured": False}
    prepare, step = PPOAgent.prepare, FlatAdam.step

    def bad(self: PPOAgent, *args: Any) -> Rollout:
        rollout = prepare(self, *args)
        if self._updates == 3 and not seen["cured"]:
            rollout.figures[_ADVANTAGES, 5] = np.nan
            seen.update(steps=0, weights=self._flat.values.numpy().copy())
        return rollout

    def counting(self: FlatAdam, *args: Any, **options: Any) -> None:
        seen["steps"] += 1
        step(self, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PPOAgent, "prepare", bad)
        patch.setattr(FlatAdam, "step", counting)
        yield seen


def bad_session(command: Run, toy: Toy, *sets: str) -> Path:
    argv = toy("bad", "test_activate=false", "minibatch_size=64", "normalize_advantage=false", *sets)
    ended = command(*argv, expect=8)
    error = ended.err.splitlines()[-1]
    assert error.startswith(
        "digideep: error: agents/agent: expected a finite loss, found policy_loss nan in update 3; "
    )
    assert "crash/batch.safetensors" in ended.err
    return ended.session


@pytest.mark.parametrize("path", ["packed", "fused", "reference"])
def test_F4_a_bad_loss_moves_nothing_on_every_path(
    command: Run, toy: Toy, poisoned: dict[str, Any], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    if path == "reference":
        monkeypatch.setattr("digideep.agent.ppo.agent.overridden", lambda agent, base, *, methods: ["loss"])

    session = bad_session(command, toy, "activation=gelu" if path == "fused" else "activation=tanh")

    kept = load_crash(session).kept
    assert kept.meta["update"] == 3
    assert poisoned["steps"] == 0  # the only minibatch of the first pass is the bad one
    weights = np.concatenate([kept.arrays[f"/policy/{name}"].ravel() for name in flat_names(session)])
    np.testing.assert_array_equal(weights, poisoned["weights"])
    assert checkpoints(session) == [0, 2]


def flat_names(session: Path) -> list[str]:
    """Return the names of the parameters in the order of the flat buffer."""
    return [name for name, _ in load_crash(session).agent.policy.named_parameters()]


def test_F4_what_is_kept_gives_the_same_losses_again(command: Run, toy: Toy, poisoned: dict[str, Any]) -> None:
    session = bad_session(command, toy)

    crash = load_crash(session)

    assert crash.losses().keys() == crash.figures.keys()
    np.testing.assert_array_equal(list(crash.losses().values()), list(crash.figures.values()))
    assert math.isnan(crash.figures["policy_loss"]) and math.isfinite(crash.figures["value_loss"])
    assert crash.error.startswith("agents/agent: expected a finite loss")
    bad = np.flatnonzero(~np.isfinite(crash.kept.arrays["/batch/advantages"]))
    assert len(bad) == 1
    crash.batch.advantages[int(bad[0])] = 0.0
    assert all(math.isfinite(value) for value in crash.losses().values())
    assert read(session / "crash" / "batch.json")["figures"]["policy_loss"] == "nan"


def test_F4_a_bad_gradient_stops_before_the_step_too(
    command: Run, toy: Toy, poisoned: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = FlatParameters.clip_gradients

    def bad(self: FlatParameters, max_norm: float | None) -> Any:
        if poisoned["weights"] is not None:
            self.gradients[0] = float("inf")
        return clip(self, max_norm)

    monkeypatch.setattr(FlatParameters, "clip_gradients", bad)
    monkeypatch.setattr("digideep.agent.ppo.agent.PPOAgent._check_losses", lambda self, figures, batch: None)

    ended = command(*toy("bad", "test_activate=false", "normalize_advantage=false"), expect=8)

    assert "expected a finite gradient, found norm " in ended.err.splitlines()[-1]
    assert poisoned["steps"] == 0
    assert load_crash(ended.session).kept.meta["update"] == 3


def test_F4_the_q_learner_stops_and_keeps_its_batch(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_batch = QAgent.make_batch

    def bad(self: QAgent, *args: Any) -> Any:
        batch = make_batch(self, *args)
        if self._updates == 2:
            batch.targets[1] = float("inf")
        return batch

    monkeypatch.setattr(QAgent, "make_batch", bad)

    ended = command(*arguments("toy_q", tmp_path, "bad", "num_workers=0", "test_activate=false"), expect=8)

    crash = load_crash(ended.session)
    assert "expected a finite loss" in ended.err.splitlines()[-1]
    assert crash.kept.meta["update"] == 2
    np.testing.assert_array_equal(list(crash.losses().values()), list(crash.figures.values()))


def test_F4_dqn_stops_and_keeps_a_batch_with_the_noise_of_its_weights(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_batch = DQNAgent.make_batch

    def bad(self: DQNAgent, *args: Any) -> Any:
        batch = make_batch(self, *args)
        if self.updates == 2:
            batch.targets[1] = float("inf")
        return batch

    monkeypatch.setattr(DQNAgent, "make_batch", bad)

    ended = command(*arguments("toy_dqn", tmp_path, "bad", "num_workers=0", "test_activate=false"), expect=8)

    crash = load_crash(ended.session)
    assert "expected a finite loss" in ended.err.splitlines()[-1]
    assert crash.kept.meta["update"] == 2
    assert crash.kept.arrays["/batch/noise"].shape == (crash.agent.noise_size,)
    np.testing.assert_array_equal(list(crash.losses().values()), list(crash.figures.values()))


def test_F4_a_resume_goes_on_from_the_last_good_checkpoint(command: Run, toy: Toy, poisoned: dict[str, Any]) -> None:
    session = bad_session(command, toy)
    poisoned["cured"] = True

    ended = command("--load-checkpoint", str(session), "--resume")

    assert "resumes from checkpoint-2, " in ended.err
    assert read(session / "summary.json")["state"] == "done"


def test_F4_a_crash_that_is_not_there_or_malformed_is_one_line(
    command: Run, toy: Toy, tmp_path: Path, poisoned: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=r"expected a session with crash/batch\.json, found none"):
        load_crash(tmp_path)
    session = bad_session(command, toy)
    path = session / "crash" / "batch.json"
    good = read(path)
    changes: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"version": 2}, UsageError, "expected a digideep-crash-batch of version 1, found another"),
        ({"figures": {"policy_loss": "much"}}, UsageError, "expected numbers in 'figures', found 'much'"),
        ({"node": 3}, UsageError, "expected 'node' as it was written, found another"),
        ({"node": {**good["node"], "type": "os:system"}}, TrustError, "os"),
        ({"node": {**good["node"], "type": "digideep.memory.config:RollBufferConfig"}}, UsageError, "AgentConfig"),
    ]
    for change, error, message in changes:
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(error, match=message):
            load_crash(session)
    path.write_text(json.dumps(good))
    (session / "crash" / "batch.safetensors").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"batch\.safetensors: expected at least 8 bytes, found 7"):
        load_crash(session)


def test_F4_an_error_without_a_batch_leaves_no_files(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: PPOAgent, *args: Any) -> Rollout:
        raise NonFiniteError("agents/agent: expected something, found nothing")

    monkeypatch.setattr(PPOAgent, "prepare", refuse)

    session = command(*toy("bad", "test_activate=false"), expect=8).session

    assert not (session / "crash").exists()
