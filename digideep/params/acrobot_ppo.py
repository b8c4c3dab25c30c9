"""PPO on Acrobot-v1: two links are swung above a line; every step until then costs 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params.common import COMMON
from digideep.params.ppo import PPO, ppo_params

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **PPO,
    # The environment, and how it is stepped: a chunk is 8 x 256 = 2,048 frames; episodes have at most 500 steps.
    "model_name": "Acrobot-v1",
    "num_envs": 8,
    "n_steps": 256,
    "normalize_observations": True,
    "normalize_rewards": True,
    # The run: epochs of 4 chunks, since this environment takes longer to step than to learn from.
    "epoch_size": 4,
    "total_frames": 200_000,
    "test_interval": 4,
    "test_win_size": 20,
    "save_interval": 8,
    # The method.
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "lr": 1e-3,
    "lr_final": 0.0,
    "clip_param": 0.2,
    "entropy_coef": 0.01,
    "update_epochs": 4,
    "minibatch_size": 256,
    # The model.
    "hidden_sizes": [64, 64],
    "activation": "tanh",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return ppo_params(cpanel)
