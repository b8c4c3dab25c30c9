from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from digideep.agent.base import Agent
from digideep.agent.ppo.config import PPOConfig
from digideep.agent.rollout.batches import minibatches
from digideep.environment.config import StatisticsConfig
from digideep.errors import CheckpointError, ConfigError, NonFiniteError, ShapeError, TrustError
from digideep.model.config import MLPConfig
from digideep.types import Counters
from digideep.utility.differences import first_difference
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer, Statistics

FIGURES = [
    "approx_kl",
    "clip_fraction",
    "entropy",
    "explained_variance",
    "grad_norm",
    "lr",
    "policy_loss",
    "value_loss",
]


def learn(agent: Any, chunk: Any, frames: int = 0) -> None:
    agent._memory.store(chunk)
    agent.update(Normalizer(), Counters(env_steps=frames + chunk.meta.env_steps))


def weights(agent: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([array.ravel() for array in agent.policy_state()["policy"].values()])


@pytest.mark.parametrize("actions", ["discrete", "multi_discrete", "multi_binary", "box", "dict"])
def test_an_update_moves_the_policy_and_reports_every_figure_once(
    actions: str, make_spec: Any, make_agent: Any, make_chunk: Any
) -> None:
    agent = make_agent(make_spec(actions))
    before = weights(agent)

    learn(agent, make_chunk(agent, np.random.default_rng(0)))

    assert (weights(agent) != before).mean() > 0.9
    assert sorted(agent.metrics) == [f"update/agent/{figure}" for figure in FIGURES]
    assert all(math.isfinite(value) for value in agent.metrics.values())


def test_schedules_follow_the_frames_and_hold_their_final_value(
    make_spec: Any, make_agent: Any, make_chunk: Any
) -> None:
    agent = make_agent(
        make_spec(),
        lr=0.01,
        lr_final=0.0,
        lr_horizon=1000,
        clip_param=0.2,
        clip_param_final=0.1,
        clip_param_horizon=500,
    )
    found = []
    for frames in (0, 250, 1000, 5000):
        learn(agent, make_chunk(agent, np.random.default_rng(frames)), frames)
        found.append((agent.metrics["update/agent/lr"], agent.clip_param))

    assert found == [(0.01, 0.2), (0.0075, pytest.approx(0.15)), (0.0, 0.1), (0.0, 0.1)]


def test_an_update_ends_early_once_the_kl_exceeds_its_target(
    make_spec: Any, make_agent: Any, make_chunk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {}
    for target in (None, 0.001):
        agent = make_agent(make_spec(), target_kl=target, lr=0.05, update_epochs=10)
        learn(agent, make_chunk(agent, np.random.default_rng(0)))
        steps[target] = agent.state_dict()["optimiser"]["step"]

    assert steps[None] == 30
    assert 1 <= steps[0.001] < 10


def test_unreal_rows_do_not_change_the_gradient(make_spec: Any, make_agent: Any, make_chunk: Any) -> None:
    agent = make_agent(make_spec())
    chunk = make_chunk(agent, np.random.default_rng(0))
    unreal = chunk.arrays["/masks"][:, 1:] == 0.0
    assert unreal.sum() > 3

    flat = []
    for reward in (0.0, 1000.0):
        chunk.arrays["/rewards"][:, :-1][unreal] = reward
        rows = agent.prepare(chunk, Normalizer())
        batch = next(minibatches(rows, np.random.default_rng(0), size=48, normalize=True))
        flat.append(agent.gradients(batch).flat.clone())

    torch.testing.assert_close(flat[0], flat[1], rtol=0.0, atol=0.0)


def test_a_chunk_without_real_rows_leaves_numbers_finite(make_spec: Any, make_agent: Any, make_chunk: Any) -> None:
    agent = make_agent(make_spec())
    chunk = make_chunk(agent, np.random.default_rng(0))
    chunk.arrays["/masks"][:] = 0.0

    learn(agent, chunk)

    assert np.isfinite(weights(agent)).all()
    assert all(math.isfinite(value) for value in agent.metrics.values())


def test_a_nonfinite_loss_stops_before_the_optimiser_moves_anything(
    make_spec: Any, make_agent: Any, make_chunk: Any
) -> None:
    agent = make_agent(make_spec())
    chunk = make_chunk(agent, np.random.default_rng(0))
    chunk.arrays["/agents/agent/artifacts/log_probs"][1, 2] = np.nan
    chunk.arrays["/masks"][:] = 1.0
    before = weights(agent)

    with pytest.raises(NonFiniteError, match="agents/agent: expected a finite gradient, found norm nan in update 0"):
        agent._memory.store(chunk)
        for batch in minibatches(agent.prepare(chunk, Normalizer()), np.random.default_rng(0), size=48, normalize=True):
            agent.apply(agent.gradients(batch).flat)

    np.testing.assert_array_equal(weights(agent), before)


def test_on_a_device_nobody_waits_for_a_bad_gradient_moves_nothing_and_is_reported_at_the_end(
    make_spec: Any, make_agent: Any, make_chunk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(make_spec(), update_epochs=2, model=node(MLPConfig, hidden_sizes=[16], activation="gelu"))
    chunk = make_chunk(agent, np.random.default_rng(0))
    monkeypatch.setattr(agent._flat, "clip_gradients", lambda _: torch.linalg.vector_norm(agent._flat.gradients))
    agent._waits, agent._path = False, agent._path._replace(device=agent._device)
    learn(agent, chunk)
    before = weights(agent)
    chunk.arrays["/agents/agent/artifacts/log_probs"][:] = np.nan

    with pytest.raises(
        NonFiniteError, match="found policy_loss nan, approx_kl nan, norm of the gradient nan"
    ) as caught:
        learn(agent, chunk)

    np.testing.assert_array_equal(weights(agent), before)
    kept = caught.value.crash_batch  # type: ignore[attr-defined]
    again = agent.gradients(agent.batch_of(kept.arrays)).losses.tolist()
    np.testing.assert_array_equal(again, list(kept.meta["figures"].values()))
    assert kept.meta["update"] == 1


def test_normalisers_reach_both_observations_and_rewards(make_spec: Any, make_agent: Any, make_chunk: Any) -> None:
    agent = make_agent(make_spec())
    chunk = make_chunk(agent, np.random.default_rng(0))
    statistics = Statistics(StatisticsConfig(observations=True, rewards=True), spec=agent.spec, num_envs=4)
    statistics.merge(chunk)
    normalizer = statistics.snapshot()

    rows = agent.prepare(chunk, normalizer)

    scaled = normalizer.observations({"observation": chunk.arrays["/observations/observation"][:, :-1]})["observation"]
    np.testing.assert_array_equal(rows.observations["observation"], scaled.swapaxes(0, 1).reshape(-1, 4))
    assert not np.array_equal(rows.returns, agent.prepare(chunk, Normalizer()).returns)


OWN_NETWORK = """
from dataclasses import dataclass
import torch
from torch import nn
from digideep.utility.node import Config, setting

@dataclass(frozen=True)
class OwnConfig(Config):
    builds = "own_network:Own"
    extra_axis: bool = setting(False, "whether values have one axis too many")

class Own(nn.Module):
    def __init__(self, config, *, observations, outputs):
        super().__init__()
        assert list(observations) == ["observation"]
        self.policy, self.value = nn.Linear(4, outputs), nn.Linear(4, 1)
        self.register_buffer("offset", torch.ones(4))
        self.config = config

    def forward(self, observations):
        inputs = observations["observation"] + self.offset
        values = self.value(inputs)
        return self.policy(inputs), values if self.config.extra_axis else values.squeeze(-1)
"""


@pytest.fixture
def own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    (tmp_path / "own_network.py").write_text(OWN_NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    yield {"model": {"type": "own_network:OwnConfig"}, "allowed": ("digideep", "own_network")}
    sys.modules.pop("own_network", None)


def test_a_network_of_ones_own_learns_on_the_fused_path(
    make_spec: Any, make_agent: Any, make_chunk: Any, own_network: dict[str, Any]
) -> None:
    agent = make_agent(make_spec("box"), **own_network)
    before = weights(agent)

    learn(agent, make_chunk(agent, np.random.default_rng(0)))

    assert agent.path.startswith("fused")
    assert agent.network_class == "custom"
    assert (weights(agent) != before).sum() == before.size - 4  # all but the buffer
    assert "network.offset" in agent.policy_state()["policy"]


def test_a_network_from_a_package_that_is_not_allowed_is_refused(
    make_spec: Any, make_agent: Any, own_network: dict[str, Any]
) -> None:
    with pytest.raises(TrustError, match=r"/agents/agent/model/type: .*'own_network'"):
        make_agent(make_spec(), model=own_network["model"])


def test_a_network_whose_values_have_another_shape_is_refused_when_it_is_built(
    make_spec: Any, make_agent: Any, own_network: dict[str, Any]
) -> None:
    own_network["model"]["extra_axis"] = True

    with pytest.raises(ConfigError, match=r"/agents/agent/model: .* values \(3,\)\).* found \(3, 3\), \(3, 1\)"):
        make_agent(make_spec(), **own_network)


def test_a_network_that_raises_is_refused_with_its_message(
    make_spec: Any, make_agent: Any, own_network: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"observations of shapes .*\(3, 5\)}, found that it raised RuntimeError"):
        make_agent(make_spec(size=5), **own_network)


def test_the_network_that_the_parameters_name_is_the_one_that_is_used(make_spec: Any, make_agent: Any) -> None:
    agent = make_agent(make_spec(), model=node(MLPConfig, hidden_sizes=[7, 5], shared=True))

    shapes = {name: array.shape for name, array in agent.policy_state()["policy"].items()}

    assert shapes["network.policy_layers.0.weight"] == (7, 4) and shapes["network.policy_head.weight"] == (3, 5)
    assert not any(name.startswith("network.value_layers") for name in shapes)


def test_parameters_without_a_network_are_refused(make_spec: Any, make_agent: Any) -> None:
    with pytest.raises(ConfigError, match="/agents/agent/model: expected a node with the key 'type'"):
        make_agent(make_spec(), model={})


def test_a_schedule_without_horizon_is_refused() -> None:
    with pytest.raises(ConfigError, match="PPOConfig/lr_horizon: expected frames above 0, since lr_final is 0"):
        PPOConfig(lr_final=0.0)


def test_a_learning_rate_that_has_reached_zero_is_said_once_by_its_leaf(
    make_spec: Any, make_agent: Any, make_chunk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent(make_spec(), lr=0.01, lr_final=0.0, lr_horizon=100)
    chunk = make_chunk(agent, np.random.default_rng(0))

    for frame in (0, 99, 100, 200):
        learn(agent, chunk, frame)

    assert caplog.messages == [
        "/agents/agent/lr_horizon: the learning rate is 0 from frame 100 on and nothing is learnt any more"
    ]


def test_replacing_the_memory_of_a_parameter_is_noticed(make_spec: Any, make_agent: Any, make_chunk: Any) -> None:
    agent = make_agent(make_spec())
    chunk = make_chunk(agent, np.random.default_rng(0))
    agent.policy.zero_grad(set_to_none=True)

    with pytest.raises(ShapeError, match="expected a view of the flat buffer"):
        learn(agent, chunk)


def test_loading_another_network_names_every_tensor_that_does_not_fit(make_spec: Any, make_agent: Any) -> None:
    agent = make_agent(make_spec())
    state = agent.policy_state()
    state["policy"]["network.policy_head.weight"] = np.zeros((5, 16), np.float32)
    state["policy"]["network.extra"] = np.zeros(1, np.float32)
    del state["policy"]["network.value_head.bias"]
    before = weights(agent)

    with pytest.raises(CheckpointError) as caught:
        agent.load_policy_state(state)

    assert str(caught.value) == (
        "agents.agent/policy: expected the tensors of this network, found others: missing network.value_head.bias; "
        "surplus network.extra; network.policy_head.weight has shape (5, 16) instead of (3, 16)"
    )
    np.testing.assert_array_equal(weights(agent), before)


def test_an_actor_does_not_change_when_the_agent_learns(make_spec: Any, make_agent: Any, make_chunk: Any) -> None:
    agent = make_agent(make_spec("box"))
    chunk = make_chunk(agent, np.random.default_rng(0))
    observations = {"observation": np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)}
    actor = agent.actor(Normalizer())
    before = actor.act(observations, deterministic=True)

    learn(agent, chunk)

    after, newer = (a.act(observations, deterministic=True) for a in (actor, agent.actor(Normalizer())))
    np.testing.assert_array_equal(after.actions[""], before.actions[""])
    assert not np.array_equal(newer.actions[""], before.actions[""])
    assert (actor.policy_version, agent.actor(Normalizer()).policy_version) == (0, 1)


def test_weights_depend_on_the_seed_and_not_on_the_global_generator(make_spec: Any, make_agent: Any) -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = weights(make_agent(make_spec(), seed=1))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(8)
    second, third = (weights(make_agent(make_spec(), seed=seed)) for seed in (1, 2))

    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, third)


def test_a_policy_alone_can_be_handed_to_another_agent(make_spec: Any, make_agent: Any, make_chunk: Any) -> None:
    spec = make_spec()
    teacher, pupil = make_agent(spec, seed=1), make_agent(spec, seed=2)
    before = pupil.state_dict()

    pupil.load_policy_state(teacher.policy_state())

    after = pupil.state_dict()
    assert first_difference(after["policy"], teacher.state_dict()["policy"]) == ""
    assert first_difference({**before, "policy": None}, {**after, "policy": None}) == ""


def test_every_agent_has_to_say_what_its_policy_is() -> None:
    assert {"policy_state", "load_policy_state"} <= Agent.__abstractmethods__
