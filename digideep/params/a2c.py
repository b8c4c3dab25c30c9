"""The part of a control panel that configures A2C, and the nodes made from it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from digideep.agent.a2c.config import A2CConfig
from digideep.memory.config import RollBufferConfig
from digideep.params.common import horizon_frames, whole_params
from digideep.params.ppo import mlp_node
from digideep.utility.node import node

__all__ = ["A2C", "a2c_params", "agent_node"]

A2C: Mapping[str, Any] = MappingProxyType(
    {
        "gae_lambda": 1.0,
        "lr_final": None,
        "entropy_coef": 0.01,
        "value_coef": 0.5,
        "max_grad_norm": 0.5,
        "normalize_advantage": False,
        "optimizer": "rmsprop",
        "optimizer_eps": 1e-5,
        "rmsprop_alpha": 0.99,
        "log_std_init": 0.0,
        "shared": False,
        "normalize_observations": False,
        "normalize_rewards": False,
        "action_transform": "clip",
    }
)
"""A2C's own control panel keys, with their defaults."""


def agent_node(cpanel: Mapping[str, Any], *, model: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the node of an A2C agent whose learning rate moves until the goal.

    `model` is the node of its network, without one a fully connected network as the control panel has it.
    """
    return node(
        A2CConfig,
        model=mlp_node(cpanel) if model is None else dict(model),
        memory="train",
        gamma=cpanel["gamma"],
        gae_lambda=cpanel["gae_lambda"],
        lr=cpanel["lr"],
        lr_final=cpanel["lr_final"],
        lr_horizon=horizon_frames(cpanel),
        entropy_coef=cpanel["entropy_coef"],
        value_coef=cpanel["value_coef"],
        max_grad_norm=cpanel["max_grad_norm"],
        normalize_advantage=cpanel["normalize_advantage"],
        log_std_init=cpanel["log_std_init"],
        optimizer=cpanel["optimizer"],
        optimizer_eps=cpanel["optimizer_eps"],
        rmsprop_alpha=cpanel["rmsprop_alpha"],
    )


def a2c_params(cpanel: Mapping[str, Any], *, model: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the whole params tree of one A2C agent that learns from the newest chunk; `model` as in `agent_node`."""
    return whole_params(cpanel, agent=agent_node(cpanel, model=model), memory=node(RollBufferConfig))
