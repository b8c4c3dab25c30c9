"""One encoder for each observation slot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from digideep.errors import SpaceError
from digideep.model.config import MixedConfig
from digideep.model.encoders import ActorCriticMixed, Encoders, PictureEncoder, encoder_size, make_encoder
from digideep.model.observations import FlatObservations
from digideep.spec import ArraySpec

CONFIG = MixedConfig(channels=(4, 6), kernels=(4, 3), strides=(2, 1), picture_sizes=(5,), hidden_sizes=(8,))
SPECS = {
    "front": ArraySpec("box", (3, 14, 12), "uint8", low=(0.0,), high=(255.0,)),
    "speed": ArraySpec("box", (2, 2), "float32"),
    "gear": ArraySpec("discrete", (), "int64", n=(3,)),
    "map": ArraySpec("box", (12, 16, 1), "float32"),
}


def seen(specs: dict[str, ArraySpec] = SPECS, rows: int = 4) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)

    def one(spec: ArraySpec) -> Any:
        if spec.kind == "discrete":
            return rng.integers(0, spec.n[0], rows)
        high = 256 if spec.dtype == "uint8" else 2
        return rng.integers(0, high, (rows, *spec.shape))

    return {slot: torch.as_tensor(np.asarray(one(spec), spec.dtype)) for slot, spec in specs.items()}


def test_flat_slots_come_first_and_each_picture_has_its_own_features() -> None:
    torch.manual_seed(0)
    encoder = make_encoder(CONFIG, SPECS)
    observations = seen()

    encoded = encoder(observations)

    assert isinstance(encoder, Encoders)
    assert encoder_size(encoder) == 4 + 3 + 5 + 5
    flat = FlatObservations({slot: SPECS[slot] for slot in ("speed", "gear")})(observations)
    torch.testing.assert_close(encoded[:, :7], flat)
    for index, (slot, columns) in enumerate((("front", slice(7, 12)), ("map", slice(12, 17))), start=1):
        part = encoder.parts[index]
        assert isinstance(part, PictureEncoder)
        torch.testing.assert_close(encoded[:, columns], part({slot: observations[slot]}))
        changed = {**observations, slot: observations[slot].flip(1)}
        differs = (encoder(changed) != encoded).any(0)
        assert differs[columns].any() and differs.sum() == differs[columns].sum()


@pytest.mark.parametrize(
    ("spec", "is_picture"),
    [
        (ArraySpec("box", (36, 36), "uint8"), True),
        (ArraySpec("box", (36, 36), "float32"), False),
        (ArraySpec("box", (3, 36, 36), "float32"), True),
        (ArraySpec("box", (36, 36, 3), "uint8"), True),
        (ArraySpec("box", (7, 7, 3), "uint8"), False),
        (ArraySpec("box", (3, 35, 36), "uint8"), False),
        (ArraySpec("box", (128,), "uint8"), False),
        (ArraySpec("multi_binary", (36, 36), "int8"), False),
    ],
)
def test_what_counts_as_a_picture_of_the_usual_convolutions(spec: ArraySpec, is_picture: bool) -> None:
    encoder = make_encoder(MixedConfig(), {"observation": spec})

    assert isinstance(encoder, PictureEncoder if is_picture else FlatObservations)


def test_observations_without_pictures_are_only_flattened() -> None:
    specs = {slot: SPECS[slot] for slot in ("speed", "gear")}

    encoder = make_encoder(CONFIG, specs)

    assert isinstance(encoder, FlatObservations) and encoder.size == 7
    assert list(encoder.parameters()) == []
    with pytest.raises(SpaceError, match="at least one slot, found none"):
        make_encoder(CONFIG, {})


def test_the_network_learns_from_every_slot() -> None:
    torch.manual_seed(0)
    network = ActorCriticMixed(CONFIG, observations=SPECS, outputs=3)
    observations = seen()
    expected = network(observations)

    (expected[0].square().sum() + expected[1].square().sum()).backward()
    turned = {
        slot: tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
        for slot, tensor in observations.items()
    }

    assert all(p.grad is not None and p.grad.any() for p in network.parameters())
    assert network.wants_channels_last
    assert all(torch.equal(a, b) for a, b in zip(network(turned), expected, strict=True))
    assert (expected[0].shape, expected[1].shape) == ((4, 3), (4,))


def test_bytes_are_seen_from_0_to_1() -> None:
    torch.manual_seed(0)
    spec = SPECS["front"]
    of_bytes = make_encoder(CONFIG, {"front": spec})
    of_numbers = make_encoder(CONFIG, {"front": spec._replace(dtype="float32")})
    of_numbers.load_state_dict(of_bytes.state_dict())
    pictures = seen({"front": spec})["front"]

    torch.testing.assert_close(of_bytes({"front": pictures}), of_numbers({"front": pictures / 255.0}))
