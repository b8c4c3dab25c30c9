"""A2C on CartPole-v1: the pole is balanced to the time limit within half a minute on one core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params.a2c import A2C, a2c_params
from digideep.params.common import COMMON

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **A2C,
    # The environment, and how it is stepped: a chunk, and so a gradient step, is 8 x 8 = 64 frames.
    "model_name": "CartPole-v1",
    "num_envs": 8,
    "n_steps": 8,
    # The run: epochs of 320 chunks, to the end of the schedule: a policy that has just reached the time limit of 500
    # steps is lost again now and then, until its steps are small.
    "epoch_size": 320,
    "total_frames": 300_000,
    "test_interval": 1,
    "test_win_size": 20,
    "save_interval": 5,
    # The method.
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "lr": 2e-3,
    "lr_final": 0.0,
    "entropy_coef": 0.01,
    "optimizer": "rmsprop",
    # The model.
    "hidden_sizes": [64, 64],
    "activation": "tanh",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return a2c_params(cpanel)
