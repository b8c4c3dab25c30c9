"""PPO on MuJoCo tasks, HalfCheetah-v5 to begin with: the settings of 2017 for real actions, with 8 environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params.common import COMMON
from digideep.params.ppo import PPO, ppo_params

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **PPO,
    # The environment, and how it is stepped: a chunk is 8 x 256 = 2,048 frames; episodes have 1,000 steps.
    "model_name": "HalfCheetah-v5",
    "num_envs": 8,
    "num_workers": "auto",
    "n_steps": 256,
    "normalize_observations": True,
    "normalize_rewards": True,
    "action_transform": "clip",
    # The run: epochs of 5 chunks.
    "epoch_size": 5,
    "total_frames": 1_000_000,
    "test_interval": 10,
    "test_win_size": 10,
    "save_interval": 10,
    # The method.
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "lr": 3e-4,
    "lr_final": 0.0,
    "clip_param": 0.2,
    "value_clip": 0.2,
    "entropy_coef": 0.0,
    "update_epochs": 10,
    "minibatch_size": 64,
    "log_std_init": 0.0,
    # The model.
    "hidden_sizes": [64, 64],
    "activation": "tanh",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return ppo_params(cpanel)
