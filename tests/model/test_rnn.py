"""Recurrent cells and networks against slow loops over torch's own cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from digideep.errors import ConfigError
from digideep.model.config import RNNConfig
from digideep.model.frozen_rnn import FrozenRNN
from digideep.model.recurrence import LSTM, RecurrentCell, make_cell
from digideep.model.rnn import ActorCriticRNN
from digideep.spec import ArraySpec

KINDS = ["gru", "lstm"]
LENGTH, SEQUENCES, INPUTS, UNITS = 7, 5, 3, 4
FLAT = {"observation": ArraySpec("box", (3,), "float32")}


def masks(seed: int = 0, length: int = LENGTH) -> torch.Tensor:
    made = torch.from_numpy((np.random.default_rng(seed).random((length, SEQUENCES)) > 0.3).astype(np.float32))
    made[0, 0], made[0, 1], made[-1, 2] = 0.0, 1.0, 0.0
    return made


def states(cell: Any, seed: int = 1) -> dict[str, torch.Tensor]:
    rng, shapes = np.random.default_rng(seed), cell.hidden_shapes
    return {key: torch.from_numpy(rng.standard_normal((SEQUENCES, *shape))) for key, shape in shapes.items()}


def slow(cell: RecurrentCell, inputs: torch.Tensor, state: dict[str, torch.Tensor], keep: torch.Tensor) -> Any:
    """A loop over torch's own cell, differentiated by autograd."""
    kind = nn.LSTMCell if isinstance(cell, LSTM) else nn.GRUCell
    plain = kind(INPUTS, UNITS).to(inputs.dtype)
    plain.load_state_dict(cell.state_dict())
    held, outputs = dict(state), []
    for t, rows in enumerate(inputs.split(SEQUENCES)):
        held = {key: value * keep[t][:, None] for key, value in held.items()}
        if isinstance(cell, LSTM):
            hidden, memory = plain(rows, (held["hidden"], held["cell"]))
            held = {"hidden": hidden, "cell": memory}
        else:
            held = {"hidden": plain(rows, held["hidden"])}
        outputs.append(held["hidden"])
    return plain, torch.cat(outputs), held


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_through_time_are_those_of_a_slow_loop(kind: str) -> None:
    torch.manual_seed(0)
    cell = make_cell(kind, INPUTS, UNITS).double()
    for bias in (cell.bias_ih, cell.bias_hh):
        nn.init.normal_(bias)
    first = torch.randn(LENGTH * SEQUENCES, INPUTS, dtype=torch.float64, requires_grad=True)
    second = first.detach().clone().requires_grad_(True)
    begun = {key: value.requires_grad_(True) for key, value in states(cell).items()}
    again = {key: value.detach().clone().requires_grad_(True) for key, value in begun.items()}
    weights = torch.randn(LENGTH * SEQUENCES, UNITS, dtype=torch.float64)

    outputs, after = cell(first, begun, masks())
    plain, expected, held = slow(cell, second, again, masks().double())
    (outputs * weights).sum().backward()
    (expected * weights).sum().backward()

    torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)
    for key, value in held.items():
        torch.testing.assert_close(after[key], value.detach(), rtol=1e-12, atol=1e-12)
        assert not after[key].requires_grad
    torch.testing.assert_close(first.grad, second.grad, rtol=1e-10, atol=1e-12)
    for key in begun:
        torch.testing.assert_close(begun[key].grad, again[key].grad, rtol=1e-10, atol=1e-12)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(cell.get_parameter(name).grad, parameter.grad, rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_no_gradient_passes_the_beginning_of_an_episode_and_all_others_reach_the_first_step(kind: str) -> None:
    torch.manual_seed(0)
    cell = make_cell(kind, INPUTS, UNITS)
    inputs = torch.randn(LENGTH * SEQUENCES, INPUTS, requires_grad=True)
    keep = torch.ones(LENGTH, SEQUENCES)
    keep[3, 0] = 0.0

    outputs, _ = cell(inputs, {key: value.float() for key, value in states(cell).items()}, keep)
    outputs[-SEQUENCES:].sum().backward()

    assert inputs.grad is not None
    reached = inputs.grad.view(LENGTH, SEQUENCES, INPUTS).abs().sum(-1) > 0
    assert reached[:, 0].tolist() == [False] * 3 + [True] * 4
    assert reached[:, 1:].all()


def network(kind: str = "gru", specs: dict[str, ArraySpec] = FLAT, **fields: Any) -> ActorCriticRNN:
    torch.manual_seed(0)
    return ActorCriticRNN(RNNConfig(cell=kind, units=UNITS, **fields), observations=specs, outputs=2)  # type: ignore[arg-type]


PICTURES = {
    "front": ArraySpec("box", (1, 8, 8), "uint8", low=(0.0,), high=(255.0,)),
    "speed": ArraySpec("box", (2,), "float32"),
}
CONVOLUTIONS: dict[str, Any] = {"channels": (3,), "kernels": (4,), "strides": (2,), "picture_sizes": (6,)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("specs", [FLAT, PICTURES], ids=["flat", "pictures"])
def test_a_whole_sequence_equals_one_step_after_the_other(kind: str, specs: dict[str, ArraySpec]) -> None:
    made = network(kind, specs, **(CONVOLUTIONS if specs is PICTURES else {})).double()
    rng = np.random.default_rng(0)
    seen = {
        slot: torch.from_numpy(rng.integers(0, 256, (LENGTH * SEQUENCES, *spec.shape)).astype(spec.dtype) / 9)
        for slot, spec in specs.items()
    }
    state = states(made)

    outputs, values, after = made(seen, state, masks())

    held = state
    for t in range(LENGTH):
        rows = slice(t * SEQUENCES, (t + 1) * SEQUENCES)
        step = {slot: tensor[rows] for slot, tensor in seen.items()}
        now, worth, held = made(step, held, masks()[t : t + 1])
        torch.testing.assert_close(now, outputs[rows], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(worth, values[rows], rtol=1e-12, atol=1e-12)
    for key, value in after.items():
        torch.testing.assert_close(held[key], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_of_0_forgets_everything_before_it(kind: str) -> None:
    made = network(kind)
    seen = {"observation": torch.randn(LENGTH * SEQUENCES, 3)}
    keep = torch.ones(LENGTH, SEQUENCES)
    keep[2] = 0.0
    state = {key: value.float() for key, value in states(made).items()}

    outputs, _, _ = made(seen, state, keep)
    late = {"observation": seen["observation"][2 * SEQUENCES :]}
    fresh, _, _ = made(late, {key: torch.zeros_like(value) for key, value in state.items()}, keep[2:])

    torch.testing.assert_close(outputs[2 * SEQUENCES :], fresh)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_frozen_copy_takes_the_steps_that_torch_takes_and_rows_do_not_notice_each_other(
    kind: str, activation: Any
) -> None:
    made = network(kind, activation=activation, hidden_sizes=(8, 6), critic_hidden_sizes=(5,))
    frozen, rng = FrozenRNN(made), np.random.default_rng(0)
    held = {key: np.asarray(value, np.float32) for key, value in states(made).items()}

    for t in range(4):
        seen = rng.standard_normal((SEQUENCES, 3)).astype(np.float32)
        keep = masks()[t].numpy()
        with torch.no_grad():
            outputs, values, after = made(
                {"observation": torch.from_numpy(seen)},
                {key: torch.from_numpy(value) for key, value in held.items()},
                torch.from_numpy(keep)[None],
            )
        before = {key: value.copy() for key, value in held.items()}
        for rowwise in (True, False):
            found, state = frozen({"observation": seen}, held, keep, rowwise=rowwise)
            np.testing.assert_allclose(found.outputs, outputs, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(found.values, values, rtol=1e-4, atol=1e-6)
            for key, value in after.items():
                np.testing.assert_allclose(state[key], value, rtol=1e-4, atol=1e-6)
                np.testing.assert_array_equal(held[key], before[key])
        whole, whole_state = frozen({"observation": seen}, held, keep, rowwise=True)
        rows = slice(1, 4)
        part, part_state = frozen(
            {"observation": seen[rows]}, {key: value[rows] for key, value in held.items()}, keep[rows], rowwise=True
        )
        np.testing.assert_array_equal(part.outputs, whole.outputs[rows])
        for key, value in part_state.items():
            np.testing.assert_array_equal(value, whole_state[key][rows])
        held = whole_state


def test_only_networks_that_numpy_can_do_are_frozen() -> None:
    assert FrozenRNN.can_freeze(network())
    assert not FrozenRNN.can_freeze(network(activation="gelu"))
    assert not FrozenRNN.can_freeze(network(specs=PICTURES, **CONVOLUTIONS))
    assert not FrozenRNN.can_freeze(network().double())


def test_cells_begin_orthogonal_without_biases() -> None:
    for kind, gates in (("gru", 3), ("lstm", 4)):
        cell = make_cell(kind, INPUTS, UNITS)

        assert cell.weight_hh.shape == (gates * UNITS, UNITS)
        torch.testing.assert_close(cell.weight_hh.T @ cell.weight_hh, torch.eye(UNITS), rtol=0, atol=1e-5)
        torch.testing.assert_close(cell.weight_ih.T @ cell.weight_ih, torch.eye(INPUTS), rtol=0, atol=1e-5)
        assert not cell.bias_ih.any() and not cell.bias_hh.any()
    assert network("lstm").hidden_shapes == {"hidden": (4,), "cell": (4,)}


def test_the_configuration_says_what_it_is() -> None:
    assert RNNConfig.network_class == network().network_class == "rnn"
    with pytest.raises(ConfigError, match="RNNConfig/channels: expected as many channels as kernels and strides"):
        RNNConfig(channels=(4,))
