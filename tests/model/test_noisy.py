"""Networks with noise on their weights, against a loop over the formula, and in numpy against torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from digideep.model.flat import FlatParameters
from digideep.model.noisy import FrozenNoisyTowers, NoisyTowers, PackedNoisyTower, can_pack_noisy

INPUTS, HIDDEN, OUTPUTS, ROWS = 3, (5, 4), 2, 6


def made(**options: Any) -> NoisyTowers:
    torch.manual_seed(1)
    fields: dict[str, Any] = {"hidden_sizes": HIDDEN, "activation": "relu", "deviation": 0.5, **options}
    towers = NoisyTowers(INPUTS, outputs=OUTPUTS, **fields)
    with torch.no_grad():  # deviations that differ, so that none can stand for another
        for parameter in towers.deviations.parameters():
            parameter.mul_(torch.rand(parameter.shape) + 0.5)
    return towers


def drawn(towers: NoisyTowers, *rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(4).standard_normal((*rows, towers.noise_size)).astype(np.float32)


def inputs() -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).standard_normal((ROWS, INPUTS)).astype(np.float32)


def slow(towers: NoisyTowers, row: np.ndarray[Any, Any], noise: np.ndarray[Any, Any]) -> list[float]:
    """Return the outputs of one row, number by number."""
    values, start = [float(x) for x in row], 0
    layers = [*towers.means.layers, towers.means.head]
    deviations = [*towers.deviations.layers, towers.deviations.head]
    for i, (mean, deviation) in enumerate(zip(layers, deviations, strict=True)):
        w, b, w_deviation, b_deviation = (
            parameter.detach()[0].double().numpy()
            for parameter in (mean.weight, mean.bias, deviation.weight, deviation.bias)
        )
        outputs, count = w.shape
        f = [math.copysign(math.sqrt(abs(e)), e) for e in noise[start : start + count + outputs]]
        result = []
        for j in range(outputs):
            total = b[0, j] + b_deviation[0, j] * f[count + j]
            for k in range(count):
                total += (w[j, k] + w_deviation[j, k] * f[count + j] * f[k]) * values[k]
            result.append(total if i == len(layers) - 1 else max(0.0, total))
        values, start = result, start + count + outputs
    return values


def test_a_weight_is_its_mean_plus_its_deviation_times_the_noise_of_both_its_ends() -> None:
    towers = made()
    noise, rows = drawn(towers), inputs()

    found = towers(torch.from_numpy(rows), torch.from_numpy(noise)).detach().numpy()

    assert towers.noise_size == (3 + 5) + (5 + 4) + (4 + 2)
    np.testing.assert_allclose(found, [slow(towers, row, noise) for row in rows], rtol=1e-5, atol=1e-6)


def test_rows_may_have_a_noise_each_and_without_any_only_means_count() -> None:
    towers = made()
    noise, rows = drawn(towers, ROWS), inputs()

    found = towers(torch.from_numpy(rows), torch.from_numpy(noise)).detach().numpy()
    without = towers(torch.from_numpy(rows))

    expected = [slow(towers, row, own) for row, own in zip(rows, noise, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(without, towers.means(torch.from_numpy(rows))[0])


def test_deviations_begin_at_a_share_of_the_bound_of_the_means() -> None:
    towers = NoisyTowers(INPUTS, hidden_sizes=HIDDEN, outputs=OUTPUTS, activation="relu", deviation=0.5)

    layers = [*towers.deviations.layers, towers.deviations.head]
    for layer, count in zip(layers, (3, 5, 4), strict=True):
        for parameter in (layer.weight, layer.bias):
            torch.testing.assert_close(parameter.detach(), torch.full_like(parameter, 0.5 / math.sqrt(count)))
    for layer, count in zip([*towers.means.layers, towers.means.head], (3, 5, 4), strict=True):
        assert float(layer.weight.detach().abs().max()) <= 1.0 / math.sqrt(count)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden_sizes", [(), (5,), HIDDEN])
def test_the_pass_by_hand_has_the_outputs_and_gradients_of_autograd(
    activation: str, hidden_sizes: tuple[int, ...]
) -> None:
    towers = made(activation=activation, hidden_sizes=hidden_sizes).double()
    flat = FlatParameters(towers)
    packed = PackedNoisyTower(towers)
    by_outputs = np.random.default_rng(6).standard_normal((ROWS, OUTPUTS))
    noise, rows = drawn(towers).astype(np.float64), inputs().astype(np.float64)
    outputs = towers(torch.from_numpy(rows), torch.from_numpy(noise))
    outputs.backward(torch.from_numpy(by_outputs))
    expected = flat.gradients.numpy().copy()
    flat.gradients.fill_(9.0)

    found = packed.forward(rows, noise)
    packed.backward(by_outputs)

    np.testing.assert_allclose(found, outputs.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(flat.gradients.numpy(), expected, rtol=1e-10, atol=1e-12)
    assert np.abs(expected).min() < 9.0


def test_a_frozen_copy_predicts_the_same_and_a_row_does_not_notice_the_others() -> None:
    towers = made(activation="tanh")
    frozen = FrozenNoisyTowers(towers)
    noise, rows = drawn(towers, ROWS), inputs()
    expected = towers(torch.from_numpy(rows), torch.from_numpy(noise)).detach().numpy()
    with torch.no_grad():
        for parameter in towers.parameters():
            parameter.zero_()

    whole = frozen.noisy(rows, noise, rowwise=True)

    np.testing.assert_allclose(frozen.noisy(rows, noise, rowwise=False), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(frozen.noisy(rows[2:4], noise[2:4], rowwise=True), whole[2:4])


def test_numpy_does_noise_without_normalisation_only() -> None:
    assert can_pack_noisy(made())
    assert not can_pack_noisy(made(layer_norm=True))
    assert not can_pack_noisy(made(activation="gelu"))
