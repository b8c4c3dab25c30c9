"""F5: the least epsilon of an optimiser is one that float32 holds, so that without a gradient nothing moves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from digideep.agent.a2c.config import A2CConfig
from digideep.agent.config import AgentConfig
from digideep.agent.dqn.config import DQNConfig
from digideep.agent.ppo.config import PPOConfig
from digideep.agent.sac.config import SACConfig
from digideep.errors import ConfigError
from digideep.model.flat import FlatAdam, FlatParameters, FlatRMSprop

LEAST = 1e-30


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_F5_the_least_epsilon_of_an_optimiser_moves_nothing_without_a_gradient(kind: str) -> None:
    flat = FlatParameters(nn.Linear(3, 2))
    optimiser = FlatAdam(flat, eps=LEAST) if kind == "adam" else FlatRMSprop(flat, eps=LEAST, alpha=0.99)
    before = flat.values.clone()
    flat.gradients.zero_()

    for _ in range(3):
        optimiser.step(1e-3)

    assert torch.equal(flat.values, before)


@pytest.mark.parametrize(
    ("config", "knob"),
    [(SACConfig, "adam_eps"), (DQNConfig, "adam_eps"), (PPOConfig, "adam_eps"), (A2CConfig, "optimizer_eps")],
)
def test_F5_an_epsilon_that_float32_does_not_hold_is_refused(config: type[AgentConfig], knob: str) -> None:
    config(**{knob: LEAST})

    with pytest.raises(
        ConfigError, match=f"{knob}: expected a finite number at least 1e-30 and at most .*, found 1e-50"
    ):
        config(**{knob: 1e-50})
