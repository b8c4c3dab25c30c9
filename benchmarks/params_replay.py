"""The benchmark settings of methods with a replay memory as a params module of digideep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.settings import REPLAY_SETTINGS, ReplaySetting
from digideep.agent.continuous.config import ContinuousConfig
from digideep.agent.ddpg.config import DDPGConfig
from digideep.agent.sac.config import SACConfig
from digideep.agent.td3.config import TD3Config
from digideep.params.common import COMMON
from digideep.params.dqn import DQN, dqn_params, q_network_node
from digideep.params.replay import MEMORY, actor_critics_node, method_knobs, replay_agent_node, replay_params

__all__ = ["cpanel", "cpanel_of", "gen_params"]

_EPOCH = 1_000  # rows
_CONTINUOUS: Mapping[str, type[ContinuousConfig]] = {"sac": SACConfig, "td3": TD3Config, "ddpg": DDPGConfig}


def cpanel_of(chosen: ReplaySetting) -> dict[str, Any]:
    """Return the control panel of a setting."""
    return {
        **COMMON,
        **(_dqn_knobs(chosen) if chosen.method == "dqn" else _continuous_knobs(chosen)),
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


def _continuous_knobs(chosen: ReplaySetting) -> dict[str, Any]:
    """Return the knobs of a method with real actions: normal noise, and weights that begin alike in all layers."""
    knobs = {**MEMORY, **method_knobs(_CONTINUOUS[chosen.method])}
    if chosen.method == "sac":
        return knobs
    knobs |= {"noise": "normal", "noise_scale": chosen.exploration_noise, "last_bound": None}
    if chosen.method == "td3":
        knobs |= {name: getattr(chosen, name) for name in ("policy_delay", "target_noise", "target_noise_bound")}
    return knobs


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


cpanel: dict[str, Any] = {
    key: value for name in ("B12", "B5-ddpg", "B5-td3", "B5") for key, value in cpanel_of(REPLAY_SETTINGS[name]).items()
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    if cpanel["method"] == "dqn":
        return dqn_params(cpanel, model=q_network_node(cpanel))
    config = _CONTINUOUS[cpanel["method"]]
    return replay_params(cpanel, agent=replay_agent_node(config, cpanel, model=actor_critics_node(cpanel)))
