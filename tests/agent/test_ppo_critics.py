"""PPO whose critic has layers or observations of its own: the same gradients on every path, the same actions."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from batch_forms import cast, in_numpy, in_torch

from digideep.agent.policy import Policy, build_policy
from digideep.agent.ppo.losses import LossOptions, derivatives
from digideep.agent.rollout.batches import RolloutBatch, minibatches
from digideep.agent.rollout.learner import fused_gradients, packed_gradients, reference_gradients
from digideep.agent.rollout.policy import LateRolloutActor
from digideep.errors import ConfigError
from digideep.model.config import MLPConfig, RNNConfig
from digideep.model.flat import FlatAdam, FlatParameters
from digideep.model.packed import PackedMLP
from digideep.spec import ArraySpec, EnvSpec
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

SPEC = EnvSpec(
    "Secrets-v0",
    {
        "secret": ArraySpec("box", (2,), "float32"),
        "shown": ArraySpec("box", (3,), "float32"),
        "gear": ArraySpec("discrete", (), "int64", n=(3,)),
    },
    {"": ArraySpec("box", (2,), "float32", low=(-1.0,), high=(1.0,))},
)
OPTIONS = LossOptions(0.2, 0.2, 0.5, 0.01)
MODELS: list[dict[str, Any]] = [
    {"critic_hidden_sizes": [7]},
    {"critic_hidden_sizes": []},
    {"hidden_sizes": [], "critic_hidden_sizes": [5, 4]},
    {"critic_observations": ["secret"], "activation": "relu"},
    {"critic_observations": ["secret", "gear"], "critic_hidden_sizes": [9]},
    {"layer_norm": True},
]


def chunk_of(agent: Any, rng: np.random.Generator, make_chunk: Any) -> Any:
    chunk = make_chunk(agent, rng, n_steps=40)
    # Written in place, before anybody acts on it: a discrete slot holds choices.
    chunk.arrays["/observations/gear"][...] = rng.integers(0, 3, chunk.arrays["/observations/gear"].shape)
    return chunk


@pytest.mark.parametrize("fields", MODELS, ids=str)
def test_every_path_ends_where_the_reference_does(fields: dict[str, Any], make_agent: Any, make_chunk: Any) -> None:
    agent = make_agent(SPEC, value_clip=OPTIONS.value_clip, entropy_coef=OPTIONS.entropy_coef)
    rollout = agent.prepare(chunk_of(agent, np.random.default_rng(3), make_chunk), Normalizer())
    rng = np.random.default_rng(0)
    batches = [in_torch(b) for _ in range(2) for b in minibatches(rollout, rng, size=32, normalize=True)]
    policy = build_policy(node(MLPConfig, **{"hidden_sizes": [8, 6], **fields}), SPEC, seed=1, where="/model")
    derive = functools.partial(derivatives, options=OPTIONS)

    def trained(path: str, dtype: torch.dtype) -> Policy:
        made = copy.deepcopy(policy).to(dtype)
        flat = FlatParameters(made)
        adam = FlatAdam(flat, eps=1e-5)
        gradients: dict[str, Callable[[RolloutBatch], Any]] = {
            "reference": lambda batch: reference_gradients(made, batch, loss=agent.loss),
            "fused": lambda batch: fused_gradients(made, in_numpy(batch), derive=derive),
        }
        if path == "packed":
            network = PackedMLP(made.network)  # type: ignore[arg-type]
            gradients["packed"] = lambda batch: packed_gradients(made, in_numpy(batch), network=network, derive=derive)
        for batch in batches:
            flat.gradients.zero_()
            gradients[path](cast(batch, dtype))
            flat.clip_gradients(0.5)
            adam.step(3e-3)
        return made

    assert len(batches) == 10
    for dtype, rtol, atol in ((torch.float64, 1e-9, 1e-13), (torch.float32, 1e-5, 1e-6)):
        expected = trained("reference", dtype)
        for path in ("fused",) if "layer_norm" in fields else ("fused", "packed"):
            found = trained(path, dtype)
            for name, parameter in expected.named_parameters():
                torch.testing.assert_close(found.get_parameter(name), parameter, rtol=rtol, atol=atol, msg=name)


@pytest.mark.parametrize("fields", [{}, {"layer_norm": True}], ids=["plain", "normalised"])
def test_what_only_the_critic_sees_changes_values_and_no_action(fields: dict[str, Any], make_agent: Any) -> None:
    model = node(MLPConfig, hidden_sizes=[8], critic_observations=["secret", "gear"], **fields)
    rng = np.random.default_rng(0)
    seen = {
        "secret": rng.standard_normal((6, 2)).astype(np.float32),
        "shown": rng.standard_normal((6, 3)).astype(np.float32),
        "gear": rng.integers(0, 3, 6),
    }
    other = {**seen, "secret": seen["secret"] + 1.0, "gear": (seen["gear"] + 1) % 3}
    found = []
    for observations in (seen, other):
        actor = make_agent(SPEC, model=model).actor(Normalizer())  # draws the same for the same seed
        assert isinstance(actor, LateRolloutActor)
        late = actor.choose(observations)
        found.append(
            {
                "late": late[""],
                "sampled": actor.act(observations).actions[""],
                "greedy": actor.act(observations, deterministic=True).actions[""],
                "values": actor.complete(observations, late)["values"],
            }
        )

    for how in ("late", "sampled", "greedy"):
        np.testing.assert_array_equal(found[0][how], found[1][how])
    assert (found[0]["values"] != found[1]["values"]).all()


def test_a_recurrent_policy_does_not_remember_what_only_the_critic_sees() -> None:
    model = node(RNNConfig, hidden_sizes=[8], units=4, critic_observations=["secret", "gear"])
    policy = build_policy(model, SPEC, seed=1, where="/model", is_recurrent=True)
    rows = {"secret": torch.randn(8, 2), "shown": torch.randn(8, 3), "gear": torch.zeros(8, dtype=torch.int64)}
    state, masks = {"hidden": torch.zeros(2, 4)}, torch.ones(4, 2)

    outputs, values, after = policy.network(rows, state, masks)
    others, worth, later = policy.network({**rows, "secret": rows["secret"] + 1.0}, state, masks)

    assert torch.equal(outputs, others) and torch.equal(after["hidden"], later["hidden"])
    assert (values != worth).all()


def test_an_unknown_slot_is_told_when_the_agent_is_made(make_agent: Any) -> None:
    with pytest.raises(ConfigError, match=r"critic_observations: expected some of \['gear', 'secret', 'shown'\], "):
        make_agent(SPEC, model=node(MLPConfig, critic_observations=["velocity"]))
