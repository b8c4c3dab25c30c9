from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from digideep.errors import CheckpointError
from digideep.model.flat import FlatParameters, FlatRMSprop


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).to(dtype)


def backward(module: nn.Module, number: int) -> None:
    inputs = torch.from_numpy(np.random.default_rng(number).standard_normal((6, 5)))
    module(inputs.to(next(module.parameters()).dtype)).square().mean().backward()


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-6), (torch.float64, 1e-15)])
@pytest.mark.parametrize(("alpha", "eps"), [(0.99, 1e-5), (0.9, 0.1)])
def test_flat_rmsprop_equals_that_of_torch(alpha: float, eps: float, dtype: torch.dtype, rtol: float) -> None:
    module = network(dtype)
    plain = copy.deepcopy(module)
    flat = FlatParameters(module)
    ours = FlatRMSprop(flat, alpha=alpha, eps=eps)
    theirs = torch.optim.RMSprop(plain.parameters(), alpha=alpha, eps=eps, foreach=False)

    for number in range(20):
        flat.gradients.zero_()
        theirs.zero_grad()
        for trained in (module, plain):
            backward(trained, number)
        theirs.param_groups[0]["lr"] = 0.01 / (number + 1)
        ours.step(0.01 / (number + 1))
        theirs.step()

    for one, other in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.data, other.data, rtol=rtol, atol=rtol)


def test_the_first_step_of_rmsprop_is_ten_times_the_learning_rate_in_every_direction() -> None:
    module = network()
    flat = FlatParameters(module)
    before = flat.values.clone()
    flat.gradients.copy_(torch.where(torch.arange(len(before)) % 2 == 0, 3.0, -2.0))

    FlatRMSprop(flat, alpha=0.99, eps=1e-10).step(1e-3)

    expected = torch.where(torch.arange(len(before)) % 2 == 0, -1e-2, 1e-2)
    torch.testing.assert_close(flat.values - before, expected, rtol=1e-4, atol=1e-7)


def test_rmsprop_resumes_to_the_same_bits_and_its_state_is_a_copy() -> None:
    one, other = network(), network()
    flat, flat_other = FlatParameters(one), FlatParameters(other)
    optimiser, later = FlatRMSprop(flat, alpha=0.9, eps=1e-5), FlatRMSprop(flat_other, alpha=0.9, eps=1e-5)
    for number in range(3):
        backward(one, number)
        optimiser.step(0.01)
    state = optimiser.state()
    kept = {name: array.copy() for name, array in state.square_avg.items()}
    flat_other.values.copy_(flat.values)
    later.load_state(state, where="rmsprop")

    for module, buffer, method in ((one, flat, optimiser), (other, flat_other, later)):
        buffer.gradients.zero_()
        backward(module, 3)
        method.step(0.01)

    torch.testing.assert_close(flat.values, flat_other.values, rtol=0.0, atol=0.0)
    for name, array in kept.items():
        np.testing.assert_array_equal(state.square_avg[name], array)
    assert not np.array_equal(optimiser.state().square_avg["0.weight"], kept["0.weight"])


def test_a_step_of_rmsprop_to_skip_moves_nothing_even_where_the_gradient_is_bad() -> None:
    module = network()
    flat = FlatParameters(module)
    optimiser = FlatRMSprop(flat, alpha=0.9, eps=1e-5)
    backward(module, 0)
    optimiser.step(0.01)
    before, squares = flat.values.clone(), optimiser.state().square_avg
    flat.gradients[3] = torch.nan

    optimiser.step(0.1, skip=torch.ones(()))

    torch.testing.assert_close(flat.values, before, rtol=0.0, atol=0.0)
    for name, array in optimiser.state().square_avg.items():
        np.testing.assert_array_equal(array, squares[name])
    flat.gradients[3] = 1.0
    optimiser.step(0.1, skip=torch.zeros(()))
    assert (flat.values != before).any()


def test_mean_squares_of_other_parameters_are_refused() -> None:
    optimiser = FlatRMSprop(FlatParameters(network()), alpha=0.9, eps=1e-5)
    state = optimiser.state()
    wrong = {**state.square_avg, "0.bias": np.zeros(9, np.float32)}

    with pytest.raises(CheckpointError, match=r"rmsprop/square_avg: expected one array for each parameter"):
        optimiser.load_state(state._replace(square_avg=wrong), where="rmsprop")
