"""Agents with real actions and a replay memory, as the contract of agents is tried on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from digideep.agent.ddpg.agent import DDPGAgent
from digideep.agent.ddpg.config import DDPGConfig
from digideep.agent.replay.config import ReplayConfig
from digideep.agent.sac.agent import SACAgent
from digideep.agent.sac.config import SACConfig
from digideep.agent.sac_value.agent import SACValueAgent
from digideep.agent.sac_value.config import SACValueConfig
from digideep.agent.td3.agent import TD3Agent
from digideep.agent.td3.config import TD3Config
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.model.config import ActorCriticsConfig
from digideep.spec import ArraySpec, EnvSpec
from digideep.utility.node import node

OBSERVATION = {"observation": ArraySpec("box", (3,), "float32")}
BOX = EnvSpec("Made-v0", OBSERVATION, {"": ArraySpec("box", (2,), "float32", low=(-1.0,), high=(1.0,))})
IDLE = {"steps", "generators/noise", "exploration/noise"}
"""Parts of a state that every method with a replay memory has, though some make nothing of them."""


def continuous(agent: type[Any], config: type[ReplayConfig], *, activation: str = "relu", **own: Any) -> Any:
    fields = {"n_step": 2, "n_updates": 3, "batch_size": 8, "lr": 0.01, "lr_final": 0.0, "lr_horizon": 500, **own}

    def make() -> Any:
        model = node(ActorCriticsConfig, hidden_sizes=[8], activation=activation)
        memory = RingBuffer(RingBufferConfig(capacity=60), name="train")
        return agent(
            config(model=model, warm_up=32, **fields), name="agent", spec=BOX, memory=memory, device="cpu", seed=3,
            monitor=lambda name, value: None,
        )  # fmt: skip

    return make


def replay(*parts: str, targets: Sequence[str], idle: Sequence[str] = ()) -> list[str]:
    """Return what the state of a method with a replay memory is made of; it makes nothing of what is idle."""
    moments = [f"optimisers/{part}/{moment}" for part in parts for moment in ("step", "exp_avg", "exp_avg_sq")]
    kept = ["policy", "updates", "steps", "exploration/rows", "exploration/noise", "exploration/generator"]
    every = [*kept, "generators/replay", "generators/noise", *moments, *(f"targets/{part}" for part in targets)]
    return [part for part in every if part not in idle]


CONTINUOUS = {
    "ddpg": continuous(DDPGAgent, DDPGConfig, noise_scale_final=0.0, noise_horizon=300),
    "td3": continuous(TD3Agent, TD3Config, policy_delay=4),
    "td3, in torch": continuous(TD3Agent, TD3Config, policy_delay=4, activation="gelu"),
    "sac": continuous(SACAgent, SACConfig),
    "sac with a value": continuous(SACValueAgent, SACValueConfig),
}
CONTINUOUS_PARTS = {
    "ddpg": replay("critic", "policy", targets=("critic", "policy"), idle=("steps", "generators/noise")),
    "td3": replay("critic", "policy", targets=("critic", "policy"), idle=("exploration/noise",)),
    "sac": replay("critic", "temperature", "policy", targets=("critic",), idle=("steps", "exploration/noise")),
    "sac with a value": replay("value", "critic", "policy", targets=("value",), idle=("steps", "exploration/noise")),
}
"""What their states are made of, without what they make nothing of."""
