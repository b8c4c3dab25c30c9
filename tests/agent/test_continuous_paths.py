"""Closed-form gradients of methods with real actions against autograd through the losses as they are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from made_agents import METHODS, fill, made, on_reference, parameters, updated

from digideep.utility.statistics import Normalizer

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "ddpg": [
        {},
        {"critic_weight_decay": 0.01, "max_grad_norm": 0.1, "n_step": 3, "last_bound": None},
        {"critic_lr": 3e-3, "lr_final": 1e-4, "lr_horizon": 60, "tau": 0.5, "model": {"activation": "tanh"}},
        {"model": {"layer_norm": True, "activation": "tanh", "hidden_sizes": [9]}, "critic_weight_decay": 0.1},
        {"model": {"hidden_sizes": [], "critic_hidden_sizes": [7], "critic_observations": ["goal"]}},
    ],
    "td3": [
        {},
        {"policy_delay": 1, "target_noise": 0.0, "max_grad_norm": 0.1, "n_step": 3},
        {"policy_delay": 3, "target_noise": 2.0, "tau": 0.5, "model": {"activation": "tanh"}},
        {"model": {"layer_norm": True, "hidden_sizes": [9]}, "critic_weight_decay": 0.1, "last_bound": 3e-3},
        {"model": {"hidden_sizes": [], "critic_hidden_sizes": [7], "critic_observations": ["goal"]}},
    ],
    "sac_value": [
        {},
        {"reward_scale": 5.0, "max_grad_norm": 0.1, "n_step": 3},
        {"critic_lr": 3e-3, "lr_final": 1e-4, "lr_horizon": 60, "tau": 0.5, "model": {"activation": "tanh"}},
        {"model": {"layer_norm": True, "hidden_sizes": [9]}},
        {"model": {"hidden_sizes": [], "critic_hidden_sizes": [7], "critic_observations": ["goal"]}},
    ],
}
CASES = [(method, options) for method, every in OPTIONS.items() for options in every]
TOLERANCES = {torch.float64: (1e-9, 1e-13), torch.float32: (1e-5, 1e-6)}


def after_ten_updates(method: str, options: dict[str, Any], *, dtype: torch.dtype, path: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        if path == "fused":
            patch.setattr("digideep.agent.continuous.networks.is_packable", lambda *networks: False)
        cls = on_reference(method) if path == "reference" else METHODS[method].agent
        # An epsilon above the rounding of gradients: Adam divides by their size.
        agent = made(method, cls=cls, dtype=dtype, adam_eps=1e-5, **options)
    assert agent.path.startswith(path)
    fill(agent)
    updated(agent, 10)
    return agent


def assert_equal(found: Any, expected: Any, *, rtol: float, atol: float) -> None:
    one, other = parameters(found), parameters(expected)
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=rtol, atol=atol, err_msg=name)
    assert found.told.keys() == expected.told.keys()
    for name, value in found.told.items():
        assert value == pytest.approx(expected.told[name], rel=20 * rtol, abs=20 * atol), name


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("method", "options"), CASES, ids=str)
def test_closed_form_gradients_equal_the_losses_after_ten_updates(
    method: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    rtol, atol = TOLERANCES[dtype]

    expected = after_ten_updates(method, options, dtype=dtype, path="reference")

    moved = parameters(expected)
    start = parameters(made(method, dtype=dtype, **options))
    assert all(np.abs(array - start[name]).max() > 1e-6 for name, array in moved.items() if name.startswith("critic/"))
    for path in ("fused", "packed"):
        found = after_ten_updates(method, options, dtype=dtype, path=path)
        assert_equal(found, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("method", METHODS)
def test_priorities_are_the_same_on_every_path(method: str) -> None:
    options = {"prioritized": True, "priority_alpha": 0.5, "priority_beta": 0.6, "n_step": 2}

    expected = after_ten_updates(method, options, dtype=torch.float64, path="reference")

    assert len(np.unique(priorities(expected))) > 20
    for path in ("fused", "packed"):
        found = after_ten_updates(method, options, dtype=torch.float64, path=path)
        assert_equal(found, expected, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(priorities(found), priorities(expected), rtol=1e-7)


def priorities(agent: Any) -> Any:
    """Return all arrays of numbers in the state of a memory beside its rows, one after another."""
    state = {key: part for key, part in agent.memory.state_dict().items() if key not in ("cursor", "segments")}
    found = [np.ravel(np.asarray(leaf, np.float64)) for leaf in leaves(state)]
    return np.concatenate(found)


def leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree.values() for leaf in leaves(part)] if isinstance(tree, dict) else [tree]


@pytest.mark.parametrize("method", METHODS)
def test_activations_that_numpy_does_not_have_learn_on_the_fused_path(method: str) -> None:
    expected = made(method, cls=on_reference(method), adam_eps=1e-5, model={"activation": "gelu"})
    found = made(method, adam_eps=1e-5, model={"activation": "gelu"})
    for agent in (expected, found):
        fill(agent)
        updated(agent, 10)

    assert found.path == "fused: closed-form gradients of the losses, autograd through the networks only"
    assert_equal(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", ["critic_loss", "policy_loss"])
def test_an_overridden_loss_is_used_and_the_path_says_so(method: str, loss: str) -> None:
    agent: Any = METHODS[method].agent
    doubled = type("Doubled", (agent,), {loss: lambda self, *args: 2.0 * getattr(agent, loss)(self, *args)})

    own, standard = made(method, cls=doubled, max_grad_norm=None), made(method)

    assert own.path == f"reference: Doubled overrides {loss}"
    part = "critic" if loss == "critic_loss" else "policy"
    batches = []
    for learner in (own, standard):
        fill(learner)
        batches.append(learner.make_batch(learner.replay.draw(16, Normalizer())))
    double = own.gradients(batches[0], part).flat.clone()
    single = standard.gradients(batches[1], part).flat
    assert single.abs().max().item() > 1e-5
    torch.testing.assert_close(double, 2.0 * single, rtol=1e-3, atol=1e-6)


def test_a_subclass_of_td3_without_losses_of_its_own_stays_on_the_fast_path() -> None:
    agent: Any = METHODS["td3"].agent

    assert made("td3", cls=type("Own", (agent,), {})).path.startswith("packed: ")
