"""DQN's faster paths against autograd through the loss as it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from dqn_agents import made_transitions, make_dqn

from digideep.agent.dqn.agent import DQNAgent

OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "tanh": {"activation": "tanh"},
    "not double": {"double": False},
    "dueling": {"dueling": True},
    "noisy": {"noisy": True},
    "noisy and dueling": {"noisy": True, "dueling": True, "activation": "tanh", "noisy_deviation": 2.0},
    "layer norm": {"layer_norm": True},
    "layer norm and dueling": {"layer_norm": True, "dueling": True, "activation": "tanh"},
    "clipped": {"max_grad_norm": 0.05},
    "not clipped": {"max_grad_norm": None},
    "followed slowly": {"target_interval": 1, "tau": 0.1},
    "copied": {"target_interval": 3},
    "no hidden layer": {"hidden_sizes": []},
    "no hidden layer, noisy and dueling": {"hidden_sizes": [], "noisy": True, "dueling": True},
}


class Reference(DQNAgent):
    """The same loss, overridden by itself, which puts an agent on the reference path."""

    def value_loss(self, batch: Any, values: torch.Tensor) -> torch.Tensor:
        return super().value_loss(batch, values)


def learn(agent: DQNAgent) -> list[list[float]]:
    """Take ten gradient steps; return the figures, norms and priorities of each."""
    rng = np.random.default_rng(8)
    figures = []
    for _ in range(10):
        batch = agent.make_batch(made_transitions(rng))
        output = agent.gradients(batch, "policy")
        assert output.priorities is not None
        figures.append([*output.losses.tolist(), agent.apply(output.flat, "policy"), *np.abs(output.priorities)])
        agent.follow()
        agent.steps += 1
    return figures


def weights(agent: DQNAgent) -> dict[str, np.ndarray[Any, Any]]:
    targets = {f"target/{name}": value for name, value in agent.targets["policy"].state_dict().items()}
    return {name: value.numpy().copy() for name, value in {**agent.policy.state_dict(), **targets}.items()}


@pytest.fixture(params=["float64", "float32"])
def tolerance(request: pytest.FixtureRequest) -> Iterator[dict[str, float]]:
    """Build networks in one of the types; give how near two ways of computing the same have to come."""
    torch.set_default_dtype(getattr(torch, request.param))
    yield {"rtol": 1e-9, "atol": 1e-12} if request.param == "float64" else {"rtol": 1e-5, "atol": 1e-6}
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "fused"])
def test_ten_dqn_updates_equal_those_of_the_reference(
    options: Mapping[str, Any], is_packed: bool, tolerance: Mapping[str, float]
) -> None:
    others = options if is_packed else {**options, "activation": "elu"}
    agent, reference = make_dqn(others), make_dqn(others, cls=Reference)
    before = weights(agent)

    found, expected = learn(agent), learn(reference)

    assert agent.path.startswith("packed" if is_packed else "fused")
    assert reference.path == "reference: Reference overrides value_loss"
    for name, value in weights(reference).items():
        np.testing.assert_allclose(weights(agent)[name], value, **tolerance, err_msg=name)
        assert not np.array_equal(value, before[name]) or name.startswith("target/")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_noise_and_normalisation_together_are_left_to_torch() -> None:
    options = {"noisy": True, "layer_norm": True, "dueling": True}
    agent, reference = make_dqn(options), make_dqn(options, cls=Reference)

    learn(agent)
    learn(reference)

    assert agent.path.startswith("fused")
    for name, value in weights(reference).items():
        np.testing.assert_allclose(weights(agent)[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_every_weight_of_a_noisy_dueling_network_learns() -> None:
    agent = make_dqn({"noisy": True, "dueling": True})
    before = weights(agent)

    learn(agent)

    assert {name for name, value in weights(agent).items() if np.array_equal(value, before[name])} == {
        name for name in before if name.startswith("target/")  # they are copied later
    }  # fmt: skip
