"""PPO on Pendulum-v1: a pendulum is swung up by a continuous torque; normalised observations and rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params.common import COMMON
from digideep.params.ppo import PPO, ppo_params

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **PPO,
    # The environment, and how it is stepped: a chunk is 8 x 256 = 2,048 frames; episodes have 200 steps.
    "model_name": "Pendulum-v1",
    "num_envs": 8,
    "n_steps": 256,
    "normalize_observations": True,
    "normalize_rewards": True,
    "action_transform": "clip",
    # The run: epochs of 4 chunks.
    "epoch_size": 4,
    "total_frames": 300_000,
    "test_interval": 4,
    "test_win_size": 20,
    "save_interval": 5,
    # The method. Rewards say at once how good an action was, so a short horizon learns fastest.
    "gamma": 0.95,
    "gae_lambda": 0.92,
    "lr": 1e-3,
    "lr_final": 0.0,
    "clip_param": 0.2,
    "entropy_coef": 0.0,
    "update_epochs": 10,
    "minibatch_size": 64,
    # The model.
    "hidden_sizes": [64, 64],
    "activation": "tanh",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return ppo_params(cpanel)
