"""What every contender trains in a benchmark: the same environments, networks, losses and numbers of gradient steps."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SETTINGS", "PPOSetting"]


class PPOSetting(NamedTuple):
    """PPO on one environment."""

    env: str
    num_envs: int
    n_steps: int
    update_epochs: int
    minibatch_size: int
    lr: float
    total_frames: int
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_param: float = 0.2
    value_clip: float | None = 0.2
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    adam_eps: float = 1e-5
    hidden_sizes: tuple[int, ...] = (64, 64)
    solved: float = 475.0  # mean return of the last 100 episodes


SETTINGS = {
    "B1": PPOSetting(
        env="CartPole-v1",
        num_envs=8,
        n_steps=128,
        update_epochs=4,
        minibatch_size=256,
        lr=2.5e-4,
        total_frames=200_000,
    ),
}
"""Benchmarks by id."""
