"""DQN on Toy-v0 with everything on that has a state, a prioritised memory that wraps around; an epoch is an instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params.common import COMMON
from digideep.params.dqn import DQN, dqn_params, q_network_node

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **DQN,
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
    "prioritized": True,
    # The method: both normalisers, every schedule, noise in two streams.
    "normalize_observations": True,
    "normalize_rewards": True,
    "gamma": 0.95,
    "n_step": 3,
    "n_updates": 8,
    "batch_size": 32,
    "target_interval": 5,
    "tau": 0.5,
    "lr": 1e-3,
    "lr_final": 1e-4,
    "priority_alpha_final": 0.4,
    "warm_up": 200,
    "hidden_sizes": [32, 32],
    "activation": "relu",
    "dueling": True,
    "noisy": True,
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return dqn_params(cpanel, model=q_network_node(cpanel))
