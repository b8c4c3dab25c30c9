"""Recurrent PPO on Toy-v0 with everything on that has a state, for trying what saves and restores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params.common import COMMON
from digideep.params.ppo import RECURRENT_PPO, recurrent_ppo_params

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **RECURRENT_PPO,
    # The environment: four directions, in two worker processes. A chunk is 4 x 32 = 128 frames.
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
    # The method: both normalisers and both schedules; a hidden state of two parts, and episodes end inside sequences.
    "normalize_observations": True,
    "normalize_rewards": True,
    "lr": 1e-3,
    "lr_final": 0.0,
    "clip_param": 0.2,
    "clip_param_final": 0.05,
    "update_epochs": 2,
    "minibatch_size": 32,
    "sequence_length": 8,
    "hidden_sizes": [16],
    "cell": "lstm",
    "units": 16,
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return recurrent_ppo_params(cpanel)
