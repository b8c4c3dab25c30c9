from __future__ import annotations

import math

import pytest
import torch

from digideep.agent.ppo import losses
from digideep.agent.rollout.batches import RolloutBatch


def made_batch(log_ratio: list[float], *, advantages: list[float], shares: list[float]) -> RolloutBatch:
    """Rows whose old log-probability is 0, so that the new one is the logarithm of the ratio."""
    rows = len(log_ratio)
    zeros = torch.zeros(rows, dtype=torch.float64)
    as_tensor = [torch.tensor(part, dtype=torch.float64) for part in (advantages, shares)]
    return RolloutBatch({}, {}, zeros, zeros, as_tensor[0], torch.full((rows,), 2.0, dtype=torch.float64), as_tensor[1])


def test_surrogate_is_bounded_above_only_where_that_is_pessimistic() -> None:
    log_prob = torch.log(torch.tensor([2.0, 2.0, 0.5, 0.5], dtype=torch.float64))
    batch = made_batch([0.0] * 4, advantages=[1.0, -1.0, 1.0, -1.0], shares=[1.0, 10.0, 100.0, 1000.0])

    loss = losses.clipped_surrogate(log_prob, batch, clip_param=0.2)

    assert loss.item() == pytest.approx(-(1.2 - 10 * 2.0 + 100 * 0.5 - 1000 * 0.8))


def test_value_loss_takes_the_greater_of_both_errors() -> None:
    batch = made_batch([0.0] * 2, advantages=[0.0] * 2, shares=[0.5, 0.5])
    values = torch.tensor([1.0, -1.0], dtype=torch.float64)

    clipped = losses.clipped_value_loss(values, batch, value_clip=0.2)
    plain = losses.clipped_value_loss(values, batch, value_clip=None)

    assert clipped.item() == pytest.approx(0.5 * (0.5 * 1.8**2 + 0.5 * 3.0**2))
    assert plain.item() == pytest.approx(0.5 * (0.5 * 1.0**2 + 0.5 * 3.0**2))


def test_approximate_kl_is_zero_for_equal_policies_and_positive_otherwise() -> None:
    batch = made_batch([0.0] * 2, advantages=[0.0] * 2, shares=[0.5, 0.5])

    same = losses.approximate_kl(torch.zeros(2, dtype=torch.float64), batch)
    moved = losses.approximate_kl(torch.tensor([math.log(2.0), 0.0], dtype=torch.float64), batch)

    assert same.item() == 0.0
    assert moved.item() == pytest.approx(0.5 * (1.0 - math.log(2.0)))


def test_clip_fraction_counts_shares_outside_the_bounds() -> None:
    batch = made_batch([0.0] * 3, advantages=[0.0] * 3, shares=[0.25, 0.25, 0.5])
    log_prob = torch.log(torch.tensor([1.3, 1.1, 0.5], dtype=torch.float64))

    assert losses.clip_fraction(log_prob, batch, clip_param=0.2).item() == 0.75


def test_unreal_rows_change_no_loss() -> None:
    batch = made_batch([0.0] * 2, advantages=[1.0, 50.0], shares=[1.0, 0.0])
    first, second = (torch.tensor([0.1, other], dtype=torch.float64) for other in (-3.0, 2.0))

    for loss in (
        lambda x: losses.clipped_surrogate(x, batch, clip_param=0.2),
        lambda x: losses.clipped_value_loss(x, batch, value_clip=0.2),
        lambda x: losses.entropy_bonus(x, batch),
        lambda x: losses.approximate_kl(x, batch),
        lambda x: losses.clip_fraction(x, batch, clip_param=0.2),
    ):
        assert loss(first).item() == loss(second).item()
