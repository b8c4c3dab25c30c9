"""Stable-Baselines3's SAC, TD3, DDPG and DQN as contenders. Run by the Python of its own virtual environment."""

from __future__ import annotations

import pathlib
import sys
import time
from typing import Any

BEGAN = time.perf_counter()
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import stable_baselines3  # noqa: E402
import torch  # noqa: E402
from stable_baselines3 import DDPG, DQN, SAC, TD3  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.noise import NormalActionNoise  # noqa: E402

from benchmarks.settings import ReplaySetting  # noqa: E402
from benchmarks.track import Facts, Track, parse_options  # noqa: E402


class Watch(BaseCallback):  # type: ignore[misc]
    """Notes the time at each rollout's start, which is the end of the iteration before, and every return."""

    def __init__(self, track: Track) -> None:
        super().__init__()
        self._track = track

    def _on_rollout_start(self) -> None:
        self._track.mark(self.num_timesteps)

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self._track.episode(float(info["episode"]["r"]))
        return True


def make_model(setting: ReplaySetting, *, seed: int, device: str) -> Any:
    """Return the method as the setting describes it."""
    shared: dict[str, Any] = {
        "policy": "MlpPolicy",
        "env": make_vec_env(setting.env, n_envs=setting.num_envs, seed=seed),
        "learning_rate": setting.lr,
        "buffer_size": setting.capacity,
        "learning_starts": setting.warm_up,
        "batch_size": setting.batch_size,
        "tau": setting.tau,
        "gamma": setting.gamma,
        "train_freq": setting.n_steps,
        "gradient_steps": setting.n_updates,
        "policy_kwargs": {
            "net_arch": list(setting.hidden_sizes),
            "activation_fn": torch.nn.ReLU,
            "optimizer_kwargs": {"eps": setting.adam_eps},
        },
        "seed": seed,
        "device": device,
    }
    if setting.method == "sac":
        return SAC(**shared, ent_coef="auto", target_entropy="auto", target_update_interval=setting.target_interval)
    if setting.method in ("td3", "ddpg"):
        size = shared["env"].action_space.shape
        shared["action_noise"] = NormalActionNoise(mean=np.zeros(size), sigma=np.full(size, setting.exploration_noise))
    if setting.method == "ddpg":
        return DDPG(**shared)
    if setting.method == "td3":
        return TD3(
            **shared,
            policy_delay=setting.policy_delay,
            target_policy_noise=setting.target_noise,
            target_noise_clip=setting.target_noise_bound,
        )
    return DQN(
        **shared,
        # Its interval is one of steps, and its schedule one of the share of all frames that are still to come.
        target_update_interval=setting.target_interval * setting.rows // setting.n_updates,
        exploration_fraction=min(1.0, setting.epsilon_horizon / setting.total_frames),
        exploration_final_eps=setting.epsilon_final,
        max_grad_norm=float("inf") if setting.max_grad_norm is None else setting.max_grad_norm,
    )


def _moved(model: Any, setting: ReplaySetting) -> list[Any]:
    """Return the parameters that gradient steps move: not those of target networks."""
    if setting.method == "dqn":
        return list(model.q_net.parameters())
    temperature = [model.log_ent_coef] if setting.method == "sac" else []
    return [*model.critic.parameters(), *model.actor.parameters(), *temperature]


def main() -> None:
    """Train one setting and print its result."""
    options = parse_options(device="auto", chunk="1", name="stable-baselines3")
    torch.set_num_threads(options.threads)
    setting = options.setting._replace(total_frames=options.frames).in_chunks(int(options.chunk))
    track = Track(BEGAN)
    model = make_model(setting, seed=options.seed, device=options.device)
    model.learn(options.frames, callback=Watch(track))
    track.mark(model.num_timesteps)
    ended = time.perf_counter()
    optimiser = model.policy.optimizer if setting.method == "dqn" else model.critic.optimizer
    parameters = _moved(model, setting)
    facts = Facts(
        contender=options.name,
        rows=model.num_timesteps,
        gradient_steps=int(optimiser.state[parameters[0]]["step"]),
        parameters=sum(parameter.numel() for parameter in parameters),
        versions={module.__name__: module.__version__ for module in (stable_baselines3, torch, np, gymnasium)},
        choices={"device": str(model.device), "steps and gradient steps at once": str(setting.n_steps)},
    )
    print(track.result(options.id, seed=options.seed, facts=facts, ended=ended).to_line())
    model.get_env().close()


if __name__ == "__main__":
    main()
