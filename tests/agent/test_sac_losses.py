"""SAC's formulas against slow versions shaped like them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from digideep.agent.sac.losses import SACBatch, critic_loss, policy_loss, soft_targets, temperature_loss

ROWS = 5


def test_a_target_is_the_reward_and_the_discounted_soft_value_of_the_lesser_critic() -> None:
    rng = np.random.default_rng(1)
    rewards, log_probs = rng.standard_normal(ROWS), rng.standard_normal(ROWS)
    discounts = np.array([0.99, 0.99, 0.0, 0.99, 0.99**3])
    values = rng.standard_normal((2, ROWS))

    found = soft_targets(rewards, discounts, values=values, log_probs=log_probs, temperature=0.3)

    for i in range(ROWS):
        soft = min(values[0, i], values[1, i]) - 0.3 * log_probs[i]
        assert found[i] == pytest.approx(rewards[i] + discounts[i] * soft, rel=1e-12)
    assert found[2] == rewards[2]


def test_the_critics_loss_is_half_the_weighted_squared_error_of_both() -> None:
    rng = np.random.default_rng(2)
    values, targets, importance = rng.standard_normal((2, ROWS)), rng.standard_normal(ROWS), rng.random(ROWS)
    batch = SACBatch({}, None, torch.from_numpy(targets), torch.from_numpy(importance), None)

    found = critic_loss(torch.from_numpy(values), batch)

    total = 0.0
    for critic in range(2):
        for i in range(ROWS):
            total += importance[i] * 0.5 * (values[critic, i] - targets[i]) ** 2 / ROWS
    assert float(found) == pytest.approx(total, rel=1e-12)


def test_the_policys_loss_weighs_entropy_against_the_lesser_critic() -> None:
    log_probs = torch.tensor([1.0, -2.0], dtype=torch.float64)
    values = torch.tensor([[3.0, 1.0], [2.0, 5.0]], dtype=torch.float64)

    found = policy_loss(log_probs, values, temperature=torch.tensor(0.5))

    assert float(found) == pytest.approx(((0.5 * 1.0 - 2.0) + (0.5 * -2.0 - 1.0)) / 2)


def test_the_temperature_rises_where_the_entropy_is_below_its_target() -> None:
    log = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    log_probs = torch.tensor([3.0, 1.0], dtype=torch.float64)  # an entropy of -2

    temperature_loss(log, log_probs, target_entropy=-1.0).backward()

    assert log.grad is not None
    assert log.grad.item() == pytest.approx(-(2.0 - 1.0))
    assert temperature_loss(log, log_probs, target_entropy=-2.0).item() == 0.0
