"""The residual network of IMPALA against a plain torch one of the same weights."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from digideep.errors import ConfigError, SpaceError
from digideep.model.config import ResNetConfig
from digideep.model.resnet import ActorCriticResNet, Section
from digideep.model.tail import Convolution
from digideep.spec import ArraySpec

SMALL = ResNetConfig(channels=(4, 6), blocks=2, hidden_sizes=(8,))


def network(config: ResNetConfig = SMALL, *shape: int, dtype: str = "uint8") -> ActorCriticResNet:
    torch.manual_seed(0)
    spec = ArraySpec("box", shape or (2, 13, 10), dtype, low=(0.0,), high=(255.0,))
    return ActorCriticResNet(config, observations={"observation": spec}, outputs=3)


def bytes_like(made: ActorCriticResNet, rows: int) -> torch.Tensor:
    shape = made.observations["observation"].shape
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (rows, *shape)).astype(np.uint8))


def plain(made: ActorCriticResNet, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as others write it: bytes divided first, channels first in memory, linear layers."""

    def convolve(layer: Convolution, inputs: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(inputs, layer.weight.permute(0, 3, 1, 2).contiguous(), layer.bias, padding=1)

    hidden = pictures.to(made.policy_head.weight.dtype) / 255.0
    for section in made.sections:
        hidden = functional.max_pool2d(convolve(section.convolution, hidden), 3, stride=2, padding=1)
        for block in section.blocks:
            inner = convolve(block.first, torch.relu(hidden))
            hidden = hidden + convolve(block.second, torch.relu(inner))
    hidden = torch.relu(hidden).permute(0, 2, 3, 1).flatten(1)
    for layer in made.hidden:
        hidden = torch.relu(functional.linear(hidden, layer.weight.flatten(1), layer.bias))
    return made.policy_head(hidden), made.value_head(hidden).squeeze(-1)


def test_it_gives_what_a_plain_network_gives_and_its_gradients() -> None:
    made = network().double()
    other, pictures = copy.deepcopy(made), bytes_like(made, 4)

    found, expected = made({"observation": pictures}), plain(other, pictures)
    for outputs, values in (found, expected):
        ((outputs * torch.arange(3.0)).sum() + values.square().sum()).backward()

    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-12, atol=1e-12)
    for (name, mine), theirs in zip(made.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-12, msg=name)


def test_the_standard_network_has_the_published_sections() -> None:
    made = network(ResNetConfig(), 4, 84, 84)

    assert [section.convolution.weight.shape[0] for section in made.sections] == [16, 32, 32]
    assert [len(section.blocks) for section in made.sections] == [2, 2, 2]
    assert [tuple(layer.weight.shape) for layer in made.hidden] == [(256, 11, 11, 32)]
    convolutions = [module for module in made.modules() if isinstance(module, Convolution)]
    assert len(convolutions) == 3 + 3 * 2 * 2 + 1
    assert sum(p.numel() for p in made.parameters()) == 1_090_260


def test_weights_are_normal_with_the_deviation_of_their_inputs_and_none_is_far_out() -> None:
    made = network(ResNetConfig(), 4, 84, 84)

    for layer in (made.sections[2].blocks[1].second, made.hidden[0]):
        weight = layer.weight.detach()
        deviation = 1.0 / math.sqrt(weight[0].numel())
        assert weight.abs().max().item() <= 2.0 * deviation
        assert 0.85 * deviation < weight.std().item() < 0.91 * deviation  # that of a normal cut at two of its own
        assert not layer.bias.any()
    rows = made.policy_head.weight.detach()
    torch.testing.assert_close(rows @ rows.T, 1e-4 * torch.eye(3), rtol=1e-4, atol=1e-8)


def test_the_layout_of_pictures_in_memory_does_not_change_a_bit() -> None:
    made = network()
    pictures = bytes_like(made, 6)

    with torch.no_grad():
        plainly = made({"observation": pictures})
        turned = made({"observation": pictures.contiguous(memory_format=torch.channels_last)})

    assert made.wants_channels_last and not network(SMALL, 13, 10, 2).wants_channels_last
    assert all(torch.equal(a, b) for a, b in zip(plainly, turned, strict=True))


def test_features_keep_the_channels_of_a_pixel_side_by_side() -> None:
    made = network()
    seen: list[bool] = []
    for module in made.modules():
        if isinstance(module, Convolution | Section):
            module.register_forward_hook(
                lambda _, inputs, output: seen.append(output.is_contiguous(memory_format=torch.channels_last))
            )

    made({"observation": bytes_like(made, 5)})

    assert len(seen) == 2 * (1 + 1 + 4) + 1
    assert all(seen)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "gelu", "silu"])
def test_no_activation_spoils_what_the_backward_pass_needs(activation: str) -> None:
    made = network(ResNetConfig(channels=(2,), blocks=1, hidden_sizes=(3,), activation=activation), 1, 5, 5)  # type: ignore[arg-type]
    made = made.double()
    weight = made.sections[0].blocks[0].first.weight
    pictures = bytes_like(made, 2)

    def value() -> torch.Tensor:
        outputs, values = made({"observation": pictures})
        return 100.0 * outputs.square().sum() + values.sum()

    value().backward()
    with torch.no_grad():
        weight[0, 1, 1, 0] += 1e-6
        above = value()
        weight[0, 1, 1, 0] -= 2e-6
        difference = (above - value()) / 2e-6

    assert weight.grad is not None
    torch.testing.assert_close(weight.grad[0, 1, 1, 0], difference, rtol=1e-4, atol=1e-8)


def test_what_is_no_picture_and_no_section_is_refused() -> None:
    with pytest.raises(SpaceError, match="expected a picture"):
        ActorCriticResNet(SMALL, observations={"observation": ArraySpec("box", (7,), "float32")}, outputs=2)
    with pytest.raises(ConfigError, match="expected at least one section"):
        ResNetConfig(channels=())
