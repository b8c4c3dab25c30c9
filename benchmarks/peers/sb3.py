"""Stable-Baselines3 as a contender. Run by the Python of its own virtual environment."""

from __future__ import annotations

import pathlib
import sys
import time
from functools import partial
from typing import Any

BEGAN = time.perf_counter()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import stable_baselines3  # noqa: E402
import torch  # noqa: E402
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_atari_env, make_vec_env  # noqa: E402
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack  # noqa: E402

from benchmarks.settings import PPOSetting, picture  # noqa: E402
from benchmarks.track import Facts, Track, parse_options  # noqa: E402

_STEPPERS = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}


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


class LayerNormTrunk(BaseFeaturesExtractor):  # type: ignore[misc]
    """The trunk of the user's own network: Linear, LayerNorm and tanh for each size."""

    def __init__(self, observation_space: gymnasium.Space[Any], sizes: tuple[int, ...]) -> None:
        super().__init__(observation_space, features_dim=sizes[-1])
        inputs = (int(np.prod(observation_space.shape or ())), *sizes)
        self.layers = torch.nn.Sequential(
            *(
                layer
                for size, units in zip(inputs, sizes, strict=False)
                for layer in (torch.nn.Linear(size, units), torch.nn.LayerNorm(units), torch.nn.Tanh())
            )
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return `[B, units]`."""
        features: torch.Tensor = self.layers(observations.flatten(1))
        return features


def make_game(name: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Return a game, in whichever process: only who imports ale_py knows its ids."""
    import ale_py

    gymnasium.register_envs(ale_py)
    return gymnasium.make(name, **kwargs)


def make_env(setting: PPOSetting, *, seed: int, stepper: str = "dummy") -> Any:
    """Return the setting's environments."""
    if setting.network != "cnn":
        return make_vec_env(setting.env, n_envs=setting.num_envs, seed=seed, vec_env_cls=_STEPPERS[stepper])
    envs = make_atari_env(
        partial(make_game, setting.env),
        n_envs=setting.num_envs,
        seed=seed,
        env_kwargs={"frameskip": 1, "repeat_action_probability": 0.0, "full_action_space": False},
        wrapper_kwargs={
            "noop_max": picture.noop_max,
            "frame_skip": picture.frame_skip,
            "screen_size": picture.screen_size,
            "terminal_on_life_loss": picture.terminal_on_life_loss,
            "clip_reward": picture.clips_rewards,
            "action_repeat_probability": picture.stickiness,
        },
        vec_env_cls=_STEPPERS[stepper],
    )
    return VecFrameStack(envs, picture.stack)


def make_model(setting: PPOSetting, *, seed: int, device: str, stepper: str = "dummy") -> Any:
    """Return PPO as the setting describes it."""
    sizes = list(setting.hidden_sizes)
    networks: dict[str, dict[str, Any]] = {
        "mlp": {"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": torch.nn.Tanh},
        "layernorm": {
            "net_arch": [],
            "features_extractor_class": LayerNormTrunk,
            "features_extractor_kwargs": {"sizes": setting.hidden_sizes},
        },
        "cnn": {"net_arch": [], "features_extractor_kwargs": {"features_dim": sizes[-1]}},
    }
    return PPO(
        "CnnPolicy" if setting.network == "cnn" else "MlpPolicy",
        make_env(setting, seed=seed, stepper=stepper),
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
        policy_kwargs={**networks[setting.network], "optimizer_kwargs": {"eps": setting.adam_eps}},
        seed=seed,
        device=device,
    )


def main() -> None:
    """Train one setting and print its result."""
    options = parse_options(device="auto", stepper="dummy", name="stable-baselines3")
    torch.set_num_threads(options.threads)
    track = Track(BEGAN)
    model = make_model(options.setting, seed=options.seed, device=options.device, stepper=options.stepper)
    model.learn(options.frames, callback=Watch(track))
    track.mark(model.num_timesteps)
    ended = time.perf_counter()
    parameters = list(model.policy.parameters())
    facts = Facts(
        contender=options.name,
        rows=track.iterations * options.setting.rows,
        gradient_steps=int(model.policy.optimizer.state[parameters[0]]["step"]),
        parameters=sum(parameter.numel() for parameter in parameters),
        versions={module.__name__: module.__version__ for module in (stable_baselines3, torch, np, gymnasium)},
        choices={"device": str(model.device), "environments": options.stepper},
    )
    print(track.result(options.id, seed=options.seed, facts=facts, ended=ended).to_line())
    model.get_env().close()


if __name__ == "__main__":
    main()
