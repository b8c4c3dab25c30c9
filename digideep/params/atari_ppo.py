"""PPO on Atari games from pixels, Pong to begin with: the numbers of 2017, with 8 environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.environment.wrappers.config import AtariPreprocessingConfig, ClipRewardConfig, FrameStackConfig
from digideep.model.config import CNNConfig
from digideep.params.common import COMMON, network_fields
from digideep.params.ppo import PPO, ppo_params
from digideep.utility.node import node

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **{key: value for key, value in PPO.items() if key != "shared"},
    # The environment, and how it is stepped: a chunk is 8 x 128 = 1,024 frames, each 4 of the game's.
    "model_name": "ALE/Pong-v5",
    "wrappers": [
        node(AtariPreprocessingConfig, terminal_on_life_loss=True),
        node(FrameStackConfig, n=4),
        node(ClipRewardConfig, low=-1.0, high=1.0),
    ],
    # Whole games and their own scores, but no longer than five minutes of play: a policy may wait for ever.
    "play_wrappers": [node(AtariPreprocessingConfig), node(FrameStackConfig, n=4)],
    "play_env_kwargs": {"max_num_frames_per_episode": 18_000},
    "num_envs": 8,
    "num_workers": "auto",
    "n_steps": 128,
    # The run: epochs of 10 chunks, 10 million frames (40 million of the game's).
    "epoch_size": 10,
    "total_frames": 10_000_000,
    "test_interval": 50,
    "test_win_size": 10,
    "save_interval": 20,
    # The method.
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "lr": 2.5e-4,
    "lr_final": 0.0,
    "clip_param": 0.1,
    "value_clip": 0.1,
    "entropy_coef": 0.01,
    "update_epochs": 4,
    "minibatch_size": 256,
    # The model: three convolutions, then these.
    "hidden_sizes": [512],
    "activation": "relu",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return ppo_params(cpanel, model=node(CNNConfig, **network_fields(cpanel)))
