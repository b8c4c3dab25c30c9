"""All contenders are told the same: hyperparameters in the words of each."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks import params_replay
from benchmarks.params_ppo import cpanel_of, gen_params
from benchmarks.settings import PPO_SETTINGS, REPLAY_SETTINGS, PPOSetting, ReplaySetting, picture

ROOT = Path(__file__).resolve().parents[2]
NOT_INSTALLED = {
    "sb3": ("stable_baselines3", "common.callbacks", "common.env_util", "common.torch_layers", "common.vec_env"),
    "sb3_replay": ("stable_baselines3", "common.callbacks", "common.env_util", "common.noise"),
    "sample_factory": (
        "sample_factory", "algo.runners.runner", "cfg.arguments", "envs.env_utils", "envs.env_wrappers",
        "model.actor_critic", "train",
    ),
    "rllib": (
        "ray", "rllib.algorithms.dqn", "rllib.algorithms.ppo", "rllib.algorithms.sac",
        "rllib.algorithms.sac.sac_catalog", "rllib.callbacks.callbacks", "rllib.core.columns", "rllib.core.models.base",
        "rllib.core.rl_module.apis.value_function_api", "rllib.core.rl_module.default_model_config",
        "rllib.core.rl_module.rl_module", "rllib.core.rl_module.torch.torch_rl_module",
        "rllib.env.wrappers.atari_wrappers", "tune.registry",
    ),
}  # fmt: skip


class Told:
    """Stands in for whatever a peer's package holds, and keeps the keywords that it is called with."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.keywords = dict(keywords)

    def __getattr__(self, name: str) -> Any:
        def method(*arguments: Any, **keywords: Any) -> Told:
            self.keywords.update(keywords)
            return self

        return method


class AnyModule(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Told,), {})


