"""TD3 on Pendulum-v1: balanced after some ten thousand frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.agent.td3.config import TD3Config
from digideep.params.common import COMMON
from digideep.params.replay import MEMORY, actor_critics_node, method_knobs, replay_agent_node, replay_params

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **MEMORY,
    **method_knobs(TD3Config),
    # The environment, and how it is stepped: a chunk is 1 x 8 = 8 frames.
    "model_name": "Pendulum-v1",
    "num_envs": 1,
    "n_steps": 8,
    # The run: epochs of 2,000 frames.
    "epoch_size": 250,
    "total_frames": 20_000,
    "test_interval": 1,
    "test_win_size": 20,
    "save_interval": 1,
    # The method: as many gradient steps of the critics as frames.
    "gamma": 0.98,
    "lr": 1e-3,
    "n_updates": 8,
    "batch_size": 256,
    "warm_up": 500,
    "capacity": 100_000,
    # The model.
    "hidden_sizes": [256, 256],
    "activation": "relu",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return replay_params(cpanel, agent=replay_agent_node(TD3Config, cpanel, model=actor_critics_node(cpanel)))
