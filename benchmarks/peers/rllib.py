"""RLlib as a contender, in one process. Run by the Python of its own virtual environment."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import sys
import tempfile
import time
from typing import Any

BEGAN = time.perf_counter()
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray listens on the loopback only
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import ray  # noqa: E402
import torch  # noqa: E402
from gymnasium.wrappers import TransformReward  # noqa: E402
from ray.rllib.algorithms.dqn import DQNConfig  # noqa: E402
from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402
from ray.rllib.algorithms.sac import SACConfig  # noqa: E402
from ray.rllib.algorithms.sac.sac_catalog import SACCatalog  # noqa: E402
from ray.rllib.callbacks.callbacks import RLlibCallback  # noqa: E402
from ray.rllib.core.columns import Columns  # noqa: E402
from ray.rllib.core.models.base import ENCODER_OUT  # noqa: E402
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI  # noqa: E402
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: E402
from ray.rllib.core.rl_module.rl_module import RLModuleSpec  # noqa: E402
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule  # noqa: E402
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack  # noqa: E402
from ray.tune.registry import register_env  # noqa: E402

from benchmarks.settings import PPOSetting, ReplaySetting, picture  # noqa: E402
from benchmarks.track import Facts, Track, parse_options  # noqa: E402

_REPORTED = 100  # frames between two reports of methods with a replay memory
_SHORT = "/tmp"  # Ray's sockets lie below its directory, and their names may not be long


class Watch(RLlibCallback):  # type: ignore[misc]
    """Notes the return of every episode."""

    track: Track

    def on_episode_end(self, *, episode: Any, prev_episode_chunks: Any = (), **kwargs: Any) -> None:
        """Note the return of one episode, which lies in pieces where samples have cut it."""
        self.track.episode(float(sum(piece.get_return() for piece in (*(prev_episode_chunks or ()), episode))))


class NatureModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """The Nature network with two heads on one trunk, which RLlib's own models cannot be told to be."""

    def setup(self) -> None:
        """Make the layers."""
        nn = torch.nn
        height, width, channels = self.observation_space.shape
        self._trunk = nn.Sequential(
            nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        with torch.no_grad():
            size = self._trunk(torch.zeros(1, channels, height, width)).shape[1]
        units = self.model_config["units"]
        self._trunk.append(nn.Linear(size, units)).append(nn.ReLU())
        self._policy, self._value = nn.Linear(units, int(self.action_space.n)), nn.Linear(units, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        features = self._trunk(batch[Columns.OBS].permute(0, 3, 1, 2))
        return {Columns.EMBEDDINGS: features, Columns.ACTION_DIST_INPUTS: self._policy(features)}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Any:
        """Return the values of a batch."""
        if embeddings is None:
            embeddings = self._trunk(batch[Columns.OBS].permute(0, 3, 1, 2))
        return self._value(embeddings).squeeze(-1)


class JoinedEncoder(torch.nn.Module):
    """Fully connected layers over observation and action together: RLlib's own critics have an encoder for each."""

    def __init__(self, inputs: int, sizes: list[int]) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            *(
                layer
                for size, units in zip((inputs, *sizes), sizes, strict=False)
                for layer in (torch.nn.Linear(size, units), torch.nn.ReLU())
            )
        )

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the features of a batch."""
        return {ENCODER_OUT: self.layers(torch.cat((batch[Columns.OBS], batch[Columns.ACTIONS]), dim=-1))}


class JoinedCatalog(SACCatalog):  # type: ignore[misc]
    """The networks of SAC, with critics as the setting has them."""

    def build_qf_encoder(self, framework: str) -> Any:
        """Return the hidden layers of one critic."""
        inputs = int(np.prod(self.observation_space.shape)) + int(np.prod(self.action_space.shape))
        return JoinedEncoder(inputs, list(self._model_config_dict["fcnet_hiddens"]))


def _make_pictures(config: Any) -> Any:
    import ale_py

    gymnasium.register_envs(ale_py)
    env: Any = gymnasium.make(config["id"], frameskip=1, repeat_action_probability=picture.stickiness)
    env = wrap_atari_for_new_api_stack(
        env, dim=picture.screen_size, frameskip=picture.frame_skip, framestack=picture.stack
    )
    return TransformReward(env, lambda reward: float(np.sign(float(reward))))


def _is_box(setting: PPOSetting) -> bool:
    env = gymnasium.make(setting.env)
    env.close()
    return isinstance(env.action_space, gymnasium.spaces.Box)


def config_of(setting: PPOSetting, *, seed: int, vectorize_mode: str) -> Any:
    """Return RLlib's configuration of the setting: sampling and learning in the process of the algorithm."""
    sizes = list(setting.hidden_sizes)
    if setting.network == "cnn":
        name, environment = "pictures", {"id": setting.env}
        register_env(name, _make_pictures)
        module = {"rl_module_spec": RLModuleSpec(module_class=NatureModule, model_config={"units": sizes[-1]})}
    else:
        name, environment = setting.env, {}
        module = {
            "model_config": DefaultModelConfig(
                fcnet_hiddens=sizes, fcnet_activation="tanh", vf_share_layers=False, free_log_std=_is_box(setting)
            )
        }
    return (
        PPOConfig()
        .environment(name, env_config=environment, normalize_actions=False, clip_actions=True)
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=setting.num_envs,
            rollout_fragment_length=setting.n_steps,
            gym_env_vectorize_mode=vectorize_mode,
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .training(
            train_batch_size_per_learner=setting.rows,
            minibatch_size=setting.minibatch_size,
            num_epochs=setting.update_epochs,
            lr=setting.lr,
            gamma=setting.gamma,
            lambda_=setting.gae_lambda,
            clip_param=setting.clip_param,
            # RLlib clips the squared error itself, which is another thing than the setting's clip.
            vf_clip_param=float("inf"),
            vf_loss_coeff=setting.value_coef,
            entropy_coeff=setting.entropy_coef,
            use_kl_loss=False,
            grad_clip=setting.max_grad_norm,
            grad_clip_by="global_norm",
        )
        .callbacks(Watch)
        .rl_module(**module)
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=0)
        .debugging(seed=seed, log_level="ERROR")
    )


