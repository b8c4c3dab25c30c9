"""Networks of action values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from digideep.errors import ConfigError
from digideep.model.config import QMixedConfig, QNetworkConfig
from digideep.model.q_network import QMixedNetwork, QNetwork
from digideep.spec import ArraySpec

FLAT = {"seen": ArraySpec("box", (3,), "float32")}
PICTURE = ArraySpec("box", (4, 84, 84), "uint8")


def rows(count: int = 5) -> dict[str, torch.Tensor]:
    return {"seen": torch.from_numpy(np.random.default_rng(1).standard_normal((count, 3)).astype(np.float32))}


def test_a_dueling_network_adds_a_value_and_advantages_whose_mean_is_nothing() -> None:
    network = QNetwork(QNetworkConfig(hidden_sizes=(8,), dueling=True), observations=FLAT, outputs=4)

    values = network(rows()).detach()

    features = rows()["seen"]
    advantages, value = (network.streams[name](features)[0].detach() for name in ("advantages", "value"))
    assert value.shape == (5, 1)
    for i in range(5):
        mean = sum(float(advantages[i, a]) for a in range(4)) / 4
        for a in range(4):
            assert float(values[i, a]) == pytest.approx(float(value[i, 0]) + float(advantages[i, a]) - mean, abs=1e-6)
    np.testing.assert_allclose(values.mean(dim=1), value[:, 0], atol=1e-6)


def test_a_plain_network_is_one_stream_with_a_value_for_each_action() -> None:
    network = QNetwork(QNetworkConfig(hidden_sizes=(8, 6)), observations=FLAT, outputs=4)

    assert list(network.streams) == ["q"]
    assert network.noise_size == 0
    assert network(rows()).shape == (5, 4)


@pytest.mark.parametrize("dueling", [False, True])
def test_the_network_for_pictures_is_that_of_2015(dueling: bool) -> None:
    network = QMixedNetwork(QMixedConfig(dueling=dueling), observations={"observation": PICTURE}, outputs=6)
    shapes = sorted(tuple(parameter.shape) for parameter in network.parameters() if parameter.dim() == 4)
    pictures = {"observation": torch.zeros((2, 4, 84, 84), dtype=torch.uint8)}

    values = network(pictures)

    assert shapes == [(32, 8, 8, 4), (64, 3, 3, 64), (64, 4, 4, 32)]
    assert [tuple(s.layers[0].weight.shape) for s in network.streams.values()] == [(1, 512, 3136)] * (1 + dueling)
    assert values.shape == (2, 6)
    assert network.wants_channels_last


def test_pictures_and_numbers_side_by_side_become_one_row() -> None:
    observations = {"camera": PICTURE, "seen": FLAT["seen"]}
    network = QMixedNetwork(QMixedConfig(hidden_sizes=(16,), noisy=True), observations=observations, outputs=2)
    inputs = {"camera": torch.zeros((3, 4, 84, 84), dtype=torch.uint8), **rows(3)}

    noise = torch.ones(network.noise_size)

    assert network.noise_size == (3136 + 3 + 16) + (16 + 2)
    assert network(inputs).shape == (3, 2)
    assert not torch.equal(network(inputs, noise), network(inputs))


@pytest.mark.parametrize("config", [QNetworkConfig, QMixedConfig])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"critic_hidden_sizes": (8,)}, r"critic_hidden_sizes: expected null.*found \[8\]; leave it out"),
        ({"critic_observations": ("seen",)}, r"critic_observations: expected \[\].*found \['seen'\]; leave it out"),
    ],
)
def test_there_is_no_critic_that_could_have_something_of_its_own(
    config: type[QNetworkConfig], fields: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{config.__name__}/{expected}"):
        config(**fields)
