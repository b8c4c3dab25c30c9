"""Q-learning on Toy-v0 with everything on that has a state and a memory that wraps around; an epoch is an instant."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from digideep.memory.config import RingBufferConfig
from digideep.model.config import MLPConfig
from digideep.params.common import COMMON, network_fields, whole_params
from digideep.testing.q_config import QConfig
from digideep.utility.node import TYPE, node

__all__ = ["Q", "cpanel", "gen_params", "q_params"]

_OWN = {key: value for key, value in node(QConfig).items() if key not in (TYPE, "model", "memory", "gamma", "lr")}

Q: Mapping[str, Any] = MappingProxyType(
    {
        **_OWN,
        "capacity": 10_000,
        "on_disk": False,
        "on_damage": "stop",
        "normalize_observations": False,
        "normalize_rewards": False,
    }
)
"""The Q-learner's own control panel keys, with their defaults."""

cpanel: dict[str, Any] = {
    **COMMON,
    **Q,
    # The environment: four directions, in two worker processes. A chunk is 4 x 32 = 128 rows.
    "model_name": "digideep.testing:Toy-v0",
    "num_envs": 4,
    "num_workers": 2,
    "n_steps": 32,
    # The run: tests and saves at every epoch of two chunks.
    "epoch_size": 2,
    "number_epochs": 6,
    "test_interval": 1,
    "test_win_size": 3,
    "save_interval": 1,
    # The memory: full after five of the twelve chunks.
    "capacity": 600,
    # The method: both normalisers, every schedule, and noise.
    "normalize_observations": True,
    "normalize_rewards": True,
    "gamma": 0.95,
    "n_step": 3,
    "n_updates": 8,
    "target_interval": 13,
    "lr": 1e-3,
    "lr_final": 1e-4,
    "lr_horizon": 70,
    "warm_up": 200,
    "epsilon": 0.9,
    "epsilon_horizon": 1000,
    "noise_scale": 0.05,
}


def q_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole params tree of one Q-learner with a replay memory."""
    model = node(MLPConfig, **network_fields(cpanel))
    own = {key: cpanel[key] for key in _OWN}
    agent = node(QConfig, model=model, memory="train", gamma=cpanel["gamma"], lr=cpanel["lr"], **own)
    memory = {key: cpanel[key] for key in ("capacity", "on_disk", "on_damage")}
    return whole_params(cpanel, agent=agent, memory=node(RingBufferConfig, **memory))


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return q_params(cpanel)
