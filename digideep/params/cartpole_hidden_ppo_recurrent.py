"""PPO with a recurrent network on CartPole-v1 whose velocities are hidden: what is not shown has to be remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.environment.wrappers.config import MaskObservationConfig
from digideep.params.common import COMMON
from digideep.params.ppo import RECURRENT_PPO, recurrent_ppo_params
from digideep.utility.node import node

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **RECURRENT_PPO,
    # The environment, position and angle only, and how it is stepped: a chunk is 8 x 128 = 1,024 frames.
    "model_name": "CartPole-v1",
    "wrappers": [node(MaskObservationConfig, keep=[0, 2])],
    "num_envs": 8,
    "n_steps": 128,
    "normalize_observations": True,
    # The run: epochs of 20 chunks, ended early by a test that nearly always reaches the time limit of 500 steps.
    "epoch_size": 20,
    "total_frames": 1_000_000,
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
    "sequence_length": 64,
    # The model: one layer, then the cell.
    "hidden_sizes": [64],
    "activation": "tanh",
    "cell": "gru",
    "units": 64,
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return recurrent_ppo_params(cpanel)
