"""DQN on Atari games from pixels, Pong to begin with: the network of 2015, a memory of 100,000 frames in 0.7 GB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.environment.wrappers.config import AtariPreprocessingConfig, ClipRewardConfig, FrameStackConfig
from digideep.params.common import COMMON
from digideep.params.dqn import DQN, dqn_params, q_network_node
from digideep.utility.node import node

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **COMMON,
    **DQN,
    # The environment, and how it is stepped: a chunk is 8 x 4 = 32 frames, each 4 of the game's.
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
    "n_steps": 4,
    # The run: epochs of 10,240 frames, 10 million frames (40 million of the game's).
    "epoch_size": 320,
    "total_frames": 10_000_000,
    "test_interval": 10,
    "test_win_size": 10,
    "save_interval": 10,
    # The memory: each picture once, 84 x 84 bytes; a million frames would be 7 GB.
    "capacity": 100_000,
    "frame_stack": 4,
    # The method: a gradient step for every 4 frames.
    "gamma": 0.99,
    "lr": 1e-4,
    "n_updates": 8,
    "batch_size": 32,
    "warm_up": 50_000,
    "target_interval": 1000,
    "epsilon_final": 0.01,
    "epsilon_fraction": 0.1,
    # The model: three convolutions, then these.
    "hidden_sizes": [512],
    "activation": "relu",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return dqn_params(cpanel, model=q_network_node(cpanel, has_pictures=True))
