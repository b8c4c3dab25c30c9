"""Towers by hand in numpy against autograd through the torch module, and frozen copies against both."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from digideep.agent.continuous.crew import Crew
from digideep.agent.continuous.passes import PackedCritics, PackedPolicy
from digideep.model.actor_critics import CriticTowers, ObservationTower
from digideep.model.flat import FlatParameters
from digideep.model.observations import FlatObservations
from digideep.model.packed_towers import FrozenTowers, PackedTower, can_pack
from digideep.model.towers import Towers
from digideep.spec import ArraySpec

SHAPES: list[tuple[tuple[int, ...], int]] = [((), 1), ((5,), 3), ((8, 4), 1), ((3, 6, 4), 2)]
CASES = list(itertools.product(SHAPES, ("tanh", "relu"), (False, True)))


def made(sizes: tuple[int, ...], outputs: int, *, count: int = 2, seed: int = 0, **options: Any) -> Towers:
    torch.manual_seed(seed)
    towers = Towers(4, hidden_sizes=sizes, outputs=outputs, count=count, **{"activation": "relu", **options}).double()
    with torch.no_grad():
        for norm in towers.norms:  # away from ones and zeros, which would hide a fault
            for parameter in norm.parameters():
                parameter.uniform_(0.5, 1.5)
    FlatParameters(towers)
    return towers


def rows(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(("shape", "activation", "layer_norm"), CASES, ids=str)
def test_passes_by_hand_equal_autograd(shape: Any, activation: Any, layer_norm: bool) -> None:
    sizes, outputs = shape
    towers = made(sizes, outputs, activation=activation, layer_norm=layer_norm)
    packed = [PackedTower(towers, index) for index in range(2)]
    for number in range(2):  # the second time in the same memory
        inputs, by_outputs = rows(6, 4, seed=number), rows(2, 6, outputs, seed=number + 9)
        tensor = torch.tensor(inputs, requires_grad=True)
        towers.zero_grad(set_to_none=False)
        expected = towers(tensor)
        expected.backward(torch.tensor(by_outputs))
        gradients = {name: parameter.grad.clone() for name, parameter in towers.named_parameters()}  # type: ignore[union-attr]
        assert tensor.grad is not None

        by_inputs = np.zeros_like(inputs)
        for index, tower in enumerate(packed):
            np.testing.assert_allclose(tower.forward(inputs), expected[index].detach().numpy(), rtol=1e-10, atol=1e-12)
            by_inputs += tower.input_gradient(by_outputs[index])
            tower.forward(inputs)
            part = tower.input_gradient(by_outputs[index], first=3)
            assert part.shape == (6, 1)
        np.testing.assert_allclose(by_inputs, tensor.grad.numpy(), rtol=1e-9, atol=1e-12)

        towers.zero_grad(set_to_none=False)
        for index, tower in enumerate(packed):
            tower.forward(inputs)
            tower.backward(by_outputs[index])
        for name, parameter in towers.named_parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_gradient_by_inputs_leaves_those_of_the_parameters_alone(layer_norm: bool) -> None:
    towers = made((5, 5), 1, layer_norm=layer_norm)
    for parameter in towers.parameters():
        assert parameter.grad is not None
        parameter.grad.fill_(7.0)
    tower = PackedTower(towers, 1)

    tower.forward(rows(3, 4))
    tower.input_gradient(rows(3, 1))

    assert all(bool((parameter.grad == 7.0).all()) for parameter in towers.parameters() if parameter.grad is not None)


def test_a_tower_changes_what_it_computes_with_the_parameters_and_batches_of_every_size() -> None:
    towers = made((5,), 2)
    tower = PackedTower(towers)
    for size in (3, 7, 3):
        with torch.no_grad():
            for parameter in towers.parameters():
                parameter.mul_(1.1)

        np.testing.assert_allclose(tower.forward(rows(size, 4)), towers(torch.tensor(rows(size, 4)))[0].detach())


@pytest.mark.parametrize(("shape", "activation", "layer_norm"), CASES, ids=str)
def test_a_frozen_copy_predicts_the_same_in_every_batch_and_stays_as_it_is(
    shape: Any, activation: Any, layer_norm: bool
) -> None:
    sizes, outputs = shape
    towers = made(sizes, outputs, activation=activation, layer_norm=layer_norm)
    frozen, inputs = FrozenTowers(towers), rows(6, 4)
    expected = towers(torch.tensor(inputs)).detach().numpy()
    with torch.no_grad():
        for parameter in towers.parameters():
            parameter.zero_()

    alone = frozen(inputs, rowwise=True)

    np.testing.assert_allclose(frozen(inputs, rowwise=False), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(alone, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(frozen(inputs[2:4], rowwise=True), alone[:, 2:4])


def test_one_tower_of_several_begins_as_a_linear_network_of_torch_would() -> None:
    torch.manual_seed(3)
    towers = Towers(4, hidden_sizes=(5,), outputs=2, count=1, activation="relu")
    torch.manual_seed(3)
    layers = [torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)]

    for layer, linear in zip([*towers.layers, towers.head], layers, strict=True):
        torch.testing.assert_close(layer.weight[0], linear.weight, rtol=1e-6, atol=0.0)  # type: ignore[index]
        torch.testing.assert_close(layer.bias[0, 0], linear.bias, rtol=1e-6, atol=0.0)  # type: ignore[index]
    assert not torch.equal(made((5,), 1).head.weight[0], made((5,), 1).head.weight[1])


def test_what_numpy_cannot_do_is_not_packed() -> None:
    class Own(Towers):
        pass

    fields: dict[str, Any] = {"hidden_sizes": (5,), "outputs": 1}
    still = Towers(4, **fields, activation="relu")
    still.head.weight.requires_grad_(False)

    assert can_pack(Towers(4, **fields, activation="relu")) and can_pack(Towers(4, **fields, activation="tanh"))
    assert not can_pack(Towers(4, **fields, activation="gelu"))
    assert not can_pack(Own(4, **fields, activation="relu"))
    assert not can_pack(still)


@pytest.mark.parametrize(("activation", "layer_norm"), [("tanh", False), ("relu", True)])
def test_products_of_wide_layers_may_be_made_at_the_same_time(activation: Any, layer_norm: bool) -> None:
    found, calls = [], []

    def backwards(*jobs: Callable[[], Any]) -> None:
        calls.append(len(jobs))
        for job in reversed(jobs):
            job()

    for run in (None, backwards):
        towers = Towers(4, hidden_sizes=(8, 128, 128), outputs=1, activation=activation, layer_norm=layer_norm)
        with torch.no_grad():
            for parameter in towers.parameters():
                parameter.copy_(torch.from_numpy(rows(*parameter.shape)))
        flat = FlatParameters(towers)
        tower = PackedTower(towers, run=run)
        tower.forward(rows(256, 4).astype(np.float32))
        tower.backward(rows(256, 1, seed=3).astype(np.float32))
        found.append(flat.gradients.numpy())

    assert calls == [2]  # of the two products below the upper layer of 128, and of no others
    np.testing.assert_array_equal(found[0], found[1])
    assert np.isfinite(found[0]).all() and np.count_nonzero(found[0]) > 10_000


@pytest.mark.parametrize(("count", "expected"), [(None, [2]), (1, [1, 2])])
def test_threads_of_a_crew_share_the_towers_or_the_products_of_a_single_one(
    monkeypatch: pytest.MonkeyPatch, count: int | None, expected: list[int]
) -> None:
    inputs = FlatObservations({"observation": ArraySpec("box", (3,), "float32")})
    towers = Towers(4, hidden_sizes=(128, 128), outputs=1, count=2, activation="relu")
    FlatParameters(critics := CriticTowers(inputs, towers))
    crew, calls = Crew(2), []
    run = crew.run

    def counted(*jobs: Callable[[], Any]) -> list[Any]:
        calls.append(len(jobs))
        return run(*jobs)

    monkeypatch.setattr(crew, "run", counted)
    packed = PackedCritics(critics, crew=crew, count=count)
    packed({"observation": rows(256, 3).astype(np.float32)}, rows(256, 1).astype(np.float32))
    calls.clear()

    packed.backward(rows(count or 2, 256).astype(np.float32))

    assert calls == expected


def test_threads_of_a_crew_share_the_products_of_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = FlatObservations({"observation": ArraySpec("box", (3,), "float32")})
    FlatParameters(policy := ObservationTower(inputs, Towers(3, hidden_sizes=(128, 128), outputs=1, activation="relu")))
    crew, calls = Crew(2), []
    monkeypatch.setattr(crew, "run", lambda *jobs: [calls.append(len(jobs)), *(job() for job in jobs)])
    packed = PackedPolicy(policy, crew=crew)
    packed({"observation": rows(256, 3).astype(np.float32)})

    packed.backward(rows(256, 1).astype(np.float32))

    assert calls == [2]


@pytest.mark.parametrize("count", [None, 1])
def test_two_threads_give_the_same_bits_as_one(count: int | None) -> None:
    def gradients(threads: int) -> list[Any]:
        torch.manual_seed(0)
        inputs = FlatObservations({"observation": ArraySpec("box", (3,), "float32")})
        towers = Towers(4, hidden_sizes=(128, 128), outputs=1, count=2, activation="relu", layer_norm=True)
        flat = FlatParameters(critics := CriticTowers(inputs, towers))
        packed = PackedCritics(critics, crew=Crew(threads), count=count)
        observations = {"observation": rows(256, 3).astype(np.float32)}
        actions, by_values = rows(256, 1, seed=2).astype(np.float32), rows(count or 2, 256, seed=3).astype(np.float32)
        found = [packed(observations, actions), packed.by_actions(by_values)]
        packed(observations, actions)
        packed.backward(by_values)
        return [*found, flat.gradients.numpy()]

    alone, together = gradients(1), gradients(2)

    assert alone[0].shape == (count or 2, 256)
    for one, two in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, two)
    assert np.abs(alone[2]).max() > 0.0
