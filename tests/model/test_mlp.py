from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
import torch

from digideep.errors import ConfigError, SpaceError
from digideep.model.config import MLPConfig
from digideep.model.frozen import FrozenMLP
from digideep.model.mlp import ActorCriticMLP
from digideep.model.observations import FlatObservations, as_tensor, flat_rows, flat_size, zero_observations
from digideep.model.packed import PackedMLP
from digideep.spec import ArraySpec

SPECS = {
    "position": ArraySpec("box", (2, 2), "float32", low=(-1.0,), high=(1.0,)),
    "pixels": ArraySpec("box", (2,), "uint8", low=(0.0,), high=(255.0,)),
    "gear": ArraySpec("discrete", (), "int64", n=(3,)),
    "dials": ArraySpec("multi_discrete", (2,), "int64", n=(2, 3)),
    "lamps": ArraySpec("multi_binary", (2,), "int8"),
}
RAW = {
    "position": np.array([[[0.5, -1.0], [2.0, 3.0]]], np.float32),
    "pixels": np.array([[0, 255]], np.uint8),
    "gear": np.array([2]),
    "dials": np.array([[1, 0]]),
    "lamps": np.array([[0, 1]], np.int8),
}
FLAT = [0.5, -1.0, 2.0, 3.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]
ONE_BOX = {"observation": ArraySpec("box", (4,), "float32")}


def network(specs: dict[str, ArraySpec] = ONE_BOX, outputs: int = 3, **fields: object) -> ActorCriticMLP:
    torch.manual_seed(1)
    return ActorCriticMLP(MLPConfig(**fields), observations=specs, outputs=outputs)  # type: ignore[arg-type]


def test_slots_become_one_row_of_numbers_in_numpy_and_in_torch() -> None:
    in_numpy = flat_rows(RAW, SPECS)
    in_torch = FlatObservations(SPECS)({slot: torch.from_numpy(array) for slot, array in RAW.items()})

    np.testing.assert_allclose(in_numpy, [FLAT], rtol=1e-7)
    np.testing.assert_array_equal(in_torch.numpy(), in_numpy)
    assert in_numpy.dtype == np.float32 and flat_size(SPECS) == 16


def test_flattening_follows_the_dtype_of_its_module() -> None:
    raw = {**RAW, "pixels": np.array([[3, 254]], np.uint8)}
    flat = FlatObservations(SPECS).double()({slot: torch.from_numpy(array) for slot, array in raw.items()})
    in_numpy = flat_rows(raw, SPECS, dtype=np.dtype(np.float64))

    assert flat.dtype == torch.float64
    np.testing.assert_array_equal(flat.numpy(), in_numpy)
    np.testing.assert_allclose(in_numpy[0, 4:6], [3 / 255, 254 / 255], rtol=1e-15)
    assert FlatObservations(SPECS).state_dict() == {}


def test_observations_without_elements_are_refused_by_slot() -> None:
    with pytest.raises(SpaceError, match="expected elements in slot 'nothing', found the shape \\(0,\\)"):
        FlatObservations({"nothing": ArraySpec("box", (0,), "float32")})
    with pytest.raises(SpaceError, match="expected at least one slot, found none"):
        FlatObservations({})


def test_zero_observations_have_the_dtypes_that_slabs_have() -> None:
    dtypes = {slot: str(array.dtype) for slot, array in zero_observations(SPECS, 2).items()}

    assert dtypes == {"position": "float32", "pixels": "uint8", "gear": "int64", "dials": "int64", "lamps": "int8"}


def test_memory_that_must_not_be_written_is_copied_for_torch() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False

    tensor = as_tensor(array, torch.device("cpu"))
    tensor[0] = 7.0

    assert array[0] == 0.0


def test_initial_weights_are_orthogonal_with_the_gains_of_their_place() -> None:
    net = network(hidden_sizes=(8, 8))

    for layer, gain in (
        (net.policy_layers[1], math.sqrt(2.0)),
        (net.value_layers[1], math.sqrt(2.0)),
        (net.policy_head, 0.01),
        (net.value_head, 1.0),
    ):
        weight = layer.weight.detach()
        assert isinstance(weight, torch.Tensor)
        torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(len(weight)), rtol=1e-4, atol=1e-5)
        assert not layer.bias.any()


