"""Parameters of a run that takes a second: every normaliser on, schedules, tests and a save in each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toy_parts import ActingRunnerConfig, act

from digideep.params.common import COMMON
from digideep.params.ppo import PPO, ppo_params

cpanel: dict[str, Any] = {
    **COMMON,
    **PPO,
    "model_name": "digideep.testing:Toy-v0",
    "num_envs": 4,
    "n_steps": 16,
    "epoch_size": 2,
    "number_epochs": 4,
    "test_interval": 1,
    "test_win_size": 3,
    "save_interval": 1,
    "normalize_observations": True,
    "normalize_rewards": True,
    "lr": 1e-3,
    "lr_final": 0.0,
    "clip_param_final": 0.05,
    "update_epochs": 2,
    "minibatch_size": 32,
    "hidden_sizes": [16, 16],
}
act("start")


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree, with a runner that does what tests ask for at some moment."""
    tree = ppo_params(cpanel)
    kind = f"{ActingRunnerConfig.__module__}:{ActingRunnerConfig.__qualname__}"
    return {**tree, "runner": {**tree["runner"], "type": kind}}
