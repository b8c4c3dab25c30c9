"""Normal distributions through tanh: densities, draws, derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from digideep.model.squashed import LOG_STD_BOUNDS, squash, squash_torch, squashed_mode

Array = np.ndarray[Any, Any]

CASES = [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5), (0.2, -2.5), (3.0, 0.0)]


def log_density(outputs: Array, actions: Array) -> Array:
    """Return log-densities `[B]` of actions `[B, D]` strictly within (-1, 1), by the change of variables as written."""
    mean, log_std = np.split(outputs, 2, axis=1)
    noise = (np.arctanh(actions) - mean) / np.exp(log_std)
    terms = -0.5 * np.square(noise) - log_std - 0.5 * np.log(2.0 * np.pi) - np.log(1.0 - np.square(actions))
    return np.asarray(terms.sum(axis=1))


@pytest.mark.parametrize(("mean", "log_std"), CASES)
def test_the_density_integrates_to_one_and_to_the_shares_of_draws(mean: float, log_std: float) -> None:
    # Midpoints of equal steps of u = arctanh(a), so that both ends are resolved: da = (1 - a^2) du.
    u = np.linspace(-12.0, 12.0, 200_001)
    actions = np.tanh(u)
    inside = np.abs(actions) < 1.0
    outputs = np.tile([mean, log_std], (int(inside.sum()), 1))

    density = np.exp(log_density(outputs, actions[inside][:, None]))

    mass = density * (1.0 - actions[inside] ** 2) * (u[1] - u[0])
    assert mass.sum() == pytest.approx(1.0, abs=1e-4)
    noise = np.random.default_rng(1).standard_normal((200_000, 1))
    drawn = squash(np.tile([mean, log_std], (len(noise), 1)), noise).actions[:, 0]
    for bound in (-0.5, 0.0, 0.5):
        assert mass[actions[inside] <= bound].sum() == pytest.approx((drawn <= bound).mean(), abs=0.005)


def test_log_densities_of_draws_are_those_of_the_actions_and_those_of_torch() -> None:
    rng = np.random.default_rng(2)
    outputs, noise = 0.5 * rng.standard_normal((50, 6)), rng.standard_normal((50, 3))

    found = squash(outputs, noise)
    actions, log_probs = squash_torch(torch.tensor(outputs), torch.tensor(noise))

    np.testing.assert_allclose(found.actions, actions.numpy(), rtol=1e-12)
    np.testing.assert_allclose(found.log_probs, log_probs.numpy(), rtol=1e-10)
    np.testing.assert_allclose(found.log_probs, log_density(outputs, found.actions), rtol=1e-6)
    base = torch.distributions.Normal(torch.tensor(outputs[:, :3]), torch.tensor(outputs[:, 3:]).exp())
    own = torch.distributions.TransformedDistribution(base, torch.distributions.transforms.TanhTransform())
    np.testing.assert_allclose(found.log_probs, own.log_prob(actions).sum(-1).numpy(), rtol=1e-6)


def test_far_out_where_tanh_is_one_the_density_is_still_finite_and_right() -> None:
    outputs, noise = np.array([[30.0, 0.0], [-30.0, 0.0]], np.float32), np.zeros((2, 1), np.float32)

    found = squash(outputs, noise)

    # log p = -log(2 pi) / 2 - log(1 - tanh(30)^2), of which the last is 60 - log 4.
    np.testing.assert_allclose(found.log_probs, -0.918938533 + 60.0 - np.log(4.0), rtol=1e-6)
    assert np.abs(found.actions).max() <= 1.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_derivatives_equal_autograd_within_and_outside_of_the_bounds(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    outputs = rng.uniform(-1.0, 1.0, (40, 4))
    outputs[:10, 2] = LOG_STD_BOUNDS[1] + 1.0
    outputs[10:20, 3] = LOG_STD_BOUNDS[0] - 1.0
    outputs, noise = outputs.astype(dtype), rng.standard_normal((40, 2)).astype(dtype)
    by_actions, by_log_probs = rng.standard_normal((40, 2)).astype(dtype), rng.standard_normal(40).astype(dtype)
    tensor = torch.tensor(outputs, requires_grad=True)
    actions, log_probs = squash_torch(tensor, torch.tensor(noise))
    ((actions * torch.tensor(by_actions)).sum() + (log_probs * torch.tensor(by_log_probs)).sum()).backward()  # type: ignore[no-untyped-call]

    found = squash(outputs, noise).gradient(by_actions, by_log_probs)

    assert tensor.grad is not None and found.dtype == dtype
    tolerance = 1e-10 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(found, tensor.grad.numpy(), rtol=tolerance, atol=tolerance)
    assert (found[:10, 2] == 0.0).all() and (found[10:20, 3] == 0.0).all() and (found[20:, 2:] != 0.0).all()


def test_the_best_action_is_tanh_of_the_mean() -> None:
    np.testing.assert_allclose(squashed_mode(np.array([[0.5, -2.0, 9.0, -9.0]])), np.tanh([[0.5, -2.0]]))


def test_the_derivatives_agree_with_differences() -> None:
    outputs, noise = np.array([[0.3, -0.2, -0.5, 0.4]]), np.array([[0.7, -1.1]])
    by_actions, by_log_probs = np.array([[0.5, -2.0]]), np.array([1.5])

    def loss(values: Any) -> float:
        squashed = squash(values, noise)
        return float((squashed.actions * by_actions).sum() + (squashed.log_probs * by_log_probs).sum())

    found = squash(outputs, noise).gradient(by_actions, by_log_probs)

    for column in range(4):
        step = np.zeros_like(outputs)
        step[0, column] = 1e-6
        assert found[0, column] == pytest.approx((loss(outputs + step) - loss(outputs - step)) / 2e-6, rel=1e-5)
