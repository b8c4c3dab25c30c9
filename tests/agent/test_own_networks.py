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
from torch import nn

from digideep.agent.dqn.agent import DQNAgent
from digideep.agent.dqn.config import DQNConfig
from digideep.agent.modules import check_floats
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.errors import ConfigError
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.spec import ArraySpec

OWN = """
from dataclasses import dataclass
import torch
from torch import nn
from digideep.utility.node import Config, setting

@dataclass(frozen=True)
class CountingConfig(Config):
    builds = "counting_networks:Networks"
    shares: bool = setting(False, "whether policy and critics have a layer in common")
    dtype: str = setting("float32", "type of the numbers")

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
        self.to(getattr(torch, config.dtype))

class ActorCritic(Part):
    def __init__(self, config, *, observations, outputs):
        super().__init__(5, outputs + 1)
        self.to(getattr(torch, config.dtype))

    def forward(self, observations):
        found = self.shown(torch.cat([observations["seen"], observations["goal"]], dim=1))
        return found[:, 1:], found[:, 0]

class Values(Policy):
    def __init__(self, config, *, observations, outputs):
        super().__init__(5, outputs)
        self.to(getattr(torch, config.dtype))

@dataclass(frozen=True)
class ActorCriticConfig(CountingConfig):
    builds = "counting_networks:ActorCritic"

@dataclass(frozen=True)
class ValuesConfig(CountingConfig):
    builds = "counting_networks:Values"
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


@pytest.mark.parametrize("method", [*METHODS, "dqn", "ppo"])
def test_numbers_of_a_type_that_no_array_has_are_refused_by_name(method: str) -> None:
    spec = SPEC._replace(actions={"": ArraySpec("discrete", (), "int64", n=(3,))})
    memory = RingBuffer(RingBufferConfig(capacity=200), name="train")
    options: dict[str, Any] = {"memory": memory, "device": "cpu", "seed": 3, "monitor": lambda *_: None}
    options |= {"name": "agent", "spec": spec, "allowed": ("digideep", "counting_networks")}

    with pytest.raises(ConfigError) as refused:
        if method == "dqn":
            DQNAgent(DQNConfig(model={"type": "counting_networks:ValuesConfig", "dtype": "bfloat16"}), **options)
        elif method == "ppo":
            PPOAgent(PPOConfig(model={"type": "counting_networks:ActorCriticConfig", "dtype": "bfloat16"}), **options)
        else:
            own(method, dtype="bfloat16")

    first = "policy.calls" if method in METHODS else "calls"
    assert str(refused.value) == (
        f"/agents/agent/model: expected weights and buffers of a type that checkpoints have, such as float32, found "
        f"{first!r} as bfloat16; make it float32"
    )


def test_a_network_that_raises_in_the_trial_is_told_with_its_line() -> None:
    class Broken(nn.Module):
        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return observations.missing  # type: ignore[no-any-return]

    at = r"raised AttributeError: .* 'missing' at \S+/test_own_networks\.py:\d+; correct the network$"
    with pytest.raises(ConfigError, match=at):
        check_floats(Broken(), torch.zeros(2, 3), shape=(2, 1), name="the critic", where="/agents/agent/critic")
