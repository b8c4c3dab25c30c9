"""SAC's faster paths against autograd through the losses as they are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from digideep.agent.replay.transitions import Transitions
from digideep.agent.sac.agent import SACAgent
from digideep.agent.sac.config import SACConfig
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.model.config import ActorCriticsConfig
from digideep.spec import ArraySpec, EnvSpec
from digideep.utility.node import node

OBSERVATIONS = {
    "seen": ArraySpec("box", (3,), "float32"),
    "hidden": ArraySpec("box", (2,), "float32"),
}
BOX = ArraySpec("box", (2,), "float32", low=(-1.0,), high=(1.0,))
ROWS = 32

OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "tanh": {"activation": "tanh"},
    "layer norm": {"layer_norm": True},
    "layer norm, tanh": {"layer_norm": True, "activation": "tanh"},
    "critics of their own": {"critic_hidden_sizes": [24], "critic_observations": ["hidden"]},
    "fixed temperature": {"learn_temperature": False, "temperature": 0.2},
    "clipped": {"max_grad_norm": 0.05},
    "other rates": {"critic_lr": 3e-3, "temperature_lr": 1e-2, "target_entropy": -0.5},
    "no hidden layer": {"hidden_sizes": []},
}


class Reference(SACAgent):
    """The same losses, overridden by themselves, which puts an agent on the reference path."""

    def critic_loss(self, batch: Any, values: torch.Tensor) -> torch.Tensor:
        return super().critic_loss(batch, values)


def make(options: Mapping[str, Any], *, cls: type[SACAgent] = SACAgent, actions: Mapping[str, ArraySpec]) -> SACAgent:
    options = {"hidden_sizes": [16, 16], "activation": "relu", **options}
    names = {field.name for field in dataclasses.fields(ActorCriticsConfig)}
    model = node(ActorCriticsConfig, **{key: value for key, value in options.items() if key in names})
    config = SACConfig(model=model, lr=1e-3, **{key: value for key, value in options.items() if key not in names})
    return cls(
        config,
        name="agent",
        spec=EnvSpec("Made-v0", OBSERVATIONS, actions),
        memory=RingBuffer(RingBufferConfig(capacity=10), name="train"),
        device="cpu",
        seed=3,
        monitor=lambda name, value: None,
    )


def made_transitions(actions: Mapping[str, ArraySpec], rng: np.random.Generator) -> Transitions:
    def observations() -> dict[str, np.ndarray[Any, Any]]:
        return {slot: rng.standard_normal((ROWS, *s.shape)).astype(s.dtype) for slot, s in OBSERVATIONS.items()}

    return Transitions(
        observations=observations(),
        actions={slot: rng.uniform(-1, 1, (ROWS, *s.shape)).astype(s.dtype) for slot, s in actions.items()},
        rewards=rng.standard_normal(ROWS).astype(np.float32),
        discounts=np.where(rng.random(ROWS) < 0.2, 0.0, 0.99).astype(np.float32),
        following=observations(),
        importance=rng.uniform(0.2, 1.0, ROWS).astype(np.float32),
        is_prioritized=True,
        indices=np.arange(ROWS),
        generations=np.zeros(ROWS, np.int64),
    )


def learn(agent: SACAgent, actions: Mapping[str, ArraySpec]) -> list[list[float]]:
    rng = np.random.default_rng(8)
    figures = []
    for _ in range(10):
        batch = agent.make_batch(made_transitions(actions, rng))
        for part in agent.due():
            output = agent.gradients(batch, part)
            figures.append([*output.losses.tolist(), agent.apply(output.flat, part)])
        agent.follow()
    return figures


def weights(agent: SACAgent) -> dict[str, np.ndarray[Any, Any]]:
    targets = {f"target/{name}": value for name, value in agent.targets["critic"].state_dict().items()}
    return {name: value.numpy().copy() for name, value in {**agent.policy.state_dict(), **targets}.items()}


@pytest.fixture(params=["float64", "float32"])
def tolerance(request: pytest.FixtureRequest) -> Iterator[dict[str, float]]:
    """Build networks in one of the types; give how near two ways of computing the same have to come."""
    torch.set_default_dtype(getattr(torch, request.param))
    yield {"rtol": 1e-9, "atol": 1e-12} if request.param == "float64" else {"rtol": 1e-5, "atol": 1e-6}
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "fused"])
def test_ten_updates_equal_those_of_the_reference(
    options: Mapping[str, Any], is_packed: bool, tolerance: Mapping[str, float]
) -> None:
    actions = {"": BOX}
    others = options if is_packed else {**options, "activation": "elu"}
    agent, reference = make(others, actions=actions), make(others, cls=Reference, actions=actions)

    found, expected = learn(agent, actions), learn(reference, actions)

    assert agent.path.startswith("packed" if is_packed else "fused")
    assert reference.path == "reference: Reference overrides critic_loss"
    for name, value in weights(reference).items():
        np.testing.assert_allclose(weights(agent)[name], value, **tolerance, err_msg=name)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_several_slots_of_boxes_are_one_vector() -> None:
    actions = {"arm": BOX, "grip": ArraySpec("box", (), "float64", low=(-1.0,), high=(1.0,))}
    agent, reference = make({}, actions=actions), make({}, cls=Reference, actions=actions)

    learn(agent, actions)
    learn(reference, actions)

    assert agent.vector.size == 3
    for name, value in weights(reference).items():
        np.testing.assert_allclose(weights(agent)[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
