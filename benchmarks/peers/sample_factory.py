"""Sample Factory as a contender. Run by the Python of its own virtual environment."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import re
import sys
import tempfile
import time
from typing import Any

BEGAN = time.perf_counter()
# This file has the name of the package that it uses: the directory it lies in must not be searched.
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

import importlib.metadata  # noqa: E402

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from sample_factory.algo.runners.runner import AlgoObserver, Runner  # noqa: E402
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args  # noqa: E402
from sample_factory.envs.env_utils import register_env  # noqa: E402
from sample_factory.envs.env_wrappers import (  # noqa: E402
    ClipRewardEnv,
    FireResetEnv,
    MaxAndSkipEnv,
    NoopResetEnv,
    NumpyObsWrapper,
)
from sample_factory.model.actor_critic import create_actor_critic  # noqa: E402
from sample_factory.train import make_runner  # noqa: E402

from benchmarks.settings import PPOSetting, picture  # noqa: E402
from benchmarks.track import Facts, Track, parse_options  # noqa: E402

_CHECKPOINT = re.compile(r"checkpoint_(\d+)_(\d+)\.pth$")
_NO_CLIP = 1e9


class Watch(AlgoObserver):  # type: ignore[misc]
    """Notes the time after each training iteration."""

    def __init__(self, track: Track, *, rows: int) -> None:
        self._track = track
        self._rows = rows

    def on_start(self, runner: Runner) -> None:
        """Note the start."""
        self._track.mark(0)

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Note the end of an iteration."""
        # The runner's own count comes with a message that is still under way.
        self._track.mark((self._track.iterations + 1) * self._rows)


def _make_env(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    if not name.startswith("ALE/"):
        return gymnasium.make(name, render_mode=render_mode)
    from ale_py.env import AtariEnv  # the present ale-py does not register its ids with this gymnasium

    game = name.removeprefix("ALE/").removesuffix("-v5").lower()
    env: Any = AtariEnv(game=game, frameskip=1, repeat_action_probability=picture.stickiness)
    env = MaxAndSkipEnv(NoopResetEnv(env, noop_max=picture.noop_max), skip=picture.frame_skip)
    env = ClipRewardEnv(FireResetEnv(env))
    size = (picture.screen_size, picture.screen_size)
    env = gymnasium.wrappers.GrayScaleObservation(gymnasium.wrappers.ResizeObservation(env, size))
    return NumpyObsWrapper(gymnasium.wrappers.FrameStack(env, picture.stack))


def _network(setting: PPOSetting) -> list[str]:
    """Return the flags of the network; the trunk of the Nature network is shared as in every other contender."""
    sizes = [str(size) for size in setting.hidden_sizes]
    if setting.network == "cnn":
        flags = ["--encoder_conv_architecture=convnet_atari", "--nonlinearity=relu", "--obs_scale=255.0"]
        return [*flags, "--actor_critic_share_weights=True", "--encoder_conv_mlp_layers", *sizes]
    return ["--nonlinearity=tanh", "--actor_critic_share_weights=False", "--encoder_mlp_layers", *sizes]


def flags_of(setting: PPOSetting, *, seed: int, frames: int, mode: str) -> dict[str, Any]:
    """Return the command line that describes the setting, by name of the flag."""
    is_serial = mode == "serial"
    return {
        "env": setting.env,
        "experiment": "bench",
        "seed": seed,
        "device": "cpu",
        "train_for_env_steps": frames - setting.rows - 1,  # the runner learns of an iteration one iteration later
        "serial_mode": is_serial,
        "async_rl": not is_serial,
        # Asynchronous: two workers, each of which steps one half of its environments while the other is acted for.
        "num_workers": 1 if is_serial else 2,
        "num_envs_per_worker": setting.num_envs if is_serial else setting.num_envs // 2,
        "worker_num_splits": 1 if is_serial else 2,
        # A minibatch holds whole rollouts: where it is smaller than a chunk is long, rollouts are shorter.
        "rollout": min(setting.n_steps, setting.minibatch_size),
        "batch_size": setting.minibatch_size,
        "num_batches_per_epoch": setting.rows // setting.minibatch_size,
        "num_epochs": setting.update_epochs,
        "learning_rate": setting.lr,
        "gamma": setting.gamma,
        "gae_lambda": setting.gae_lambda,
        "ppo_clip_ratio": setting.clip_param,
        "ppo_clip_value": _NO_CLIP if setting.value_clip is None else setting.value_clip,
        "exploration_loss_coeff": setting.entropy_coef,
        "value_loss_coeff": setting.value_coef,
        "max_grad_norm": setting.max_grad_norm,
        "adam_eps": setting.adam_eps,
        "use_rnn": False,
        "recurrence": 1,
        "normalize_input": False,
        "normalize_returns": False,
        "adaptive_stddev": False,
        "force_envs_single_thread": True,
        "set_workers_cpu_affinity": False,  # the driver decides which cores there are
        "save_every_sec": 100_000,
        "log_to_file": False,
    }


def _config(setting: PPOSetting, options: argparse.Namespace, directory: str) -> Any:
    flags = flags_of(setting, seed=options.seed, frames=options.frames, mode=options.mode)
    line = [f"--{name}={value}" for name, value in flags.items()]
    line += [f"--train_dir={directory}", *_network(setting)]
    parser, _ = parse_sf_args(line)
    return parse_full_cfg(parser, line)


def _newest(directory: str) -> pathlib.Path:
    found = pathlib.Path(directory).glob("bench/checkpoint_p0/checkpoint_*.pth")
    return max(found, key=lambda path: int(_CHECKPOINT.search(path.name).group(1)))  # type: ignore[union-attr]


def _parameters(runner: Runner) -> int:
    """Return the size of the network, of which the learner's process has had its own."""
    spaces = runner.env_info.obs_space, runner.env_info.action_space
    return sum(parameter.numel() for parameter in create_actor_critic(runner.cfg, *spaces).parameters())


def main() -> None:
    """Train one setting and print its result."""
    options = parse_options(mode="serial", name="sample-factory")
    torch.set_num_threads(options.threads)
    setting, track = options.setting, Track(BEGAN)
    register_env(setting.env, _make_env)
    with tempfile.TemporaryDirectory(prefix="digideep-bench-") as directory:
        with contextlib.redirect_stdout(sys.stderr):
            _, runner = make_runner(_config(setting, options, directory))
            runner.register_observer(Watch(track, rows=setting.rows))
            runner.register_episodic_stats_handler(
                lambda runner, message, policy_id: track.episode(float(np.mean(message["episodic"]["reward"])))
            )
            runner.init()
            status = runner.run()
        ended = time.perf_counter()
        if status != 0:
            raise SystemExit(f"sample-factory: expected status 0, found {status}")
        newest = _newest(directory)
    facts = Facts(
        contender=options.name,
        rows=track.iterations * setting.rows,
        gradient_steps=int(_CHECKPOINT.search(newest.name).group(1)),  # type: ignore[union-attr]
        parameters=_parameters(runner),
        versions={name: importlib.metadata.version(name) for name in ("sample-factory", "torch", "numpy", "gymnasium")},
        choices={"mode": options.mode},
    )
    print(track.result(options.id, seed=options.seed, facts=facts, ended=ended).to_line())


if __name__ == "__main__":
    main()
