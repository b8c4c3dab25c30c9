"""The benchmark settings of methods with a replay memory as a params module of digideep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.settings import REPLAY_SETTINGS, ReplaySetting
from digideep.agent.sac.config import SACConfig
from digideep.params.common import COMMON
from digideep.params.dqn import DQN, dqn_params, q_network_node
from digideep.params.replay import MEMORY, actor_critics_node, method_knobs, replay_agent_node, replay_params

__all__ = ["cpanel", "cpanel_of", "gen_params"]

_EPOCH = 1_000  # rows


def cpanel_of(chosen: ReplaySetting) -> dict[str, Any]:
    """Return the control panel of a setting."""
    return {
        **COMMON,
        **(_dqn_knobs(chosen) if chosen.method == "dqn" else {**MEMORY, **method_knobs(SACConfig)}),
        "method": chosen.method,
        "model_name": chosen.env,
        "num_envs": chosen.num_envs,
        "num_workers": "auto",
        "n_steps": chosen.n_steps,
        "epoch_size": max(1, _EPOCH // chosen.rows),
        "total_frames": chosen.total_frames,
        "test_activate": False,
        "save_interval": 0,
        "capacity": chosen.capacity,
        "warm_up": chosen.warm_up,
        "n_updates": chosen.n_updates,
        "batch_size": chosen.batch_size,
        "gamma": chosen.gamma,
        "tau": chosen.tau,
        "lr": chosen.lr,
        "max_grad_norm": chosen.max_grad_norm,
        "adam_eps": chosen.adam_eps,
        "hidden_sizes": list(chosen.hidden_sizes),
        "activation": chosen.activation,
    }


def _dqn_knobs(chosen: ReplaySetting) -> dict[str, Any]:
    """Return DQN's own knobs: the share of random actions lies on one line from frame 0 on, as it does elsewhere."""
    at_warm = 1.0 - (1.0 - chosen.epsilon_final) * min(1.0, chosen.warm_up / chosen.epsilon_horizon)
    falls = max(0, chosen.epsilon_horizon - chosen.warm_up)
    return {
        **DQN,
        "action_transform": "clip",  # there is nothing to rescale
        "double": False,
        "target_interval": chosen.target_interval,
        "epsilon": at_warm,
        "epsilon_final": chosen.epsilon_final,
        "epsilon_fraction": min(1.0, falls / chosen.total_frames),
    }


cpanel: dict[str, Any] = {**cpanel_of(REPLAY_SETTINGS["B12"]), **cpanel_of(REPLAY_SETTINGS["B5"])}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    if cpanel["method"] == "dqn":
        return dqn_params(cpanel, model=q_network_node(cpanel))
    return replay_params(cpanel, agent=replay_agent_node(SACConfig, cpanel, model=actor_critics_node(cpanel)))