def replay_config_of(setting: ReplaySetting, *, seed: int) -> Any:
    """Return RLlib's configuration of SAC or DQN: sampling and learning in the process of the algorithm.

    Before it learns it acts by its policy, not at random.
    """
    model = DefaultModelConfig(fcnet_hiddens=list(setting.hidden_sizes), fcnet_activation="relu", head_fcnet_hiddens=[])
    shared: dict[str, Any] = {
        "train_batch_size_per_learner": setting.batch_size,
        "training_intensity": setting.n_updates * setting.batch_size / setting.rows,
        "num_steps_sampled_before_learning_starts": setting.warm_up,
        "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": setting.capacity},
        "gamma": setting.gamma,
        "tau": setting.tau,
        "grad_clip": setting.max_grad_norm,
        "grad_clip_by": "global_norm",
    }
    if setting.method == "sac":
        config = SACConfig().training(
            actor_lr=setting.lr,
            critic_lr=setting.lr,
            alpha_lr=setting.lr,
            target_entropy="auto",
            target_network_update_freq=0,
            **shared,
        )
        module = {"rl_module_spec": RLModuleSpec(catalog_class=JoinedCatalog), "model_config": model}
    else:
        config = DQNConfig().training(
            lr=setting.lr,
            adam_epsilon=setting.adam_eps,
            epsilon=[(0, 1.0), (setting.epsilon_horizon, setting.epsilon_final)],
            target_network_update_freq=setting.target_interval * setting.rows // setting.n_updates,
            double_q=False,
            dueling=False,
            **shared,
        )
        module = {"model_config": model}
    return (
        config.environment(setting.env)
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=setting.num_envs,
            rollout_fragment_length=setting.n_steps,
            gym_env_vectorize_mode="sync",
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .callbacks(Watch)
        .rl_module(**module)
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=_REPORTED)
        .debugging(seed=seed, log_level="ERROR")
    )


def _train(options: Any, track: Track) -> tuple[Any, float]:
    setting = options.setting
    if isinstance(setting, ReplaySetting):
        config = replay_config_of(setting, seed=options.seed)
    else:
        config = config_of(setting, seed=options.seed, vectorize_mode=options.vectorize_mode)
    algorithm = config.build_algo()
    frames = 0
    track.mark(0)
    while frames < options.frames:
        row = algorithm.train()
        frames = int(row["env_runners"]["num_env_steps_sampled_lifetime"])
        track.mark(frames)
    return algorithm, time.perf_counter()


def _gradient_steps(algorithm: Any) -> int:
    learner = algorithm.learner_group._learner
    states = [state for optimizer in learner._optimizer_parameters for state in optimizer.state.values()]
    return int(max(float(state["step"]) for state in states))


def _parameters(algorithm: Any) -> int:
    learner = algorithm.learner_group._learner
    return sum(parameter.numel() for parameters in learner._optimizer_parameters.values() for parameter in parameters)


def main() -> None:
    """Train one setting and print its result."""
    options = parse_options(vectorize_mode="sync", name="rllib")
    torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)
    Watch.track = track = Track(BEGAN)
    with tempfile.TemporaryDirectory(prefix="r", dir=_SHORT) as directory, contextlib.redirect_stdout(sys.stderr):
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=directory)
        try:
            algorithm, ended = _train(options, track)
            facts = Facts(
                contender=options.name,
                rows=track.frames,  # its samples are as long as it likes
                gradient_steps=_gradient_steps(algorithm),
                parameters=_parameters(algorithm),
                versions={module.__name__: module.__version__ for module in (ray, torch, np, gymnasium)},
                choices={"vectorisation": options.vectorize_mode},
            )
            result = track.result(options.id, seed=options.seed, facts=facts, ended=ended)
            algorithm.stop()
        finally:
            ray.shutdown()
    print(result.to_line())


if __name__ == "__main__":
    main()
