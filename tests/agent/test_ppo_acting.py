from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from digideep.agent.policy import Policy
from digideep.agent.rollout.policy import FrozenPolicy, RolloutActor
from digideep.environment.config import StatisticsConfig
from digideep.errors import NonFiniteError
from digideep.model.heads import ActionHeads
from digideep.spec import ArraySpec
from digideep.types import Chunk, ChunkMeta
from digideep.utility.statistics import Normalizer, Statistics


class Own(nn.Module):
    """Sizes and activations whose bits depend on the batch in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(11, 101), nn.SiLU(), nn.Linear(101, 37), nn.ELU())
        self.policy, self.value = nn.Linear(37, 3), nn.Linear(37, 1)

    def forward(self, observations: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(observations["observation"])
        return self.policy(hidden), self.value(hidden).squeeze(-1)


@pytest.mark.parametrize("stochastic", [True, False])
def test_rows_of_any_network_have_the_same_bits_in_batches_of_1_2_3_and_8(stochastic: bool) -> None:
    torch.manual_seed(0)
    policy = Policy(Own(), ActionHeads({"": ArraySpec("box", (3,), "float32")}), log_std_init=0.0)
    rng = np.random.default_rng(0)
    actor = RolloutActor(FrozenPolicy(policy), normalizer=Normalizer(), rng=rng, name="agent", policy_version=0)
    raw = rng.standard_normal((24, 11)).astype(np.float32)

    def act(rows: slice) -> np.ndarray[Any, Any]:
        generators = [np.random.default_rng(seed) for seed in range(24)][rows] if stochastic else None
        output = actor.act({"observation": raw[rows]}, deterministic=not stochastic, generators=generators)
        return np.column_stack([output.actions[""], output.artifacts["log_probs"], output.artifacts["values"]])

    whole = act(slice(0, 24))
    for size in (1, 2, 3, 8):
        for start in range(0, 24 - size + 1, size):
            np.testing.assert_array_equal(act(slice(start, start + size)), whole[start : start + size])


@pytest.mark.parametrize("actions", ["discrete", "multi_discrete", "multi_binary", "box", "dict"])
@pytest.mark.parametrize("stochastic", [True, False])
def test_rows_of_a_standard_network_have_the_same_bits_in_every_batch(
    actions: str, stochastic: bool, make_spec: Any, make_agent: Any
) -> None:
    actor = make_agent(make_spec(actions)).actor(Normalizer())
    raw = np.random.default_rng(0).standard_normal((24, 4)).astype(np.float32)

    def act(rows: slice) -> list[np.ndarray[Any, Any]]:
        generators = [np.random.default_rng(seed) for seed in range(24)][rows] if stochastic else None
        output = actor.act({"observation": raw[rows]}, deterministic=not stochastic, generators=generators)
        return [*output.actions.values(), *output.artifacts.values()]

    whole = act(slice(0, 24))
    for size in (1, 2, 3, 8):
        for start in range(0, 24 - size + 1, size):
            for part, all_rows in zip(act(slice(start, start + size)), whole, strict=True):
                np.testing.assert_array_equal(part, all_rows[start : start + size])


def test_actions_and_artifacts_have_the_shapes_and_dtypes_of_the_slab(make_spec: Any, make_agent: Any) -> None:
    agent = make_agent(make_spec("dict"))
    actor = agent.actor(Normalizer())

    output = actor.act({"observation": np.zeros((3, 4), np.float32)})

    shapes = {slot: (array.shape, str(array.dtype)) for slot, array in output.actions.items()}
    assert shapes == {
        "arm": ((3, 2, 1), "float32"),
        "gear": ((3,), "int64"),
        "pedal": ((3,), "float32"),
    }
    assert {name: (a.shape, str(a.dtype)) for name, a in output.artifacts.items()} == {
        "log_probs": ((3,), "float32"),
        "values": ((3,), "float32"),
    }
    assert set(actor.artifacts) == set(output.artifacts)
    assert output.hidden_state is None and actor.initial_state(3) is None


def test_the_raw_sample_is_not_clipped_to_the_bounds_of_the_space(make_spec: Any, make_agent: Any) -> None:
    actor = make_agent(make_spec("box"), log_std_init=2.0).actor(Normalizer())

    actions = actor.act({"observation": np.zeros((50, 4), np.float32)}).actions[""]

    assert np.abs(actions).max() > 2.0


def test_the_normaliser_is_inside_the_actor(make_spec: Any, make_agent: Any) -> None:
    agent = make_agent(make_spec("box"))
    statistics = Statistics(StatisticsConfig(observations=True), spec=agent.spec, num_envs=1)
    rows = np.random.default_rng(0).standard_normal((1, 9, 4)).astype(np.float32) * 3.0 + 1.0
    arrays = {"/observations/observation": rows, "/masks": np.ones((1, 9), np.float32)}
    statistics.merge(Chunk(arrays, ChunkMeta(8, 8, 0, 0)))
    normalizer, raw = statistics.snapshot(), {"observation": rows[0]}

    outside = agent.actor(Normalizer()).act(normalizer.observations(raw), deterministic=True)
    inside = agent.actor(normalizer).act(raw, deterministic=True)

    np.testing.assert_array_equal(inside.actions[""], outside.actions[""])
    assert agent.actor(normalizer).statistics_version == 1


def test_a_policy_that_gives_nan_never_acts(make_spec: Any, make_agent: Any) -> None:
    agent = make_agent(make_spec("box"))
    actor = agent.actor(Normalizer())
    observations = np.zeros((3, 4), np.float32)
    observations[1, 2] = np.nan

    with pytest.raises(NonFiniteError, match="agents/agent: expected finite policy outputs, found nan in row 1"):
        actor.act({"observation": observations})
