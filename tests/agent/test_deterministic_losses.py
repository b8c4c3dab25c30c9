"""Formulas of DDPG, TD3 and SAC with a value network against slow versions shaped like them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from made_agents import fill, made

from digideep.agent.ddpg import losses as ddpg
from digideep.agent.ddpg.losses import DDPGBatch
from digideep.agent.sac_value import losses as sac_value
from digideep.agent.sac_value.losses import SACValueBatch
from digideep.agent.td3.losses import smoothed
from digideep.model.squashed import squash
from digideep.utility.statistics import Normalizer

ROWS = 5


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("critics", [1, 2])
def test_a_deterministic_target_is_the_reward_and_the_discounted_value_of_the_least_critic(critics: int) -> None:
    rewards, values = numbers(1, ROWS), numbers(2, critics, ROWS)
    discounts = np.array([0.99, 0.99, 0.0, 0.99, 0.99**3])

    found = ddpg.bootstrapped_targets(rewards, discounts, values=values)

    for i in range(ROWS):
        least = min(values[c, i] for c in range(critics))
        assert found[i] == pytest.approx(rewards[i] + discounts[i] * least, rel=1e-12)
    assert found[2] == rewards[2]


def test_the_deterministic_critics_loss_is_the_weighted_squared_error_of_each() -> None:
    values, targets, importance = numbers(3, 2, ROWS), numbers(4, ROWS), np.random.default_rng(5).random(ROWS)
    batch = DDPGBatch({}, None, torch.from_numpy(targets), torch.from_numpy(importance))

    found = ddpg.critic_loss(torch.from_numpy(values), batch)

    total = 0.0
    for critic in range(2):
        for i in range(ROWS):
            total += importance[i] * (values[critic, i] - targets[i]) ** 2 / ROWS
    assert float(found) == pytest.approx(total, rel=1e-12)


def test_the_weight_penalty_is_half_of_all_squares() -> None:
    parts = [torch.tensor([[1.0, -2.0]]), torch.tensor([3.0])]

    assert float(ddpg.weight_penalty(parts, weight=0.1)) == pytest.approx(0.05 * (1.0 + 4.0 + 9.0))


def test_a_deterministic_policy_is_judged_by_the_first_critic_alone() -> None:
    assert float(ddpg.policy_loss(torch.tensor([[1.0, 3.0], [100.0, 100.0]]))) == -2.0


def test_target_actions_are_smoothed_by_noise_that_is_cut_and_stay_within_their_bounds() -> None:
    actions = np.array([[0.0, 0.0], [0.9, -0.95], [1.0, 0.2]], np.float32)
    noise = np.array([[1.0, -10.0], [1.0, -1.0], [-1.0, 0.0]], np.float32)

    found = smoothed(actions, noise, scale=0.2, bound=0.5)

    np.testing.assert_allclose(found, [[0.2, -0.5], [1.0, -1.0], [0.8, 0.2]], rtol=1e-6)
    assert found.dtype == np.float32


def test_a_target_of_sac_with_a_value_network_is_the_scaled_reward_and_the_discounted_value() -> None:
    rewards, values = numbers(6, ROWS), numbers(7, ROWS)
    discounts = np.array([0.99, 0.0, 0.99, 0.99, 0.99**3])

    found = sac_value.scaled_targets(rewards, discounts, values=values, reward_scale=5.0)

    for i in range(ROWS):
        assert found[i] == pytest.approx(5.0 * rewards[i] + discounts[i] * values[i], rel=1e-12)


def test_a_value_network_is_regressed_on_the_soft_value_of_the_lesser_critic() -> None:
    found, values, log_probs = numbers(8, ROWS), numbers(9, 2, ROWS), numbers(10, ROWS)
    importance = np.random.default_rng(11).random(ROWS)
    batch = SACValueBatch({}, None, None, torch.from_numpy(importance), None)

    targets = sac_value.soft_values(torch.from_numpy(values), torch.from_numpy(log_probs))
    loss = sac_value.value_loss(torch.from_numpy(found), targets, batch)

    total = 0.0
    for i in range(ROWS):
        soft = min(values[0, i], values[1, i]) - log_probs[i]
        total += importance[i] * 0.5 * (found[i] - soft) ** 2 / ROWS
    assert float(loss) == pytest.approx(total, rel=1e-12)


def test_critics_and_policy_of_sac_with_a_value_network_follow_their_formulas() -> None:
    values, targets, importance = numbers(12, 2, ROWS), numbers(13, ROWS), np.random.default_rng(14).random(ROWS)
    log_probs = numbers(15, ROWS)
    batch = SACValueBatch({}, None, torch.from_numpy(targets), torch.from_numpy(importance), None)

    critic = sac_value.critic_loss(torch.from_numpy(values), batch)
    policy = sac_value.policy_loss(torch.from_numpy(log_probs), torch.from_numpy(values))

    squares = sum(importance[i] * 0.5 * (values[c, i] - targets[i]) ** 2 for c in range(2) for i in range(ROWS))
    assert float(critic) == pytest.approx(squares / ROWS, rel=1e-12)
    judged = sum(log_probs[i] - min(values[0, i], values[1, i]) for i in range(ROWS))
    assert float(policy) == pytest.approx(judged / ROWS, rel=1e-12)


def slow(module: Any, *inputs: Any) -> Any:
    """Return what a network gives, in torch."""
    with torch.no_grad():
        return module(*inputs)


def tensors(arrays: Any) -> Any:
    return {slot: torch.tensor(array) for slot, array in arrays.items()}


@pytest.mark.parametrize("method", ["ddpg", "td3", "sac_value"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_batches_hold_targets_of_the_target_networks_at_what_really_followed(method: str, n_step: int) -> None:
    agent = made(method, n_step=n_step, **({"target_noise": 0.0} if method == "td3" else {}))
    fill(agent)
    for target in agent.targets.values():  # others than the networks they follow
        with torch.no_grad():
            for parameter in target.parameters():
                parameter.add_(0.1)

    drawn = agent.replay.draw(16, Normalizer())
    batch = agent.make_batch(drawn)

    following = tensors(drawn.following)
    if method == "sac_value":
        values = slow(agent.targets["value"], following)[:, 0]
    else:
        actions = torch.tanh(slow(agent.targets["policy"], following))
        values = slow(agent.targets["critic"], following, actions).min(dim=0).values
    expected = drawn.rewards + drawn.discounts * values.numpy()
    np.testing.assert_allclose(batch.targets, expected, rtol=1e-5, atol=1e-6)
    assert (drawn.discounts == 0.0).any() and len(np.unique(drawn.discounts)) == (2 if n_step == 1 else 4)


def test_td3_smooths_its_target_actions_with_noise_of_its_own_generator() -> None:
    agent = made("td3", target_noise=0.3, target_noise_bound=0.4)
    fill(agent)
    drawn = agent.replay.draw(16, Normalizer())
    plain = np.tanh(slow(agent.targets["policy"], tensors(drawn.following)).numpy())

    actions = agent.target_actions(drawn)

    added = actions - plain
    assert np.abs(added).max() <= 0.4 + 1e-6 and np.abs(added).std() > 0.05
    assert (agent.target_actions(drawn) != actions).any()


def test_the_value_network_of_sac_learns_from_what_the_policy_of_now_draws() -> None:
    agent = made("sac_value")
    fill(agent)
    batch = agent.make_batch(agent.replay.draw(16, Normalizer()))

    output = agent.gradients(batch, "value")

    squashed = squash(slow(agent.networks.policy, tensors(batch.observations)).numpy(), batch.noise)
    values = slow(agent.networks.critics, tensors(batch.observations), torch.from_numpy(squashed.actions)).numpy()
    found = slow(agent.networks.value, tensors(batch.observations)).numpy()[:, 0]
    expected = 0.5 * ((found - (values.min(axis=0) - squashed.log_probs)) ** 2).mean()
    assert output.losses[0] == pytest.approx(expected, rel=1e-5)
