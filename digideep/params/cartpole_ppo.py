"""PPO on CartPole-v1: the pole is balanced to the time limit within a minute on two cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params.common import COMMON
from digideep.params.ppo import PPO, ppo_params

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **PPO,
    # The environment, and how it is stepped: a chunk is 8 x 128 = 1,024 frames.
    "model_name": "CartPole-v1",
    "num_envs": 8,
    "n_steps": 128,
    # The run: epochs of 20 chunks, ended early by a test that nearly always reaches the time limit of 500 steps.
    "epoch_size": 20,
    "total_frames": 500_000,
    "stop_return": 495.0,
    "test_interval": 1,
    "test_win_size": 20,
    "save_interval": 5,
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
