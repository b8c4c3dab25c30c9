"""Networks of the user with an attention mask: its infinities are saved, and everything learnt is refused as before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_agents import METHODS, SPEC, fill, updated

import digideep
from digideep.agent.a2c.agent import A2CAgent
from digideep.agent.a2c.config import A2CConfig
from digideep.agent.dqn.agent import DQNAgent
from digideep.agent.dqn.config import DQNConfig
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.errors import NonFiniteError
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.pipeline.contents import gather
from digideep.pipeline.manifest import Component
from digideep.pipeline.segments import KeptBuffers
from digideep.spec import ArraySpec

OWN = """
from dataclasses import dataclass
import torch
from torch import nn
from digideep.utility.node import Config

class Part(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.last = nn.Linear(inputs, outputs)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(4))
        self.register_buffer("mean", torch.zeros(2))
        # No part of the state, so it may be of a type that no array has.
        self.register_buffer("narrow", torch.full((2,), -torch.inf, dtype=torch.bfloat16), persistent=False)

    def shown(self, rows):
        return self.last(rows * torch.softmax(self.mask, -1)[0, 0])

class Policy(Part):
    def forward(self, observations):
        return self.shown(torch.cat(list(observations.values()), dim=1))

class ActorCritic(Part):
    def __init__(self, config, *, observations, outputs):
        super().__init__(sum(spec.flat_size for spec in observations.values()), outputs + 1)

    def forward(self, observations):
        found = self.shown(torch.cat(list(observations.values()), dim=1))
        return found[:, 1:], found[:, 0]

class Values(Policy):
    def __init__(self, config, *, observations, outputs):
        super().__init__(sum(spec.flat_size for spec in observations.values()), outputs)

class Critics(Part):
    def forward(self, observations, actions):
        return self.shown(torch.cat([*observations.values(), actions], dim=1)).T

class Networks(nn.Module):
    def __init__(self, config, *, observations, outputs, actions, critics, has_value, last_bound):
        super().__init__()
        self.policy, self.critics = Policy(5, outputs), Critics(5 + actions, critics)
        self.value = Policy(5, 1) if has_value else None

@dataclass(frozen=True)
class RolloutConfig(Config):
    builds = "masked_networks:ActorCritic"

@dataclass(frozen=True)
class ValuesConfig(Config):
    builds = "masked_networks:Values"

@dataclass(frozen=True)
class NetworksConfig(Config):
    builds = "masked_networks:Networks"

from digideep.params import cartpole_ppo as base
cpanel = {
    **base.cpanel, "num_envs": 2, "num_workers": 0, "epoch_size": 1, "number_epochs": 2, "total_frames": 0,
    "test_activate": False, "lr_final": None,
}
def gen_params(cpanel):
    tree = base.gen_params(cpanel)
    tree["agents"]["agent"]["model"] = {"type": "masked_networks:RolloutConfig"}
    return tree
"""
ROLLOUTS: dict[str, Any] = {"ppo": (PPOAgent, PPOConfig), "a2c": (A2CAgent, A2CConfig)}
EVERY = [*ROLLOUTS, "dqn", *METHODS]


@pytest.fixture(autouse=True)
def masked_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "masked_networks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("masked_networks", None)


def own(method: str) -> Any:
    options: dict[str, Any] = {"name": "agent", "spec": SPEC, "device": "cpu", "seed": 3, "monitor": lambda *_: None}
    options["allowed"] = ("digideep", "masked_networks")
    memory = options["memory"] = RingBuffer(RingBufferConfig(capacity=200), name="train")
    if method in ROLLOUTS:
        cls, config = ROLLOUTS[method]
        return cls(config(model={"type": "masked_networks:RolloutConfig"}), **options)
    fields: dict[str, Any] = {"batch_size": 16, "warm_up": 0}
    if method == "dqn":
        options["spec"] = SPEC._replace(actions={"": ArraySpec("discrete", (), "int64", n=(3,))})
        agent: Any = DQNAgent(DQNConfig(model={"type": "masked_networks:ValuesConfig"}, **fields), **options)
    else:
        config = METHODS[method].config(model={"type": "masked_networks:NetworksConfig"}, **fields)
        agent = METHODS[method].agent(config, **options)
    agent.memory = memory
    return agent


def saved(agent: Any) -> dict[str, Any]:
    """Return the state as a checkpoint gets it."""
    with agent.lending():
        state = agent.state_dict()
    contents = gather([Component("agents.agent", "agent", 1, state)], buffers=KeptBuffers(), known={})
    assert contents.components["agents.agent"]["files"] == ["agents.agent.safetensors"]
    return dict(agent.state_dict())


@pytest.mark.parametrize("method", EVERY)
def test_infinities_that_a_buffer_was_made_with_are_saved_also_after_a_resume(method: str) -> None:
    agent, resumed = own(method), own(method)
    if method in METHODS:
        fill(agent)
        updated(agent, 2)

    state = saved(agent)
    resumed.load_state_dict(state)
    again = saved(resumed)

    masks = [name for name in state["policy"] if name.endswith("mask")]
    assert masks
    for name in masks:
        assert np.isneginf(state["policy"][name]).sum() == 6
        np.testing.assert_array_equal(again["policy"][name], state["policy"][name])
    for part in state.get("targets", {}):
        assert np.isneginf(again["targets"][part]["mask"]).sum() == 6


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("tensor", ["mean", "mask", "last.weight"])
@pytest.mark.parametrize("method", EVERY)
def test_what_became_infinite_since_is_refused(method: str, tensor: str, value: float) -> None:
    agent = own(method)
    held = next(t for name, t in agent.policy.state_dict().items() if name.endswith(tensor))

    held.view(-1)[1] = value  # of the mask an element that was -inf

    with pytest.raises(NonFiniteError, match=rf"found {value} at .*{tensor}, 1 such in all; nothing was saved"):
        saved(agent)


@pytest.mark.parametrize("method", ["dqn", *METHODS])
def test_a_running_mean_of_a_target_that_became_infinite_is_refused(method: str) -> None:
    agent = own(method)
    part, target = next(iter(agent.targets.items()))

    target.mean[0] = torch.inf

    with pytest.raises(NonFiniteError, match=rf"found inf at \(0,\) of /targets/{part}/mean, 1 such in all"):
        saved(agent)


def test_a_session_with_an_attention_mask_trains_and_resumes(tmp_path: Path) -> None:
    session = digideep.run("masked_networks", session_path=str(tmp_path), log_level="fatal")

    root = str(session.paths.root)
    digideep.run(load_checkpoint=root, resume=True, repeal={"/runner/n_epochs": 3}, log_level="fatal")

    assert sorted(path.name for path in (session.paths.root / "checkpoints").iterdir())[-1] == "checkpoint-3"
