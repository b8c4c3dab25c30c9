"""Networks of the user with buffers and frozen weights, in methods whose targets follow them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_agents import METHODS, SPEC, fill, on_reference, updated

from digideep.errors import ConfigError
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer

OWN = """
from dataclasses import dataclass
import torch
from torch import nn
from digideep.utility.node import Config, setting

@dataclass(frozen=True)
class CountingConfig(Config):
    builds = "counting_networks:Networks"
    shares: bool = setting(False, "whether policy and critics have a layer in common")

class Part(nn.Module):
    '''Counts its calls in training, shifts its inputs by a buffer, and has a weight that does not learn.'''

    def __init__(self, inputs, outputs):
        super().__init__()
        self.frozen, self.last = nn.Linear(inputs, 8), nn.Linear(8, outputs)
        self.frozen.requires_grad_(False)
        self.register_buffer("calls", torch.zeros(()))

    def shown(self, rows):
        if self.training:
            self.calls = self.calls + 1.0  # another tensor under the same name
        return self.last(torch.tanh(self.frozen(rows)))

class Policy(Part):
    def forward(self, observations):
        return self.shown(torch.cat([observations["seen"], observations["goal"]], dim=1))

class Critics(Part):
    def forward(self, observations, actions):
        rows = torch.cat([observations["seen"], observations["goal"], actions], dim=1)
        return self.shown(rows).T

class Networks(nn.Module):
    def __init__(self, config, *, observations, outputs, actions, critics, has_value, last_bound):
        super().__init__()
        self.policy, self.critics = Policy(5, outputs), Critics(5 + actions, critics)
        self.value = Policy(5, 1) if has_value else None
        if config.shares:
            self.critics.last.bias = self.policy.last.bias
"""


@pytest.fixture(autouse=True)
def counting_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "counting_networks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("counting_networks", None)


def own(method: str, *, cls: type[Any] | None = None, seed: int = 3, **options: Any) -> Any:
    memory = RingBuffer(RingBufferConfig(capacity=200), name="train")
    model = {"type": "counting_networks:CountingConfig", **options}
    agent = (cls or METHODS[method].agent)(
        METHODS[method].config(model=model, batch_size=16, warm_up=0, tau=0.5),
        name="agent",
        spec=SPEC,
        memory=memory,
        device="cpu",
        seed=seed,
        monitor=lambda name, value: None,
        allowed=("digideep", "counting_networks"),
    )
    agent.memory = memory
    fill(agent)
    return agent


@pytest.mark.parametrize("method", METHODS)
def test_buffers_of_targets_are_those_of_the_parts_they_follow(method: str) -> None:
    agent = own(method)

    updated(agent, 4)

    assert agent.path.startswith("fused")
    for part, target in agent.targets.items():
        assert not target.training
        assert target.calls.item() > 0.0
        assert target.calls == agent.policy[part].calls
        assert not torch.equal(target.last.weight, agent.policy[part].last.weight)


@pytest.mark.parametrize("method", METHODS)
def test_a_new_run_begins_with_targets_that_are_copies_of_loaded_networks(method: str) -> None:
    former, agent = own(method, seed=7), own(method)
    updated(former, 3)

    agent.load_policy_state(former.policy_state())

    for part, target in agent.targets.items():
        for name, tensor in former.policy[part].state_dict().items():
            np.testing.assert_array_equal(target.state_dict()[name].numpy(), tensor.numpy(), err_msg=name)


@pytest.mark.parametrize("method", METHODS)
def test_weights_that_do_not_learn_stay_as_they_are_on_the_reference_path(method: str) -> None:
    agent = own(method, cls=on_reference(method))
    before = {part: module.frozen.weight.clone() for part, module in agent.policy.items() if hasattr(module, "frozen")}

    updated(agent, 3)

    assert agent.path.startswith("reference")
    for part, weight in before.items():
        assert torch.equal(agent.policy[part].frozen.weight, weight)


def test_weights_that_two_optimisers_would_move_are_refused_by_name() -> None:
    with pytest.raises(ConfigError) as refused:
        own("ddpg", shares=True)

    assert str(refused.value) == (
        "/agents/agent/model: expected policy and critics with weights of their own, found 'last.bias' in both; "
        "give each a copy"
    )
