"""DQN on CartPole-v1: the pole stays up for whole episodes after some thirty thousand frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params.common import COMMON
from digideep.params.dqn import DQN, dqn_params, q_network_node

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **DQN,
    # The environment, and how it is stepped: a chunk is 8 x 4 = 32 frames.
    "model_name": "CartPole-v1",
    "num_envs": 8,
    "n_steps": 4,
    # The run: epochs of 5,120 frames.
    "epoch_size": 160,
    "total_frames": 100_000,
    "stop_return": 495.0,
    "test_interval": 1,
    "test_win_size": 20,
    "save_interval": 2,
    # The method: a gradient step for every 2 frames.
    "gamma": 0.99,
    "lr": 1e-3,
    "lr_final": 0.0,
    "n_step": 3,
    "n_updates": 16,
    "batch_size": 64,
    "warm_up": 1000,
    "target_interval": 1,
    "tau": 0.005,
    "epsilon_final": 0.05,
    "epsilon_fraction": 0.2,
    "capacity": 100_000,
    # The model.
    "hidden_sizes": [128, 128],
    "activation": "relu",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return dqn_params(cpanel, model=q_network_node(cpanel))
