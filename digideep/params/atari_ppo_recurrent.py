"""PPO with a recurrent network on Atari games from single pictures, Pong to begin with: memory in place of a stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.environment.wrappers.config import AtariPreprocessingConfig, ClipRewardConfig
from digideep.params.common import COMMON
from digideep.params.ppo import RECURRENT_PPO, recurrent_ppo_params, rnn_node
from digideep.utility.node import node

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **RECURRENT_PPO,
    # The environment, and how it is stepped: a chunk is 8 x 128 = 1,024 frames, each 4 of the game's.
    "model_name": "ALE/Pong-v5",
    "wrappers": [
        node(AtariPreprocessingConfig, terminal_on_life_loss=True),
        node(ClipRewardConfig, low=-1.0, high=1.0),
    ],
    # Whole games and their own scores, but no longer than five minutes of play: a policy may wait for ever.
    "play_wrappers": [node(AtariPreprocessingConfig)],
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
    "sequence_length": 32,
    # The model: three convolutions, a layer of 512 units, then the cell.
    "picture_sizes": [512],
    "hidden_sizes": [],
    "activation": "relu",
    "cell": "lstm",
    "units": 128,
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return recurrent_ppo_params(cpanel, model=rnn_node(cpanel, picture_sizes=cpanel["picture_sizes"]))
