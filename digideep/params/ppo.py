"""The part of a control panel that configures PPO, and the nodes made from it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from digideep.agent.ppo.config import PPOConfig, RecurrentPPOConfig
from digideep.errors import ConfigError
from digideep.memory.config import RollBufferConfig
from digideep.model.config import MLPConfig, RNNConfig
from digideep.params.common import horizon_frames, network_fields, whole_params
from digideep.utility.node import TYPE, node

__all__ = [
    "PPO",
    "RECURRENT_PPO",
    "agent_node",
    "mlp_node",
    "ppo_params",
    "recurrent_agent_node",
    "recurrent_ppo_params",
    "rnn_node",
]

PPO: Mapping[str, Any] = MappingProxyType(
    {
        "gae_lambda": 0.95,
        "lr_final": None,
        "clip_param": 0.2,
        "clip_param_final": None,
        "value_clip": 0.2,
        "entropy_coef": 0.01,
        "value_coef": 0.5,
        "max_grad_norm": 0.5,
        "target_kl": None,
        "update_epochs": 4,
        "minibatch_size": 256,
        "normalize_advantage": True,
        "adam_eps": 1e-5,
        "log_std_init": 0.0,
        "shared": False,
        "normalize_observations": False,
        "normalize_rewards": False,
        "action_transform": "clip",
    }
)
"""PPO's own control panel keys, with their defaults."""

RECURRENT_PPO: Mapping[str, Any] = MappingProxyType(
    {
        **{key: value for key, value in PPO.items() if key != "shared"},
        "cell": "gru",
        "units": 64,
        "sequence_length": 16,
    }
)
"""The same of PPO with a recurrent network, which always shares."""


def agent_node(cpanel: Mapping[str, Any], *, model: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the node of a PPO agent whose schedules end where the goal is.

    `model` is the node of its network, without one a fully connected network as the control panel has it.
    """
    horizon = horizon_frames(cpanel)
    return node(
        PPOConfig,
        model=mlp_node(cpanel) if model is None else dict(model),
        memory="train",
        gamma=cpanel["gamma"],
        gae_lambda=cpanel["gae_lambda"],
        lr=cpanel["lr"],
        lr_final=cpanel["lr_final"],
        lr_horizon=horizon,
        clip_param=cpanel["clip_param"],
        clip_param_final=cpanel["clip_param_final"],
        clip_param_horizon=horizon,
        value_clip=cpanel["value_clip"],
        entropy_coef=cpanel["entropy_coef"],
        value_coef=cpanel["value_coef"],
        max_grad_norm=cpanel["max_grad_norm"],
        target_kl=cpanel["target_kl"],
        update_epochs=cpanel["update_epochs"],
        minibatch_size=cpanel["minibatch_size"],
        normalize_advantage=cpanel["normalize_advantage"],
        adam_eps=cpanel["adam_eps"],
        log_std_init=cpanel["log_std_init"],
    )


def mlp_node(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node of a fully connected network as the control panel has it."""
    return node(MLPConfig, shared=cpanel["shared"], **network_fields(cpanel))


def recurrent_agent_node(cpanel: Mapping[str, Any], *, model: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the node of a PPO agent with a recurrent network, without `model` as the control panel has it.

    Raises:
        ConfigError: a chunk is no multiple of a sequence, and not shorter.
    """
    steps, length = cpanel["n_steps"], cpanel["sequence_length"]
    if length < 1 or (length < steps and steps % length):
        raise ConfigError(
            f"sequence_length: expected a divisor of n_steps, which is {steps}, found {length}; change either"
        )
    plain = agent_node(cpanel, model=rnn_node(cpanel) if model is None else model)
    fields = {key: value for key, value in plain.items() if key != TYPE}
    return node(RecurrentPPOConfig, sequence_length=length, **fields)


def rnn_node(cpanel: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the node of a recurrent network as the control panel has it, with further `fields`."""
    return node(RNNConfig, cell=cpanel["cell"], units=cpanel["units"], **network_fields(cpanel), **fields)


def ppo_params(cpanel: Mapping[str, Any], *, model: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the whole params tree of one PPO agent that learns from the newest chunk; `model` as in `agent_node`."""
    return whole_params(cpanel, agent=agent_node(cpanel, model=model), memory=node(RollBufferConfig))


def recurrent_ppo_params(cpanel: Mapping[str, Any], *, model: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the same with a recurrent network; `model` as in `recurrent_agent_node`."""
    return whole_params(cpanel, agent=recurrent_agent_node(cpanel, model=model), memory=node(RollBufferConfig))
