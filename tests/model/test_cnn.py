"""The convolutional network against a plain torch one of the same weights."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from digideep.errors import ConfigError, SpaceError
from digideep.model.cnn import ActorCriticCNN
from digideep.model.config import CNNConfig
from digideep.spec import ArraySpec

SMALL = CNNConfig(channels=(4, 8), kernels=(4, 3), strides=(2, 1), hidden_sizes=(16,))


def picture(*shape: int, dtype: str = "uint8") -> dict[str, ArraySpec]:
    return {"observation": ArraySpec("box", shape, dtype, low=(0.0,), high=(255.0,))}


def network(config: CNNConfig = SMALL, *shape: int, dtype: str = "uint8", outputs: int = 3) -> ActorCriticCNN:
    torch.manual_seed(0)
    return ActorCriticCNN(config, observations=picture(*(shape or (2, 14, 12)), dtype=dtype), outputs=outputs)


def bytes_like(made: ActorCriticCNN, rows: int) -> torch.Tensor:
    shape = made.observations["observation"].shape
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (rows, *shape)).astype(np.uint8))


class Plain(nn.Module):
    """The same network as others write it: linear layers after the pictures were flattened, bytes divided first."""

    def __init__(self, made: ActorCriticCNN) -> None:
        super().__init__()
        self.made = copy.deepcopy(made)

    def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = pictures.to(self.made.policy_head.weight.dtype) / 255.0
        for layer, stride in zip(self.made.convolutions, self.made.config.strides, strict=True):
            kernel = layer.weight.permute(0, 3, 1, 2).contiguous()
            hidden = torch.relu(nn.functional.conv2d(hidden, kernel, layer.bias, stride))
        hidden = hidden.permute(0, 2, 3, 1).flatten(1)
        for layer in self.made.hidden:
            hidden = torch.relu(nn.functional.linear(hidden, layer.weight.flatten(1), layer.bias))
        return self.made.policy_head(hidden), self.made.value_head(hidden).squeeze(-1)


def test_it_gives_what_a_plain_network_gives_and_its_gradients() -> None:
    made = network().double()
    plain, pictures = Plain(made), bytes_like(made, 5)

    found, expected = made({"observation": pictures}), plain(pictures)
    for outputs, values in (found, expected):
        ((outputs * torch.arange(3.0)).sum() + values.square().sum()).backward()

    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-12, atol=1e-12)
    for (name, mine), theirs in zip(made.named_parameters(), plain.made.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize("shape", [(14, 12, 2), (14, 12)])
def test_channels_may_be_the_last_axis_or_be_left_out(shape: tuple[int, ...]) -> None:
    made = network(SMALL, *shape)
    first = network(SMALL, *((2, 14, 12) if len(shape) == 3 else (1, 14, 12)))
    first.load_state_dict(made.state_dict())
    pictures = bytes_like(made, 3)
    turned = pictures.permute(0, 3, 1, 2) if len(shape) == 3 else pictures.unsqueeze(1)

    found, expected = made({"observation": pictures}), first({"observation": turned.contiguous()})

    torch.testing.assert_close(found, expected)
    assert (made.picture.is_last, made.wants_channels_last) == ((True, False) if len(shape) == 3 else (False, True))


def test_the_layout_of_pictures_in_memory_does_not_change_a_bit() -> None:
    made = network()
    pictures = bytes_like(made, 6)

    with torch.no_grad():
        plain = made({"observation": pictures})
        turned = made({"observation": pictures.contiguous(memory_format=torch.channels_last)})

    assert all(torch.equal(a, b) for a, b in zip(plain, turned, strict=True))


def test_bytes_are_seen_from_0_to_1_and_other_numbers_as_they_are() -> None:
    of_bytes, of_numbers = network(), network(SMALL, dtype="float32")
    pictures = bytes_like(of_bytes, 4)

    found = of_numbers({"observation": pictures.float() / 255.0})

    torch.testing.assert_close(of_bytes({"observation": pictures}), found, rtol=1e-5, atol=1e-6)


def test_the_standard_network_has_the_published_sizes_and_orthogonal_weights() -> None:
    made = network(CNNConfig(), 4, 84, 84, outputs=6)

    assert sum(p.numel() for p in made.parameters()) == 1_687_719
    assert [tuple(layer.weight.shape) for layer in made.convolutions] == [(32, 8, 8, 4), (64, 4, 4, 32), (64, 3, 3, 64)]
    assert [tuple(layer.weight.shape) for layer in made.hidden] == [(512, 7, 7, 64)]
    rows = made.convolutions[1].weight.flatten(1)
    torch.testing.assert_close(rows @ rows.T, 2.0 * torch.eye(64), rtol=0, atol=1e-5)
    assert not any(layer.bias.any() for layer in (*made.convolutions, *made.hidden))


def test_weights_are_those_that_torch_draws_for_plain_layers() -> None:
    made = network()

    torch.manual_seed(0)
    expected = nn.init.orthogonal_(torch.empty(4, 2, 4, 4), 2.0**0.5)

    torch.testing.assert_close(made.convolutions[0].weight.permute(0, 3, 1, 2), expected)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "gelu", "silu"])
def test_every_activation_has_its_gradient(activation: Any) -> None:
    config = CNNConfig(channels=(2,), kernels=(3,), strides=(2,), hidden_sizes=(4,), activation=activation)
    made = network(config, 1, 5, 5, dtype="float32", outputs=2).double()
    pictures = torch.rand(2, 1, 5, 5, dtype=torch.float64)
    weight = made.convolutions[0].weight

    def value() -> torch.Tensor:
        outputs, values = made({"observation": pictures})
        return outputs.square().sum() + values.sum()

    value().backward()
    step = torch.zeros_like(weight)
    step[0, 1, 1, 0] = 1e-6
    with torch.no_grad():
        weight.add_(step)
        above = value()
        weight.sub_(2 * step)
        difference = (above - value()) / 2e-6

    assert weight.grad is not None
    torch.testing.assert_close(weight.grad[0, 1, 1, 0], difference, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("observations", "found"),
    [
        (picture(7), r"picture \[channels, height, width\] in 'observation', found box of shape \(7,\)"),
        (picture(2, 6, 5), r"found \(2, 6, 5\) in 'observation', of which a kernel of 3 meets 2 x 1"),
        ({**picture(2, 14, 12), "speed": ArraySpec("box", (1,), "float32")}, "slots observation, speed"),
    ],
    ids=["flat", "small", "two"],
)
def test_what_is_no_picture_is_refused_in_one_line(observations: dict[str, ArraySpec], found: str) -> None:
    with pytest.raises(SpaceError, match=found) as caught:
        ActorCriticCNN(SMALL, observations=observations, outputs=2)

    assert "\n" not in str(caught.value)


def test_a_configuration_with_too_few_kernels_is_refused() -> None:
    with pytest.raises(ConfigError, match="as many channels as kernels and strides"):
        CNNConfig(channels=(4, 8), kernels=(3,), strides=(1, 1))
