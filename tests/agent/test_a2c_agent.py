from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from digideep.agent.a2c.agent import A2CAgent, whole_batch
from digideep.agent.a2c.config import A2CConfig
from digideep.errors import CheckpointError, ConfigError, NonFiniteError
from digideep.model.config import MLPConfig, RNNConfig
from digideep.types import Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

FIGURES = ["entropy", "explained_variance", "grad_norm", "lr", "policy_loss", "value_loss"]
_ADVANTAGES, _RETURNS = 2, 3  # among the figures of a rollout


@pytest.fixture
def make_a2c(make_spec: Any, make_agent: Any) -> Any:
    def make(actions: str = "discrete", **fields: Any) -> Any:
        return make_agent(make_spec(actions), cls=A2CAgent, config=A2CConfig, **fields)

    return make


def learn(agent: Any, chunk: Any, frames: int = 0) -> None:
    agent._memory.store(chunk)
    agent.update(Normalizer(), Counters(env_steps=frames + chunk.meta.env_steps))


def weights(agent: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([array.ravel() for array in agent.policy_state()["policy"].values()])


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
@pytest.mark.parametrize("actions", ["discrete", "multi_discrete", "multi_binary", "box", "dict"])
def test_an_update_of_a2c_moves_the_policy_and_reports_every_figure_once(
    actions: str, optimizer: str, make_a2c: Any, make_chunk: Any
) -> None:
    agent = make_a2c(actions, optimizer=optimizer)
    before = weights(agent)

    learn(agent, make_chunk(agent, np.random.default_rng(0)))

    assert (weights(agent) != before).mean() > 0.9
    assert sorted(agent.metrics) == [f"update/agent/{figure}" for figure in FIGURES]
    assert all(math.isfinite(value) for value in agent.metrics.values())


def test_an_update_of_a2c_is_one_gradient_step_on_the_whole_chunk(make_a2c: Any, make_chunk: Any) -> None:
    agent = make_a2c(optimizer="adam")

    for number in range(3):
        learn(agent, make_chunk(agent, np.random.default_rng(number)))

    assert agent.state_dict()["optimiser"]["step"] == 3
    assert agent.publish()[0] == 3


def test_the_learning_rate_of_a2c_follows_the_frames(make_a2c: Any, make_chunk: Any) -> None:
    agent = make_a2c(lr=0.01, lr_final=0.0, lr_horizon=1000)
    found = []

    for frames in (0, 250, 1000):
        learn(agent, make_chunk(agent, np.random.default_rng(frames)), frames)
        found.append(agent.metrics["update/agent/lr"])

    assert found == [0.01, 0.0075, 0.0]


def test_returns_are_all_rewards_to_the_end_of_the_chunk_and_then_a_value(make_a2c: Any, make_chunk: Any) -> None:
    agent = make_a2c(gamma=0.9)
    chunk = make_chunk(agent, np.random.default_rng(1), num_envs=3, n_steps=9)
    arrays = chunk.arrays
    arrays["/masks"][:, 2:][arrays["/terminations"][:, :-2] == 1.0] = 0.0  # what follows an end is a reset
    newest = agent.act({"observation": arrays["/observations/observation"][:, -1]}).artifacts["values"]

    rollout = agent.prepare(chunk, Normalizer())

    for env in range(3):
        values = [*arrays["/agents/agent/artifacts/values"][env, :-1], newest[env]]
        return_ = values[-1]
        for t in reversed(range(9)):
            if arrays["/masks"][env, t + 1] == 0.0:  # no real transition: the one before it was the last of an episode
                return_ = values[t]
                continue
            ended = arrays["/terminations"][env, t] == 1.0
            return_ = arrays["/rewards"][env, t] + 0.9 * (0.0 if ended else return_)
            row = t * 3 + env
            assert rollout.returns[row] == pytest.approx(return_, abs=1e-5)
            assert rollout.figures[_ADVANTAGES, row] == pytest.approx(return_ - values[t], abs=1e-5)


def test_the_batch_of_a2c_is_the_chunk_in_its_order_with_shares_for_weights(make_a2c: Any, make_chunk: Any) -> None:
    agent = make_a2c()
    rollout = agent.prepare(make_chunk(agent, np.random.default_rng(0)), Normalizer())

    plain, normal = (whole_batch(rollout, normalize=normalize) for normalize in (False, True))

    np.testing.assert_array_equal(plain.observations["observation"], rollout.observations["observation"])
    np.testing.assert_array_equal(plain.actions[""], rollout.actions[""])
    np.testing.assert_array_equal(plain.returns, rollout.returns)
    np.testing.assert_array_equal(plain.advantages, rollout.figures[_ADVANTAGES])
    np.testing.assert_allclose(plain.shares, rollout.weights / rollout.weights.sum(), rtol=1e-6)
    assert (normal.advantages * normal.shares).sum() == pytest.approx(0.0, abs=1e-6)
    assert (np.square(normal.advantages) * normal.shares).sum() == pytest.approx(1.0, rel=1e-5)


def test_rows_that_are_not_real_do_not_change_the_gradient_of_a2c(make_a2c: Any, make_chunk: Any) -> None:
    agent = make_a2c(normalize_advantage=True)
    chunk = make_chunk(agent, np.random.default_rng(0))
    unreal = chunk.arrays["/masks"][:, 1:] == 0.0
    assert unreal.sum() > 3

    flat = []
    for reward in (0.0, 1000.0):
        chunk.arrays["/rewards"][:, :-1][unreal] = reward
        batch = whole_batch(agent.prepare(chunk, Normalizer()), normalize=True)
        flat.append(agent.gradients(batch).flat.clone())

    torch.testing.assert_close(flat[0], flat[1], rtol=0.0, atol=0.0)


def test_a_chunk_without_real_rows_leaves_the_numbers_of_a2c_finite(make_a2c: Any, make_chunk: Any) -> None:
    agent = make_a2c(normalize_advantage=True)
    chunk = make_chunk(agent, np.random.default_rng(0))
    chunk.arrays["/masks"][:] = 0.0

    learn(agent, chunk)

    assert np.isfinite(weights(agent)).all()
    assert all(math.isfinite(value) for value in agent.metrics.values())


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
def test_a_loss_of_a2c_that_is_not_finite_moves_nothing_and_can_be_computed_again(
    activation: str, make_a2c: Any, make_chunk: Any
) -> None:
    agent = make_a2c(model=node(MLPConfig, hidden_sizes=[16], activation=activation))
    chunk = make_chunk(agent, np.random.default_rng(0))
    learn(agent, chunk)
    before = weights(agent)
    chunk.arrays["/rewards"][:] = np.nan

    with pytest.raises(NonFiniteError, match=r"expected a finite loss, found policy_loss .* in update 1") as caught:
        learn(agent, chunk)

    np.testing.assert_array_equal(weights(agent), before)
    kept = caught.value.crash_batch  # type: ignore[attr-defined]
    again = agent.gradients(agent.batch_of(kept.arrays)).losses.tolist()
    np.testing.assert_array_equal(again, list(kept.meta["figures"].values()))
    assert list(kept.meta["figures"]) == ["policy_loss", "value_loss", "entropy"]
    assert kept.meta["node"]["type"] == "digideep.agent.a2c.config:A2CConfig"


def test_where_nobody_waits_a_bad_step_of_a2c_moves_nothing_and_is_told_at_the_end(
    make_a2c: Any, make_chunk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_a2c(model=node(MLPConfig, hidden_sizes=[16], activation="gelu"))
    chunk = make_chunk(agent, np.random.default_rng(0))
    monkeypatch.setattr(agent._flat, "clip_gradients", lambda _: torch.linalg.vector_norm(agent._flat.gradients))
    agent._waits, agent._path = False, agent._path._replace(device=agent._device)
    learn(agent, chunk)
    before, squares = weights(agent), agent.state_dict()["optimiser"]["square_avg"]
    chunk.arrays["/rewards"][:] = np.nan

    with pytest.raises(NonFiniteError, match="found policy_loss nan, value_loss nan, norm of the gradient nan"):
        learn(agent, chunk)

    np.testing.assert_array_equal(weights(agent), before)
    for name, array in agent.state_dict()["optimiser"]["square_avg"].items():
        np.testing.assert_array_equal(array, squares[name])


def test_the_state_of_another_optimiser_is_refused(make_a2c: Any) -> None:
    rmsprop, adam = make_a2c(), make_a2c(optimizer="adam")

    with pytest.raises(CheckpointError, match=r"agents.agent/optimiser: expected the parts \['square_avg'\]"):
        rmsprop.load_state_dict(adam.state_dict())


def test_a_schedule_of_a2c_without_horizon_is_refused() -> None:
    with pytest.raises(ConfigError, match="A2CConfig/lr_horizon: expected frames above 0, since lr_final is 0"):
        A2CConfig(lr_final=0.0)


def test_a_network_with_a_hidden_state_is_refused_by_a2c(make_a2c: Any) -> None:
    with pytest.raises(ConfigError, match="/agents/agent/model/type: expected a network without hidden state"):
        make_a2c(model=node(RNNConfig))
