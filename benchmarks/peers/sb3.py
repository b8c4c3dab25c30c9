"""Stable-Baselines3 as a contender. Run by the Python of its own virtual environment."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from typing import Any

BEGAN = time.perf_counter()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import stable_baselines3  # noqa: E402
import torch  # noqa: E402
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402

from benchmarks.result import Result  # noqa: E402
from benchmarks.settings import SETTINGS, PPOSetting  # noqa: E402

_WINDOW = 100


class Watch(BaseCallback):  # type: ignore[misc]
    """Notes the time at each rollout's start, which is the end of the iteration before, and every return."""

    def __init__(self, solved: float) -> None:
        super().__init__()
        self.bound = solved
        self.clock: list[tuple[int, float]] = []
        self.returns: list[float] = []
        self.solved_at: float | None = None

    def _on_rollout_start(self) -> None:
        self.clock.append((self.num_timesteps, time.perf_counter()))

    def _on_step(self) -> bool:
        ended = [float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info]
        self.returns += ended
        if ended and self.solved_at is None and len(self.returns) >= _WINDOW:
            if np.mean(self.returns[-_WINDOW:]) >= self.bound:
                self.solved_at = time.perf_counter()
        return True


def make_model(setting: PPOSetting, *, seed: int, device: str) -> Any:
    """Return PPO as the setting describes it."""
    sizes = list(setting.hidden_sizes)
    return PPO(
        "MlpPolicy",
        make_vec_env(setting.env, n_envs=setting.num_envs, seed=seed),
        n_steps=setting.n_steps,
        batch_size=setting.minibatch_size,
        n_epochs=setting.update_epochs,
        learning_rate=setting.lr,
        gamma=setting.gamma,
        gae_lambda=setting.gae_lambda,
        clip_range=setting.clip_param,
        clip_range_vf=setting.value_clip,
        ent_coef=setting.entropy_coef,
        vf_coef=setting.value_coef,
        max_grad_norm=setting.max_grad_norm,
        policy_kwargs={
            "net_arch": {"pi": sizes, "vf": sizes},
            "activation_fn": torch.nn.Tanh,
            "optimizer_kwargs": {"eps": setting.adam_eps},
        },
        seed=seed,
        device=device,
    )


def main() -> None:
    """Train one setting and print its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("setting", choices=sorted(SETTINGS))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    setting = SETTINGS[arguments.setting]
    torch.set_num_threads(arguments.threads)
    watch = Watch(setting.solved)
    model = make_model(setting, seed=arguments.seed, device=arguments.device)
    model.learn(arguments.frames, callback=watch)
    ended = time.perf_counter()
    (_, began), (warm_frames, warm_at) = watch.clock[:2]
    result = Result(
        contender="stable-baselines3" + ("" if arguments.device == "auto" else f" ({arguments.device})"),
        seed=arguments.seed,
        steps_per_s=(model.num_timesteps - warm_frames) / (ended - warm_at),
        startup_s=warm_at - BEGAN,
        final_return=float(np.mean(watch.returns[-_WINDOW:])),
        solved_s=None if watch.solved_at is None else watch.solved_at - began,
        frames=int(model.num_timesteps),
        versions={module.__name__: module.__version__ for module in (stable_baselines3, torch, gymnasium)},
    )
    print(result.to_line())


if __name__ == "__main__":
    main()
