"""The part of a control panel that configures PPO, and the nodes made from it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from digideep.agent.ppo.config import PPOConfig
from digideep.memory.config import RollBufferConfig
from digideep.model.config import MLPConfig
from digideep.params.common import env_node, explorer_nodes, horizon_frames, runner_node
from digideep.utility.node import node

__all__ = ["PPO", "agent_node", "ppo_params"]

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


def agent_node(cpanel: Mapping[str, Any], *, model: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the node of a PPO agent whose schedules end where the goal is.

    `model` is the node of its network, without one a fully connected network as the control panel has it.
    """
    horizon = horizon_frames(cpanel)
    return node(
        PPOConfig,
        model=_mlp_node(cpanel) if model is None else dict(model),
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


def _mlp_node(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    return node(
        MLPConfig,
        hidden_sizes=cpanel["hidden_sizes"],
        activation=cpanel["activation"],
        shared=cpanel["shared"],
    )


def ppo_params(cpanel: Mapping[str, Any], *, model: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the whole params tree of one PPO agent that learns from the newest chunk; `model` as in `agent_node`."""
    return {
        "env": env_node(cpanel),
        "runner": runner_node(cpanel),
        "engine": cpanel["engine"],
        "explorer": explorer_nodes(cpanel),
        "memory": {"train": node(RollBufferConfig)},
        "agents": {"agent": agent_node(cpanel, model=model)},
    }
