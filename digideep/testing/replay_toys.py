"""What the toy trainings of methods with a replay memory and real actions share: everything on that has a state."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from digideep.params.common import COMMON
from digideep.params.replay import MEMORY

__all__ = ["REPLAY_TOY", "REPLAY_TOY_METHOD"]

REPLAY_TOY: Mapping[str, Any] = MappingProxyType(
    {
        **COMMON,
        **MEMORY,
        # The environment: two forces, rescaled, in two worker processes. A chunk is 4 x 32 = 128 rows.
        "model_name": "digideep.testing:Toy-v0",
        "env_kwargs": {"continuous": True},
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
        # The method: both normalisers, a schedule, and a warm-up that ends inside the second chunk.
        "normalize_observations": True,
        "normalize_rewards": True,
        "gamma": 0.95,
        "lr": 1e-3,
        # The model.
        "hidden_sizes": [16, 16],
        "activation": "relu",
    }
)
"""The control panel keys of every such toy; those of its method come on top."""

REPLAY_TOY_METHOD: Mapping[str, Any] = MappingProxyType(
    {
        "n_step": 3,
        "n_updates": 5,
        "batch_size": 32,
        "lr_final": 1e-4,
        "critic_lr": 2e-3,
        "max_grad_norm": 1.0,
        "warm_up": 200,
        "tau": 0.05,
    }
)
"""The same for the knobs of the methods that they have in common."""
