from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from digideep.errors import CheckpointError, ConfigError, ShapeError
from digideep.model.flat import FlatAdam, FlatParameters, FlatRMSprop


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def backward(module: nn.Module, flat: FlatParameters, factor: float = 1.0) -> None:
    flat.gradients.zero_()
    (module(torch.ones(5, 3)).square().mean() * factor).backward()


def test_parameters_and_gradients_are_views_of_two_buffers() -> None:
    module = network()
    before = module(torch.ones(1, 3)).detach().clone()
    flat = FlatParameters(module)

    backward(module, flat)

    torch.testing.assert_close(module(torch.ones(1, 3)).detach(), before, rtol=0.0, atol=0.0)
    gradients = torch.cat([p.grad.ravel() for p in module.parameters() if p.grad is not None])
    torch.testing.assert_close(flat.gradients, gradients, rtol=0.0, atol=0.0)
    flat.values.zero_()
    assert all(not parameter.any() for parameter in module.parameters())


def test_views_survive_loading_a_state() -> None:
    module, other = network(), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    flat = FlatParameters(module)

    module.load_state_dict(other.state_dict())

    flat.check()
    expected = torch.cat([parameter.detach().ravel() for parameter in other.parameters()])
    torch.testing.assert_close(flat.values, expected, rtol=0.0, atol=0.0)


def test_frozen_parameters_stay_outside() -> None:
    module = network()
    module[0].requires_grad_(False)

    assert FlatParameters(module).values.numel() == 4 * 2 + 2


@pytest.mark.parametrize("what", ["gradient", "value"])
def test_memory_that_was_replaced_is_noticed(what: str) -> None:
    module = network()
    flat = FlatParameters(module)
    if what == "gradient":
        module.zero_grad(set_to_none=True)
    else:
        module[0].weight.data = torch.zeros(4, 3)

    with pytest.raises(ShapeError, match=r"parameter '0.weight': expected a view of the flat buffer"):
        flat.check()


def test_clipping_scales_only_gradients_whose_norm_is_too_large() -> None:
    module = network()
    flat = FlatParameters(module)
    backward(module, flat, 1000.0)
    unclipped = flat.gradients.clone()

    norm = flat.clip_gradients(0.5)
    again = flat.clip_gradients(0.6)

    assert norm == pytest.approx(unclipped.norm().item(), rel=1e-6)
    torch.testing.assert_close(flat.gradients, unclipped * (0.5 / norm))
    assert again == pytest.approx(0.5, rel=1e-6)
    assert flat.clip_gradients(None) == again


def test_a_module_without_trainable_parameters_or_of_mixed_dtypes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"expected parameters that can be trained, found none"):
        FlatParameters(nn.Tanh())
    mixed = network()
    mixed[2].double()
    with pytest.raises(ConfigError, match=r"'0.weight' as torch.float32 on cpu and '2.weight' as torch.float64"):
        FlatParameters(mixed)


def test_adam_resumes_to_the_same_bits_and_its_state_is_a_copy() -> None:
    one, other = network(), network()
    flat, flat_other = FlatParameters(one), FlatParameters(other)
    adam, adam_other = FlatAdam(flat, eps=1e-5), FlatAdam(flat_other, eps=1e-5)
    for _ in range(3):
        backward(one, flat)
        adam.step(0.01)
    state = adam.state()
    kept = {name: array.copy() for name, array in state.exp_avg.items()}

    flat_other.values.copy_(flat.values)
    adam_other.load_state(state, where="adam")
    for module, buffer, optimiser in ((one, flat, adam), (other, flat_other, adam_other)):
        backward(module, buffer)
        optimiser.step(0.01)

    torch.testing.assert_close(flat.values, flat_other.values, rtol=0.0, atol=0.0)
    assert (state.step, adam.state().step) == (3, 4)
    for name, array in kept.items():
        np.testing.assert_array_equal(state.exp_avg[name], array)


def test_the_state_before_the_first_step_has_the_form_of_every_later_one() -> None:
    flat = FlatParameters(network())

    state = FlatAdam(flat, eps=1e-5).state()

    assert state.step == 0
    assert {name: array.shape for name, array in state.exp_avg_sq.items()} == {
        "0.weight": (4, 3),
        "0.bias": (4,),
        "2.weight": (2, 4),
        "2.bias": (2,),
    }


def test_a_step_to_skip_moves_nothing() -> None:
    module = network()
    flat = FlatParameters(module)
    adam = FlatAdam(flat, eps=1e-5)
    backward(module, flat)
    before = flat.values.clone()

    adam.step(0.1, skip=torch.ones(()))
    torch.testing.assert_close(flat.values, before, rtol=0.0, atol=0.0)
    adam.step(0.1, skip=torch.zeros(()))

    assert (flat.values != before).any()
    assert adam.state().step == 1


def test_moments_of_other_parameters_are_refused() -> None:
    adam = FlatAdam(FlatParameters(network()), eps=1e-5)
    state = adam.state()

    with pytest.raises(CheckpointError, match=r"adam/exp_avg: expected one array for each parameter"):
        adam.load_state(state._replace(exp_avg={**state.exp_avg, "0.bias": np.zeros(7, np.float32)}), where="adam")


@pytest.mark.parametrize("max_norm", [None, 1e30])
def test_a_gradient_whose_squares_are_beyond_its_type_is_a_problem_unless_it_is_clipped(max_norm: float | None) -> None:
    flat = FlatParameters(network())
    found = []

    for value, bound in ((1.8e19, max_norm), (1.9e19, max_norm), (1.9e19, 0.5), (float("nan"), max_norm)):
        flat.gradients.zero_()[3] = value
        found.append(flat.problem(float(flat.clip_gradients(bound))))

    assert found == [
        "",
        "gradient, found norm 1.9e+19, too large for squares in float32 (a max_grad_norm bounds it),",
        "",
        "gradient, found norm nan",
    ]


def test_a_norm_whose_square_is_beyond_its_type_is_no_problem_where_no_number_is_that_large() -> None:
    flat = FlatParameters(network())

    flat.gradients.fill_(1e19)

    assert flat.clip_gradients(None) == pytest.approx(1e19 * flat.gradients.numel() ** 0.5)
    assert flat.problem(flat.clip_gradients(None)) == ""


@pytest.mark.parametrize("value", [1.8e19, -1.8e19])
def test_the_greatest_gradient_that_is_no_problem_leaves_the_moments_finite(value: float) -> None:
    flat = FlatParameters(network())
    adam, rmsprop = FlatAdam(flat, eps=1e-8), FlatRMSprop(flat, alpha=0.0, eps=1e-8)
    flat.gradients.fill_(value)

    for _ in range(5):
        assert flat.problem(float(flat.clip_gradients(None))) == ""
        adam.step(1e-3)
        rmsprop.step(1e-3)

    assert np.isfinite(next(iter(adam.state().exp_avg_sq.values()))).all()
    assert np.isfinite(next(iter(rmsprop.state().square_avg.values()))).all()
