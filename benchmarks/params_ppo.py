"""The benchmark settings as parameter modules of digideep: what the peers train, said in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.settings import SETTINGS
from digideep.params.common import COMMON
from digideep.params.ppo import PPO, ppo_params

__all__ = ["cpanel", "gen_params"]

_setting = SETTINGS["B1"]

cpanel: dict[str, Any] = {
    **COMMON,
    **PPO,
    "model_name": _setting.env,
    "num_envs": _setting.num_envs,
    "n_steps": _setting.n_steps,
    "epoch_size": 10,
    "total_frames": _setting.total_frames,
    "test_activate": False,
    "save_interval": 0,
    "gamma": _setting.gamma,
    "gae_lambda": _setting.gae_lambda,
    "lr": _setting.lr,
    "clip_param": _setting.clip_param,
    "value_clip": _setting.value_clip,
    "entropy_coef": _setting.entropy_coef,
    "value_coef": _setting.value_coef,
    "max_grad_norm": _setting.max_grad_norm,
    "update_epochs": _setting.update_epochs,
    "minibatch_size": _setting.minibatch_size,
    "adam_eps": _setting.adam_eps,
    "hidden_sizes": list(_setting.hidden_sizes),
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return ppo_params(cpanel)
