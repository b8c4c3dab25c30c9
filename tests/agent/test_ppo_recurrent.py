"""Recurrent PPO: what acting remembers, what learning sees of it, and both paths to the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from batch_forms import cast, in_torch
from noisy_world import RecurrentTriangle

from digideep.agent.crash import Origin
from digideep.agent.policy import build_policy
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig, RecurrentPPOConfig
from digideep.agent.ppo.recurrent import RecurrentPPOAgent
from digideep.agent.ppo.recurrent_policy import RecurrentPPOActor
from digideep.agent.ppo.sequences import sequence_minibatches
from digideep.agent.rollout.batches import RolloutBatch
from digideep.agent.rollout.crash import batch_of, crash_batch
from digideep.agent.rollout.policy import LateRolloutActor
from digideep.errors import ConfigError, NonFiniteError
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig, RNNConfig
from digideep.model.heads import Evaluation
from digideep.params import cartpole_hidden_ppo_recurrent as preset
from digideep.types import Chunk, Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

Array = np.ndarray[Any, Any]

MODELS: dict[str, dict[str, Any]] = {
    "gru": {"cell": "gru"},
    "lstm": {"cell": "lstm"},
    "gru in torch": {"cell": "gru", "activation": "gelu"},
}
LENGTHS = {"lengths": [1, 4, 3, 1, 1, 7, 2]}


def step_by_step(agent: Any, chunk: Chunk) -> dict[str, Array]:
    """Walk over a chunk with the network alone, from the hidden state that it began with."""
    arrays, network = chunk.arrays, agent.policy.network
    masks = torch.from_numpy(np.array(arrays["/masks"]))
    held = {
        key: torch.from_numpy(np.array(arrays[f"/agents/agent/hidden_state/{key}"][:, 0]))
        for key in network.hidden_shapes
    }
    found: dict[str, list[Array]] = {"values": [], **{key: [] for key in held}}
    for t in range(masks.shape[1]):
        for key, value in held.items():
            found[key].append(value.numpy())
        rows = torch.from_numpy(np.array(arrays["/observations/observation"][:, t]))
        held = {key: torch.where(masks[:, t, None] == 0.0, 0.0, value) for key, value in held.items()}
        with torch.no_grad():
            _, values, held = network({"observation": rows}, held, torch.ones(1, len(rows)))
        found["values"].append(values.numpy())
    return {key: np.stack(rows, axis=1) for key, rows in found.items()}


@pytest.mark.parametrize(
    ("model", "explorer"),
    [
        *((name, {}) for name in MODELS),
        *((name, {"act_groups": 2}) for name in MODELS),
        ("lstm", {"act_groups": 2, "num_workers": 2}),
    ],
    ids=str,
)
def test_acting_keeps_the_state_before_each_step_and_forgets_it_where_episodes_begin(
    model: str, explorer: dict[str, Any]
) -> None:
    with RecurrentTriangle(env_kwargs=LENGTHS, model=MODELS[model], explorer=explorer) as triangle:
        for number in range(3):
            chunk = triangle.sample()
            expected = step_by_step(triangle.agent, chunk)

            begun = chunk.arrays["/agents/agent/hidden_state/hidden"][:, 0]
            assert (number > 0) == bool(begun.any())  # what the last chunk ended with
            for key in triangle.agent.policy.hidden_shapes:
                stored = chunk.arrays[f"/agents/agent/hidden_state/{key}"]
                np.testing.assert_allclose(stored, expected[key], rtol=1e-4, atol=1e-5)
            values = chunk.arrays["/agents/agent/artifacts/values"][:, :-1]
            np.testing.assert_allclose(values, expected["values"][:, :-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ends", ["truncated", "terminated"])
@pytest.mark.parametrize("model", MODELS)
def test_advantages_are_those_of_values_that_remember_up_to_the_last_observation_of_an_episode(
    model: str, ends: str
) -> None:
    fields: dict[str, Any] = {"model": MODELS[model], "gamma": 0.9, "gae_lambda": 0.0}
    with RecurrentTriangle(env_kwargs={**LENGTHS, "ends": ends}, **fields) as triangle:
        found = []
        for _ in range(3):
            chunk = triangle.sample()
            arrays = {key: np.array(array) for key, array in chunk.arrays.items()}
            values = step_by_step(triangle.agent, chunk)["values"]

            rollout = triangle.agent.prepare(chunk, Normalizer())

            real, ended = arrays["/masks"][:, 1:] == 1.0, arrays["/terminations"][:, :-1] == 1.0
            following = np.where(ended, 0.0, values[:, 1:])
            expected = np.where(real, arrays["/rewards"][:, :-1] + 0.9 * following - values[:, :-1], 0.0)
            np.testing.assert_allclose(rollout.figures[2].reshape(-1, 4).T, expected, rtol=1e-4, atol=1e-5)
            found.append(arrays["/masks"][0].astype(int).tolist())
            assert ended.any() == (ends == "terminated")

    # Episodes of one step, at the beginning too, and one that ends with the last step of a chunk: row 1 opens another.
    assert found[0] == [0, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1]
    assert found[1] == [1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1]


@pytest.mark.parametrize("length", [1, 3, 4, 12])
@pytest.mark.parametrize("model", MODELS)
def test_before_its_first_step_learning_says_what_acting_said_for_every_row(model: str, length: int) -> None:
    fields = {"sequence_length": length, "minibatch_size": 2 * length, "normalize_advantage": False}
    with RecurrentTriangle(env_kwargs=LENGTHS, model=MODELS[model], **fields) as triangle:
        for _ in range(2):
            chunk = triangle.sample()
        assert (chunk.arrays["/masks"][:, 1:-1] == 0.0).any()
        agent, values = triangle.agent, np.array(chunk.arrays["/agents/agent/artifacts/values"][:, :-1])
        rollout = agent.prepare(chunk, Normalizer())
        batches = list(sequence_minibatches(rollout, np.random.default_rng(0), size=2 * length, normalize=False))

    with torch.no_grad():
        for batch in batches:
            there = in_torch(batch)
            found = agent.policy.evaluate(there.observations, there.actions, there.sequences)
            torch.testing.assert_close(found.log_prob, there.log_probs, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(found.values, there.values, rtol=1e-4, atol=1e-5)
    assert [len(batch.values) for batch in batches] == [2 * length] * (48 // (2 * length))
    every = np.sort(np.concatenate([batch.values for batch in batches]))
    np.testing.assert_array_equal(every, np.sort(values.ravel()))  # each row once


def test_the_last_minibatch_of_an_epoch_may_have_fewer_sequences_and_no_row_is_left_out() -> None:
    with RecurrentTriangle(env_kwargs=LENGTHS, sequence_length=4, minibatch_size=20) as triangle:
        rollout = triangle.agent.prepare(triangle.sample(), Normalizer())
        batches = list(triangle.agent.minibatches(rollout))

    assert [len(batch.shares) for batch in batches] == [20, 20, 8] * 4
    assert all(batch.sequences.masks.shape == (4, len(batch.shares) // 4) for batch in batches)
    orders = {tuple(batch.values) for batch in batches[::3]}
    assert len(orders) == 4  # another order in every epoch


def test_rows_that_are_not_real_weigh_nothing_but_pass_the_state_on() -> None:
    with RecurrentTriangle(env_kwargs=LENGTHS, minibatch_size=48, sequence_length=12) as triangle:
        chunk = triangle.sample()
        unreal = chunk.arrays["/masks"][:, 1:] == 0.0
        assert unreal.sum() > 3
        gradients = []
        for reward in (0.0, 1000.0):
            chunk.arrays["/rewards"][:, :-1][unreal] = reward
            rollout = triangle.agent.prepare(chunk, Normalizer())
            batch = next(sequence_minibatches(rollout, np.random.default_rng(0), size=48, normalize=True))
            gradients.append(triangle.agent.gradients(batch).flat.clone())

    assert torch.equal(*gradients)
    assert gradients[0].any()


class OnReference(RecurrentPPOAgent):
    """The standard losses, on the path of those that are overridden."""

    def policy_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        return super().policy_loss(batch, evaluated)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fields", [{}, {"value_clip": None, "entropy_coef": 0.0}, {"clip_param": 0.01}], ids=str)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_ten_updates_end_alike_on_both_paths(cell: str, fields: dict[str, Any], dtype: torch.dtype) -> None:
    with RecurrentTriangle(env_kwargs=LENGTHS, model={"cell": cell}, n_steps=40, sequence_length=8) as triangle:
        triangle.sample()
        chunk = triangle.sample()
        spec, rollout = triangle.explorer.spec, triangle.agent.prepare(chunk, Normalizer())
    agents = []
    for cls in (RecurrentPPOAgent, OnReference):
        config = RecurrentPPOConfig(
            model=node(RNNConfig, cell=cell, hidden_sizes=[8], units=6), lr=3e-3, sequence_length=8,
            minibatch_size=16, **fields,
        )  # fmt: skip
        memory = RollBuffer(RollBufferConfig(), name="train")
        agents.append(
            cls(config, name="agent", spec=spec, memory=memory, device="cpu", seed=1, monitor=lambda name, value: None)
        )
        if dtype is torch.float64:
            agents[-1].policy.double()
            agents[-1]._flat = type(agents[-1]._flat)(agents[-1].policy)
            agents[-1]._optimiser = agents[-1].make_optimiser()
    rng = np.random.default_rng(0)
    batches = [cast(in_torch(batch), dtype) for batch in sequence_minibatches(rollout, rng, size=16, normalize=True)]

    for batch in batches:
        figures = []
        for agent in agents:
            output = agent.gradients(batch)
            agent.apply(output.flat)
            figures.append(torch.as_tensor(output.losses))
        torch.testing.assert_close(figures[0], figures[1], rtol=1e-4, atol=1e-5)

    assert [agent.path.partition(":")[0] for agent in agents] == ["fused", "reference"]
    assert len(batches) == 10
    rtol, atol = (1e-9, 1e-12) if dtype is torch.float64 else (1e-5, 1e-6)
    fresh = build_policy(agents[0].config.model, spec, seed=0, where="/model", is_recurrent=True)
    assert [name for name, _ in fresh.named_parameters()] == [name for name, _ in agents[0].policy.named_parameters()]
    for name, parameter in agents[1].policy.named_parameters():
        torch.testing.assert_close(agents[0].policy.get_parameter(name), parameter, rtol=rtol, atol=atol, msg=name)


def test_learning_moves_every_weight_and_reports_every_figure() -> None:
    with RecurrentTriangle(env_kwargs=LENGTHS, model={"cell": "lstm"}) as triangle:
        told: dict[str, float] = {}
        triangle.agent._monitor = told.__setitem__
        before = triangle.agent.publish()[1]

        triangle.train(1)

        assert (triangle.agent.publish()[1] != before).float().mean() > 0.9
    assert sorted(told) == [
        f"update/agent/{name}"
        for name in (
            "approx_kl", "clip_fraction", "entropy", "explained_variance", "grad_norm", "lr", "policy_loss",
            "value_loss",
        )
    ]  # fmt: skip


def test_a_minibatch_of_a_crash_keeps_its_sequences_and_gives_the_same_gradient() -> None:
    with RecurrentTriangle(env_kwargs=LENGTHS, model={"cell": "lstm"}) as triangle:
        agent = triangle.agent
        rollout = agent.prepare(triangle.sample(), Normalizer())
        batch = next(agent.minibatches(rollout))
        output = agent.gradients(batch)
        expected = output.flat.clone()

        origin = Origin("agent", agent.config, agent.spec, 0)
        kept = crash_batch(batch, output.losses, policy=agent.policy, origin=origin, names=agent.loss_names)
        again = agent.batch_of(kept.arrays)

        assert set(kept.arrays) >= {"/batch/sequences/masks", "/batch/sequences/hidden_state/cell"}
        assert torch.equal(agent.gradients(again).flat, expected)
        there = batch_of(kept.arrays, spec=agent.spec, device=torch.device("cpu"))
        assert there.sequences is not None and isinstance(there.sequences.masks, torch.Tensor)


def test_a_bad_loss_is_told_with_its_sequences() -> None:
    with RecurrentTriangle(env_kwargs=LENGTHS) as triangle:
        chunk = triangle.sample()
        chunk.arrays["/agents/agent/artifacts/log_probs"][:] = np.nan

        with pytest.raises(NonFiniteError, match="found policy_loss nan") as caught:
            triangle.agent.update(Normalizer(), Counters(env_steps=48))

    assert "/batch/sequences/masks" in caught.value.crash_batch.arrays  # type: ignore[attr-defined]


def test_evaluation_is_row_by_row_and_an_actor_without_state_begins_an_episode() -> None:
    with RecurrentTriangle(env_kwargs=LENGTHS, model={"cell": "lstm"}) as triangle:
        actor = triangle.agent.actor(Normalizer())
    rng = np.random.default_rng(0)
    seen = rng.standard_normal((5, 3)).astype(np.float32)
    state = {key: rng.standard_normal((5, 6)).astype(np.float32) for key in ("hidden", "cell")}
    masks = np.array([1, 0, 1, 1, 0], np.float32)

    whole = actor.act({"observation": seen}, state, masks, deterministic=True)
    fresh = actor.act({"observation": seen}, deterministic=True)
    begun = actor.act({"observation": seen}, state, np.zeros(5, np.float32), deterministic=True)

    assert isinstance(actor, RecurrentPPOActor) and not isinstance(actor, LateRolloutActor)
    assert not hasattr(actor, "complete")
    for i in range(5):
        row = slice(i, i + 1)
        alone = actor.act(
            {"observation": seen[row]}, {key: part[row] for key, part in state.items()}, masks[row], deterministic=True
        )
        for one, many in ((alone.artifacts, whole.artifacts), (alone.hidden_state, whole.hidden_state)):
            assert one is not None and many is not None
            for key, part in one.items():
                np.testing.assert_array_equal(part, many[key][row])
    for key in ("hidden", "cell"):
        assert fresh.hidden_state is not None and begun.hidden_state is not None and whole.hidden_state is not None
        np.testing.assert_array_equal(begun.hidden_state[key], fresh.hidden_state[key])
        np.testing.assert_array_equal(whole.hidden_state[key][1], fresh.hidden_state[key][1])
        assert (whole.hidden_state[key][0] != fresh.hidden_state[key][0]).all()


def test_lengths_that_do_not_divide_are_one_line() -> None:
    with pytest.raises(ConfigError, match="sequence_length: expected a divisor of n_steps, which is 128, found 48"):
        preset.gen_params({**preset.cpanel, "sequence_length": 48})
    with (
        RecurrentTriangle(n_steps=10) as triangle,
        pytest.raises(ConfigError, match="/agents/agent/sequence_length: expected a divisor of n_steps, which is 10"),
    ):
        triangle.train(1)


def test_a_chunk_shorter_than_a_sequence_is_one_and_a_minibatch_holds_at_least_one() -> None:
    with RecurrentTriangle(env_kwargs=LENGTHS, n_steps=6, sequence_length=64, minibatch_size=4) as triangle:
        rollout = triangle.agent.prepare(triangle.sample(), Normalizer())
        batches = list(sequence_minibatches(rollout, np.random.default_rng(0), size=4, normalize=True))
        triangle.train(1)

    assert [batch.sequences.masks.shape for batch in batches if batch.sequences] == [(6, 1)] * 4
    assert preset.gen_params({**preset.cpanel, "n_steps": 24})["agents"]["agent"]["sequence_length"] == 64


def test_networks_and_agents_that_do_not_belong_together_are_one_line(make_spec: Any) -> None:
    memory = RollBuffer(RollBufferConfig(), name="train")
    others: dict[str, Any] = {"name": "agent", "spec": make_spec(), "memory": memory, "device": "cpu", "seed": 1}

    with pytest.raises(ConfigError, match="/agents/agent/model/type: expected a network without hidden state, found A"):
        PPOAgent(PPOConfig(model=node(RNNConfig)), monitor=lambda name, value: None, **others)
    with pytest.raises(ConfigError, match="/agents/agent/model/type: expected a network with a hidden state, which hi"):
        RecurrentPPOAgent(RecurrentPPOConfig(model=node(MLPConfig)), monitor=lambda name, value: None, **others)
