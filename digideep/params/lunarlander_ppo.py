"""PPO on LunarLander-v3: a lander comes down between two flags and stands still there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params.common import COMMON
from digideep.params.ppo import PPO, ppo_params

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **PPO,
    # The environment, and how it is stepped: a chunk is 16 x 256 = 4,096 frames; episodes have at most 1,000 steps.
    "model_name": "LunarLander-v3",
    "num_envs": 16,
    "num_workers": "auto",
    "n_steps": 256,
    # The run: epochs of 5 chunks.
    "epoch_size": 5,
    "total_frames": 1_000_000,
    "test_interval": 5,
    "test_win_size": 20,
    "save_interval": 5,
    # The method. A landing pays once, some hundred steps after what has brought it about.
    "gamma": 0.999,
    "gae_lambda": 0.98,
    "lr": 1e-3,
    "lr_final": 0.0,
    "clip_param": 0.2,
    "value_clip": None,
    "entropy_coef": 0.01,
    "update_epochs": 8,
    "minibatch_size": 256,
    # The model.
    "hidden_sizes": [64, 64],
    "activation": "tanh",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return ppo_params(cpanel)
