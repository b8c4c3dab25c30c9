"""Stable-Baselines3 as a contender. Run by the Python of its own virtual environment."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

BEGAN = time.perf_counter()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.result import Result
from benchmarks.settings import SETTINGS

_WINDOW = 100


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

    import gymnasium
    import numpy as np
    import stable_baselines3
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(arguments.threads)
    clock: list[tuple[int, float]] = []
    returns: list[float] = []
    solved: list[float] = []

    class Watch(BaseCallback):
        """Notes the time at each rollout's start, which is the end of the iteration before, and every return."""

        def _on_rollout_start(self) -> None:
            clock.append((self.num_timesteps, time.perf_counter()))

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    returns.append(float(info["episode"]["r"]))
            if not solved and len(returns) >= _WINDOW and np.mean(returns[-_WINDOW:]) >= setting.solved:
                solved.append(time.perf_counter())
            return True

    model = PPO(
        "MlpPolicy",
        make_vec_env(setting.env, n_envs=setting.num_envs, seed=arguments.seed),
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
            "net_arch": {"pi": list(setting.hidden_sizes), "vf": list(setting.hidden_sizes)},
            "activation_fn": torch.nn.Tanh,
            "optimizer_kwargs": {"eps": setting.adam_eps},
        },
        seed=arguments.seed,
        device=arguments.device,
    )
    model.learn(arguments.frames, callback=Watch())
    ended = time.perf_counter()
    (warm_frames, warm_at) = clock[1]
    print(
        Result(
            contender="stable-baselines3" + ("" if arguments.device == "auto" else f" ({arguments.device})"),
            seed=arguments.seed,
            steps_per_s=(model.num_timesteps - warm_frames) / (ended - warm_at),
            startup_s=warm_at - BEGAN,
            final_return=float(np.mean(returns[-_WINDOW:])),
            solved_s=solved[0] - clock[0][1] if solved else None,
            frames=int(model.num_timesteps),
            versions={
                "stable-baselines3": stable_baselines3.__version__,
                "torch": torch.__version__,
                "gymnasium": gymnasium.__version__,
            },
        ).to_line()
    )


if __name__ == "__main__":
    main()