def program(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """Return the program of a peer, whose packages are not there."""
    top, *below = NOT_INSTALLED[name]
    parts = {top, *(".".join([top, *path.split(".")[:depth]]) for path in below for depth in range(1, 7))}
    for part in parts:
        monkeypatch.setitem(sys.modules, part, AnyModule(part))
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location(f"peer_{name}", ROOT / "benchmarks" / "peers" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("setting", PPO_SETTINGS.values(), ids=PPO_SETTINGS)
def test_digideep_is_told_the_setting(setting: PPOSetting) -> None:
    tree = gen_params(cpanel_of(setting))

    agent, explorer = tree["agents"]["agent"], tree["explorer"]["train"]
    for name in (
        "gamma", "gae_lambda", "lr", "clip_param", "value_clip", "entropy_coef", "max_grad_norm", "update_epochs",
        "minibatch_size", "adam_eps",
    ):  # fmt: skip
        assert agent[name] == getattr(setting, name), name
    assert agent["value_coef"] == 2 * setting.value_coef
    assert (agent["lr_final"], agent["clip_param_final"], agent["target_kl"]) == (None, None, None)
    assert (explorer["num_envs"], explorer["n_steps"]) == (setting.num_envs, setting.n_steps)
    assert (explorer["exact"], explorer["num_workers"]) == (True, "auto")
    assert tuple(agent["model"]["hidden_sizes"]) == setting.hidden_sizes
    assert (tree["runner"]["total_frames"], tree["env"]["model_name"]) == (setting.total_frames, setting.env)


def test_digideep_sees_the_pictures_that_are_described() -> None:
    first, second, third = gen_params(cpanel_of(PPO_SETTINGS["B4"]))["env"]["wrappers"]

    for name in ("noop_max", "frame_skip", "screen_size", "terminal_on_life_loss", "stickiness"):
        assert first[name] == getattr(picture, name), name
    assert second["n"] == picture.stack
    assert third["type"].endswith(":ClipRewardConfig")


@pytest.mark.parametrize("setting", PPO_SETTINGS.values(), ids=PPO_SETTINGS)
def test_stable_baselines3_is_told_the_setting(monkeypatch: pytest.MonkeyPatch, setting: PPOSetting) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", AnyModule("ale_py"))
    peer = program(monkeypatch, "sb3")
    monkeypatch.setattr(peer.gymnasium, "register_envs", lambda module: None)

    told = peer.make_model(setting, seed=3, device="cpu").keywords

    assert {name: told[name] for name in ("n_steps", "batch_size", "n_epochs", "learning_rate", "seed")} == {
        "n_steps": setting.n_steps,
        "batch_size": setting.minibatch_size,
        "n_epochs": setting.update_epochs,
        "learning_rate": setting.lr,
        "seed": 3,
    }
    assert (told["gamma"], told["gae_lambda"]) == (setting.gamma, setting.gae_lambda)
    assert (told["clip_range"], told["clip_range_vf"]) == (setting.clip_param, setting.value_clip)
    assert (told["ent_coef"], told["vf_coef"]) == (setting.entropy_coef, setting.value_coef)
    assert told["max_grad_norm"] == setting.max_grad_norm
    assert told["policy_kwargs"]["optimizer_kwargs"] == {"eps": setting.adam_eps}


@pytest.mark.parametrize("name", ["B1", "B2", "B3-pendulum", "B4"])
def test_sample_factory_is_told_the_setting(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    setting = PPO_SETTINGS[name]
    peer = program(monkeypatch, "sample_factory")

    told = peer.flags_of(setting, seed=3, frames=setting.total_frames, mode="serial")

    assert told["batch_size"] * told["num_batches_per_epoch"] == setting.rows
    assert told["num_epochs"] * told["num_batches_per_epoch"] == setting.gradient_steps
    assert told["batch_size"] % told["rollout"] == 0
    assert told["num_workers"] * told["num_envs_per_worker"] == setting.num_envs
    assert (told["learning_rate"], told["gamma"], told["gae_lambda"]) == (setting.lr, 0.99, 0.95)
    assert (told["ppo_clip_ratio"], told["ppo_clip_value"]) == (0.2, setting.value_clip or 1e9)
    assert (told["exploration_loss_coeff"], told["max_grad_norm"]) == (setting.entropy_coef, 0.5)
    assert (told["normalize_input"], told["normalize_returns"], told["use_rnn"]) == (False, False, False)


@pytest.mark.parametrize("mode", ["serial", "async"])
def test_sample_factory_steps_all_environments_in_both_modes(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    told = program(monkeypatch, "sample_factory").flags_of(PPO_SETTINGS["B1"], seed=1, frames=9, mode=mode)

    assert told["num_workers"] * told["num_envs_per_worker"] == 8
    assert (told["serial_mode"], told["async_rl"]) == (mode == "serial", mode == "async")


@pytest.mark.parametrize("name", ["B1", "B2", "B3-pendulum", "B4"])
def test_rllib_is_told_the_setting(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    setting = PPO_SETTINGS[name]
    peer = program(monkeypatch, "rllib")

    told = peer.config_of(setting, seed=3, vectorize_mode="sync").keywords

    assert told["train_batch_size_per_learner"] == setting.rows
    assert (told["minibatch_size"], told["num_epochs"]) == (setting.minibatch_size, setting.update_epochs)
    assert (told["num_envs_per_env_runner"], told["rollout_fragment_length"]) == (setting.num_envs, setting.n_steps)
    assert (told["lr"], told["gamma"], told["lambda_"]) == (setting.lr, setting.gamma, setting.gae_lambda)
    assert (told["clip_param"], told["entropy_coeff"]) == (setting.clip_param, setting.entropy_coef)
    assert (told["grad_clip"], told["grad_clip_by"]) == (setting.max_grad_norm, "global_norm")
    assert (told["num_env_runners"], told["num_learners"], told["use_kl_loss"]) == (0, 0, False)


def test_iteration_has_as_many_gradient_steps_as_minibatches_and_passes_say() -> None:
    assert {name: setting.gradient_steps for name, setting in PPO_SETTINGS.items()} == {
        "B0": 16,
        "B0-clip": 16,
        "B0-halfcheetah": 320,
        "B0-module": 16,
        "B1": 16,
        "B1-module": 16,
        "B2": 160,
        "B3-pendulum": 320,
        "B3-halfcheetah": 320,
        "B4": 16,
    }


def fields_of(setting: ReplaySetting) -> dict[str, Any]:
    """What the configuration of a method says in the same words."""
    shared = ("gamma", "tau", "lr", "batch_size", "n_updates", "warm_up", "max_grad_norm", "adam_eps")
    own = {"dqn": ("target_interval", "epsilon_final"), "td3": ("policy_delay", "target_noise", "target_noise_bound")}
    return {name: getattr(setting, name) for name in (*shared, *own.get(setting.method, ()))}


def stable_baselines3(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the peer's program, whose environments have actions of two numbers."""
    peer = program(monkeypatch, "sb3_replay")
    spaces = SimpleNamespace(action_space=SimpleNamespace(shape=(2,)))
    monkeypatch.setattr(peer, "make_vec_env", lambda env, n_envs, seed: spaces)
    return peer


@pytest.mark.parametrize("name", [name for name, setting in REPLAY_SETTINGS.items() if setting.method != "dqn"])
def test_digideep_is_told_the_setting_of_methods_with_critics(name: str) -> None:
    setting = REPLAY_SETTINGS[name]
    tree = params_replay.gen_params(params_replay.cpanel_of(setting))

    agent, explorer = tree["agents"]["agent"], tree["explorer"]["train"]
    assert agent["type"].endswith(f":{setting.method.upper()}Config")
    assert {field: agent[field] for field in fields_of(setting)} == fields_of(setting)
    assert (agent["critic_lr"], agent["lr_final"], agent["n_step"]) == (None, None, 1)
    assert (explorer["num_envs"], explorer["n_steps"], explorer["exact"]) == (1, 1, True)
    assert tuple(agent["model"]["hidden_sizes"]) == setting.hidden_sizes
    assert (agent["model"]["activation"], agent["model"]["layer_norm"]) == ("relu", False)
    assert (tree["memory"]["train"]["capacity"], tree["env"]["action_transform"]) == (100_000, "rescale")
    assert tree["memory"]["train"]["type"].endswith(":RingBufferConfig")
    assert (tree["runner"]["total_frames"], tree["env"]["model_name"]) == (setting.total_frames, setting.env)


@pytest.mark.parametrize("name", ["B0-sac", "B5", "B6"])
def test_digideep_learns_the_temperature_of_sac(name: str) -> None:
    agent = params_replay.gen_params(params_replay.cpanel_of(REPLAY_SETTINGS[name]))["agents"]["agent"]

    assert (agent["learn_temperature"], agent["target_entropy"], agent["temperature_lr"]) == (True, None, None)


@pytest.mark.parametrize("name", ["B5-ddpg", "B5-td3"])
def test_digideep_explores_with_the_noise_of_the_setting(name: str) -> None:
    # Other numbers than the defaults of the methods, which would hide one that was not told.
    setting = REPLAY_SETTINGS[name]._replace(exploration_noise=0.4, policy_delay=3, target_noise=0.3)
    setting = setting._replace(target_noise_bound=0.7)

    agent = params_replay.gen_params(params_replay.cpanel_of(setting))["agents"]["agent"]

    assert {field: agent[field] for field in fields_of(setting)} == fields_of(setting)
    assert (agent["noise"], agent["noise_scale"], agent["noise_scale_final"]) == ("normal", 0.4, None)
    assert (agent["last_bound"], agent["critic_weight_decay"]) == (None, 0.0)


@pytest.mark.parametrize("name", [name for name, setting in REPLAY_SETTINGS.items() if setting.method == "dqn"])
def test_digideep_is_told_the_setting_of_dqn(name: str) -> None:
    setting = REPLAY_SETTINGS[name]
    tree = params_replay.gen_params(params_replay.cpanel_of(setting))

    agent, explorer = tree["agents"]["agent"], tree["explorer"]["train"]
    assert {field: agent[field] for field in fields_of(setting)} == fields_of(setting)
    assert (agent["double"], agent["n_step"], agent["lr_final"]) == (False, 1, None)
    assert (agent["model"]["dueling"], agent["model"]["noisy"]) == (False, False)
    assert (explorer["num_envs"], explorer["n_steps"]) == (1, setting.n_steps)
    assert tuple(agent["model"]["hidden_sizes"]) == setting.hidden_sizes
    assert tree["memory"]["train"]["capacity"] == 100_000


def test_share_of_random_actions_falls_on_the_same_line_for_all() -> None:
    agent = params_replay.gen_params(params_replay.cpanel_of(REPLAY_SETTINGS["B12"]))["agents"]["agent"]

    # From 1 at frame 0 to 0.04 at frame 8,000, of which the first 1,000 are acted at random anyway.
    assert agent["epsilon"] == pytest.approx(1.0 - 0.96 / 8)
    assert agent["epsilon_fraction"] * agent["epsilon_horizon"] == pytest.approx(7_000)


@pytest.mark.parametrize("setting", REPLAY_SETTINGS.values(), ids=REPLAY_SETTINGS)
def test_stable_baselines3_is_told_the_setting_of_replay(
    monkeypatch: pytest.MonkeyPatch, setting: ReplaySetting
) -> None:
    model = stable_baselines3(monkeypatch).make_model(setting, seed=3, device="cpu")

    told = model.keywords
    assert type(model).__name__ == setting.method.upper()
    assert (told["learning_rate"], told["gamma"], told["tau"]) == (setting.lr, setting.gamma, setting.tau)
    assert (told["batch_size"], told["buffer_size"]) == (setting.batch_size, setting.capacity)
    assert (told["learning_starts"], told["seed"]) == (setting.warm_up, 3)
    assert (told["train_freq"], told["gradient_steps"]) == (setting.n_steps, setting.n_updates)
    assert told["policy_kwargs"]["net_arch"] == list(setting.hidden_sizes)
    assert told["policy_kwargs"]["optimizer_kwargs"] == {"eps": setting.adam_eps}


def test_intervals_of_target_networks_are_told_in_steps_where_they_are_gradient_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = stable_baselines3(monkeypatch)
    told = {
        name: peer.make_model(setting, seed=1, device="cpu").keywords
        for name, setting in REPLAY_SETTINGS.items()
        if setting.method in ("sac", "dqn")
    }

    intervals = {name: keywords["target_update_interval"] for name, keywords in told.items()}
    assert intervals == {"B0-sac": 1, "B5": 1, "B6": 1, "B12": 256, "B12-wide": 256, "B12-steady": 10_000}
    assert (told["B12"]["exploration_fraction"], told["B12"]["exploration_final_eps"]) == (0.16, 0.04)
    assert (told["B5"]["ent_coef"], told["B5"]["target_entropy"]) == ("auto", "auto")


def test_stable_baselines3_is_told_the_noise_and_the_delay_of_td3(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = REPLAY_SETTINGS["B5-td3"]

    told = stable_baselines3(monkeypatch).make_model(setting, seed=1, device="cpu").keywords

    assert (setting.policy_delay, setting.target_noise, setting.target_noise_bound) == (2, 0.2, 0.5)
    assert (told["policy_delay"], told["target_policy_noise"], told["target_noise_clip"]) == (2, 0.2, 0.5)
    noise = told["action_noise"].keywords
    assert (noise["mean"].tolist(), noise["sigma"].tolist()) == ([0.0, 0.0], [0.1, 0.1])


def test_stable_baselines3_is_told_nothing_of_ddpg_but_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = stable_baselines3(monkeypatch)
    setting = REPLAY_SETTINGS["B5-ddpg"]

    told, sac = (peer.make_model(s, seed=1, device="cpu").keywords for s in (setting, REPLAY_SETTINGS["B5"]))

    # Its DDPG has one critic, no delay and no noise on target actions, and lets nobody say otherwise.
    assert (setting.policy_delay, setting.target_noise, setting.target_noise_bound) == (1, 0.0, 0.0)
    assert set(told) - set(sac) == {"action_noise"}
    assert "n_critics" not in told["policy_kwargs"]
    assert told["action_noise"].keywords["sigma"].tolist() == [0.1, 0.1]


@pytest.mark.parametrize("name", ["B5", "B6", "B12"])
def test_rllib_is_told_the_setting_of_replay(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    setting = REPLAY_SETTINGS[name]

    told = program(monkeypatch, "rllib").replay_config_of(setting, seed=3).keywords

    assert told["train_batch_size_per_learner"] == setting.batch_size
    assert told["training_intensity"] * setting.rows / setting.batch_size == setting.n_updates
    assert told["num_steps_sampled_before_learning_starts"] == setting.warm_up
    assert told["replay_buffer_config"] == {"type": "EpisodeReplayBuffer", "capacity": setting.capacity}
    assert (told["gamma"], told["tau"], told["grad_clip"]) == (setting.gamma, setting.tau, setting.max_grad_norm)
    if setting.method == "sac":
        assert (told["actor_lr"], told["critic_lr"], told["alpha_lr"]) == (setting.lr, setting.lr, setting.lr)
    else:
        assert (told["lr"], told["double_q"], told["dueling"]) == (setting.lr, False, False)
        assert told["target_network_update_freq"] == 256


def test_iteration_of_many_steps_has_as_many_gradient_steps_a_frame() -> None:
    setting = REPLAY_SETTINGS["B5"].in_chunks(64)

    assert (setting.rows, setting.gradient_steps) == (64, 64)
    assert setting._replace(n_steps=1, n_updates=1) == REPLAY_SETTINGS["B5"]


def test_a_gradient_step_a_frame_is_measured_over_three_thousand_of_them() -> None:
    for name in ("B5", "B5-ddpg", "B5-td3", "B6"):
        setting = REPLAY_SETTINGS[name]
        assert setting.total_frames - setting.measured_from == 3_000
        assert setting.measured_from > setting.warm_up
