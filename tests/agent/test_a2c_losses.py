from __future__ import annotations

import numpy as np
import pytest
import torch
from batch_forms import in_numpy

from digideep.agent.a2c import losses
from digideep.agent.a2c.losses import LossOptions
from digideep.agent.rollout.batches import RolloutBatch
from digideep.model.heads import Evaluation

ADVANTAGES = [2.0, -1.0, 50.0]
RETURNS = [1.0, -2.0, 9.0]
SHARES = [0.25, 0.75, 0.0]  # the last row holds no real transition
LOG_PROB = [-0.5, -2.0, -3.0]
VALUES = [0.5, 1.0, -7.0]
ENTROPY = [0.6, 0.2, 5.0]


def tensor(numbers: list[float]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def made_batch() -> RolloutBatch:
    """Rows without observations and actions; what the acting policy said is of no account."""
    nothing = tensor([7.0, 7.0, 7.0])
    return RolloutBatch({}, {}, nothing, nothing, tensor(ADVANTAGES), tensor(RETURNS), tensor(SHARES))


def test_the_policy_loss_is_the_negative_mean_of_log_probability_times_advantage() -> None:
    loss = losses.policy_gradient_loss(tensor(LOG_PROB), made_batch())

    assert loss.item() == pytest.approx(-(0.25 * -0.5 * 2.0 + 0.75 * -2.0 * -1.0))


def test_the_value_loss_is_half_the_mean_squared_error() -> None:
    loss = losses.value_loss(tensor(VALUES), made_batch())

    assert loss.item() == pytest.approx(0.5 * (0.25 * 0.5**2 + 0.75 * 3.0**2))


def test_the_entropy_bonus_is_the_mean_entropy() -> None:
    assert losses.entropy_bonus(tensor(ENTROPY), made_batch()).item() == pytest.approx(0.25 * 0.6 + 0.75 * 0.2)


def test_rows_that_are_not_real_change_no_loss() -> None:
    first, second = (tensor([-0.5, -2.0, other]) for other in (-3.0, 11.0))

    for loss in (losses.policy_gradient_loss, losses.value_loss, losses.entropy_bonus):
        assert loss(first, made_batch()).item() == loss(second, made_batch()).item()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_closed_form_is_what_autograd_finds(library: str) -> None:
    leaves = [tensor(numbers).requires_grad_() for numbers in (LOG_PROB, ENTROPY, VALUES)]
    log_prob, entropy, values = leaves
    batch = made_batch()
    policy, value, bonus = (
        losses.policy_gradient_loss(log_prob, batch),
        losses.value_loss(values, batch),
        losses.entropy_bonus(entropy, batch),
    )
    (policy + 0.7 * value - 0.03 * bonus).backward()
    said: list[object] = [leaf.detach() for leaf in leaves]
    if library == "numpy":
        said = [np.array(numbers) for numbers in (LOG_PROB, ENTROPY, VALUES)]
        batch = in_numpy(batch)

    found = losses.derivatives(Evaluation(*said), batch, LossOptions(value_coef=0.7, entropy_coef=0.03))

    for derivative, leaf in zip((found.by_log_prob, found.by_entropy, found.by_value), leaves, strict=True):
        np.testing.assert_allclose(np.asarray(derivative), leaf.grad, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(found.figures), [policy.item(), value.item(), bonus.item()], rtol=1e-12)
