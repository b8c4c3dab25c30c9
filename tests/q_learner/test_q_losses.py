from __future__ import annotations

import pytest
import torch

from digideep.testing.q_losses import QBatch, action_values, huber_loss


def test_action_values_have_the_value_of_the_state_as_their_mean() -> None:
    outputs, values = torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.tensor([10.0, 4.0])

    assert action_values(outputs, values).tolist() == [[9.0, 11.0], [4.0, 4.0]]
    assert action_values(outputs.numpy(), values.numpy()).tolist() == [[9.0, 11.0], [4.0, 4.0]]


def test_only_the_values_of_actions_that_were_taken_have_a_gradient() -> None:
    values = torch.tensor([[1.0, 5.0], [2.0, 7.0]], requires_grad=True)
    batch = QBatch({}, torch.tensor([0, 1]), torch.tensor([1.5, 3.0]))

    loss = huber_loss(values, batch)
    loss.backward()

    assert loss.item() == pytest.approx((0.125 + 3.5) / 2)
    assert values.grad is not None
    assert values.grad.tolist() == [[-0.25, 0.0], [0.0, 0.5]]