def test_separate_trunks_share_nothing_and_a_shared_one_is_used_by_both() -> None:
    inputs = {"observation": torch.ones(2, 4)}
    for shared, expected in ((False, 0), (True, 4 * 8 + 8)):
        net = network(hidden_sizes=(8,), shared=shared)
        outputs, values = net(inputs)
        (values.sum() + outputs.sum() * 0.0).backward()
        policy_layer = net.policy_layers[0]
        assert sum(int(p.grad is not None and p.grad.any()) * p.numel() for p in policy_layer.parameters()) == expected
        assert outputs.shape == (2, 3) and values.shape == (2,)


def test_without_hidden_layers_the_network_is_linear_and_cannot_share() -> None:
    outputs, values = network(hidden_sizes=())({"observation": torch.zeros(1, 4)})

    assert not outputs.any() and not values.any()
    with pytest.raises(ConfigError, match="expected hidden layers to share"):
        MLPConfig(hidden_sizes=(), shared=True)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "gelu", "silu"])
def test_every_activation_can_be_had(activation: str) -> None:
    net = network(hidden_sizes=(8,), activation=activation)
    inputs = torch.randn(3, 4)
    function = getattr(torch.nn.functional, activation)

    outputs, _ = net({"observation": inputs})

    hidden = function(net.policy_layers[0](inputs))
    torch.testing.assert_close(outputs, net.policy_head(hidden))


def test_the_frozen_copy_keeps_no_memory_of_every_number_of_rows() -> None:
    frozen = FrozenMLP(network(hidden_sizes=(64, 64)))
    rows = [0, *range(100, 300), 0]

    tracemalloc.start()
    try:
        shapes = [frozen({"observation": np.ones((n, 4), np.float32)}, rowwise=False).values.shape for n in rows]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert shapes == [(n,) for n in rows]
    assert kept < 2**20  # activations of all of them would take 40 MB


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_frozen_copy_predicts_what_torch_predicts_and_does_not_follow_later_changes(
    activation: str, shared: bool
) -> None:
    net = network(SPECS, hidden_sizes=(16, 8), activation=activation, shared=shared)
    rng = np.random.default_rng(0)
    raw = {slot: np.repeat(array, 5, axis=0) for slot, array in RAW.items()}
    raw["position"] = rng.standard_normal((5, 2, 2)).astype(np.float32)
    outputs, values = net({slot: torch.from_numpy(array) for slot, array in raw.items()})
    frozen = FrozenMLP(net)
    with torch.no_grad():
        net.policy_head.weight.zero_()

    for rowwise in (True, False):
        prediction = frozen(raw, rowwise=rowwise)
        np.testing.assert_allclose(prediction.outputs, outputs.detach().numpy(), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(prediction.values, values.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_only_networks_that_numpy_can_do_are_frozen() -> None:
    class Own(ActorCriticMLP):
        pass

    own = Own(MLPConfig(), observations=ONE_BOX, outputs=2)

    assert FrozenMLP.can_freeze(network())
    assert not FrozenMLP.can_freeze(own)
    assert not FrozenMLP.can_freeze(network(activation="gelu"))
    assert not FrozenMLP.can_freeze(network().double())


def test_only_networks_that_numpy_can_do_are_packed() -> None:
    partly_frozen = network()
    partly_frozen.value_head.bias.requires_grad_(False)

    assert PackedMLP.can_pack(network(shared=True))
    assert not PackedMLP.can_pack(network(activation="silu"))
    assert not PackedMLP.can_pack(partly_frozen)
    assert not PackedMLP.can_pack(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("sizes", [(64, 64), (256, 256)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_rowwise_predictions_have_the_same_bits_in_every_batch(activation: str, sizes: tuple[int, ...]) -> None:
    frozen = FrozenMLP(network(hidden_sizes=sizes, activation=activation))
    raw = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
    whole = frozen({"observation": raw}, rowwise=True)

    for rows in (1, 2, 3, 7, 8, 16):
        for start in range(0, 40 - rows, 5):
            part = frozen({"observation": raw[start : start + rows].copy()}, rowwise=True)
            np.testing.assert_array_equal(part.outputs, whole.outputs[start : start + rows])
            np.testing.assert_array_equal(part.values, whole.values[start : start + rows])
