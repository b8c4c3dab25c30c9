from __future__ import annotations

import importlib
import json
import subprocess
import sys
from typing import Any

import pytest

from digideep.errors import ConfigError
from digideep.params import (
    cartpole_hidden_ppo,
    cartpole_hidden_ppo_recurrent,
    cartpole_ppo,
    classic_a2c,
    classic_dqn,
    mujoco_ppo,
)
from digideep.params.a2c import A2C
from digideep.params.common import COMMON, KNOB_PATHS, horizon_frames, knob_paths
from digideep.params.loading import load_params
from digideep.params.overrides import validate
from digideep.params.source import presets
from digideep.pipeline.options import SessionOptions
from digideep.utility.tree import get
from digideep.utility.yaml12 import dumps_yaml, loads_yaml

PRESETS = [importlib.import_module(name) for name in presets()]

SHARED = """
model_name from_module env_kwargs play_env_kwargs wrappers play_wrappers info_keys
seed num_envs num_workers backend n_steps epoch_size number_epochs
total_frames stop_return save_interval save_every_s keep_last keep_best keep_every test_activate test_interval
test_win_size max_exec_time max_exec_iter on_sigusr1 grace_s step_timeout_s on_env_error on_nonfinite env_error_budget
gamma lr hidden_sizes activation layer_norm critic_hidden_sizes critic_observations engine exact init_from on_epoch
""".split()
CHOOSES = {"prioritized"}
"""Knobs that choose a node instead of filling a field."""


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_the_shared_knobs(preset: Any) -> None:
    assert set(SHARED) <= set(preset.cpanel)
    assert set(COMMON) == set(SHARED)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_tree_of_a_preset_is_valid_plain_data_that_a_file_gives_back(preset: Any) -> None:
    tree = preset.gen_params(preset.cpanel)

    assert validate(tree) == tree
    assert loads_yaml(dumps_yaml(tree), where="params.yaml") == tree
    assert json.loads(json.dumps(preset.cpanel)) == preset.cpanel


@pytest.mark.parametrize("preset", PRESETS)
def test_making_a_tree_changes_nothing_and_shares_nothing(preset: Any) -> None:
    before = json.dumps(preset.cpanel)

    tree = preset.gen_params(preset.cpanel)
    tree["env"]["env_kwargs"]["changed"] = True
    tree["env"]["info_keys"].append("changed")
    tree["agents"]["agent"]["model"]["hidden_sizes"].append(1)

    assert json.dumps(preset.cpanel) == before
    assert preset.gen_params(preset.cpanel)["env"]["env_kwargs"] == {}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_knob_of_a_preset_ends_up_where_its_path_says(preset: Any) -> None:
    tree = preset.gen_params(preset.cpanel)
    paths = knob_paths(preset.cpanel, tree)

    fields = {key: value for key, value in preset.cpanel.items() if key not in CHOOSES}
    assert set(paths) == set(fields)
    assert {key: get(tree, path, where="x") for key, path in paths.items()} == fields


def test_the_paths_of_shared_knobs_are_those_of_the_documentation() -> None:
    expected = {
        "/env": "model_name from_module env_kwargs play_env_kwargs wrappers play_wrappers info_keys",
        "/runner": "seed total_frames stop_return save_every_s keep_last keep_best keep_every on_sigusr1 grace_s "
        "init_from on_epoch number_epochs:n_epochs epoch_size:n_cycles save_interval:save_int test_activate:test_act "
        "test_interval:test_int max_exec_time:max_time max_exec_iter:max_iter",
        "/explorer/train": "num_envs num_workers backend n_steps exact step_timeout_s on_env_error on_nonfinite "
        "env_error_budget",
        "/explorer/test": "test_win_size:n_episodes",
    }
    paths = {
        name.partition(":")[0]: f"{parent}/{name.rpartition(':')[2]}"
        for parent, names in expected.items()
        for name in names.split()
    }

    assert {key: KNOB_PATHS[key] for key in paths} == paths
    assert KNOB_PATHS["engine"] == "/engine"
    found = knob_paths(cartpole_ppo.cpanel, cartpole_ppo.gen_params(cartpole_ppo.cpanel))
    assert found["gamma"] == "/agents/agent/gamma"
    assert found["clip_param"] == "/agents/agent/clip_param"
    assert found["hidden_sizes"] == "/agents/agent/model/hidden_sizes"


def test_schedules_end_at_the_goal_whichever_way_it_is_given() -> None:
    by_frames = {**cartpole_ppo.cpanel, "total_frames": 5000, "number_epochs": 0}
    by_epochs = {**by_frames, "total_frames": 0, "number_epochs": 3, "epoch_size": 2, "n_steps": 10, "num_envs": 4}

    assert horizon_frames(by_frames) == 5000
    assert horizon_frames(by_epochs) == 3 * 2 * 10 * 4
    agent = cartpole_ppo.gen_params(by_epochs)["agents"]["agent"]
    assert (agent["lr_horizon"], agent["clip_param_horizon"]) == (240, 240)


def test_evaluation_takes_no_more_environments_than_episodes() -> None:
    tree = cartpole_ppo.gen_params({**cartpole_ppo.cpanel, "num_envs": 16, "test_win_size": 5, "num_workers": 2})

    assert [tree["explorer"][mode]["num_envs"] for mode in ("train", "test", "eval")] == [16, 5, 5]
    assert [tree["explorer"][mode]["n_episodes"] for mode in ("train", "test", "eval")] == [0, 5, 5]
    assert [tree["explorer"][mode]["deterministic"] for mode in ("train", "test", "eval")] == [False, True, True]


def test_presets_are_listed_with_their_first_line_and_nothing_else_is() -> None:
    found = presets()

    named = {name.removeprefix("digideep.params.") for name in found}
    assert named >= {
        "acrobot_ppo", "atari_ppo", "cartpole_ppo", "classic_a2c", "lunarlander_ppo", "mujoco_ppo", "pendulum_ppo",
    }  # fmt: skip
    assert named.isdisjoint({"a2c", "common", "overrides", "ppo", "source"})
    assert list(found) == sorted(found)
    assert all(found[preset.__name__] == preset.__doc__.split("\n")[0] for preset in PRESETS)


def test_presets_import_neither_torch_nor_gymnasium() -> None:
    code = (
        "import importlib, sys\n"
        "from digideep.params.source import presets\n"
        "for name in presets():\n"
        "    preset = importlib.import_module(name)\n"
        "    preset.gen_params(preset.cpanel)\n"
        "print([m for m in ('torch', 'gymnasium', 'numpy') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_a2c_has_the_settings_of_its_source_unless_a_preset_says_otherwise() -> None:
    agent = classic_a2c.gen_params({**classic_a2c.cpanel, **A2C})["agents"]["agent"]

    assert agent["type"] == "digideep.agent.a2c.config:A2CConfig"
    assert (agent["gae_lambda"], agent["normalize_advantage"]) == (1.0, False)
    assert (agent["optimizer"], agent["rmsprop_alpha"], agent["optimizer_eps"]) == ("rmsprop", 0.99, 1e-5)
    assert (agent["entropy_coef"], agent["value_coef"], agent["max_grad_norm"]) == (0.01, 0.5, 0.5)
    assert agent["lr_horizon"] == 300_000


def test_ppo_on_mujoco_has_the_settings_that_are_usual_there() -> None:
    tree = mujoco_ppo.gen_params(mujoco_ppo.cpanel)

    agent, train = tree["agents"]["agent"], tree["explorer"]["train"]
    assert train["num_envs"] * train["n_steps"] == 2048
    assert (train["statistics"]["observations"], train["statistics"]["rewards"]) == (True, True)
    assert (agent["update_epochs"], agent["minibatch_size"], agent["clip_param"]) == (10, 64, 0.2)
    assert (agent["lr"], agent["lr_final"], agent["lr_horizon"]) == (3e-4, 0.0, 1_000_000)
    assert (agent["entropy_coef"], agent["gae_lambda"], agent["log_std_init"]) == (0.0, 0.95, 0.0)
    assert (agent["model"]["hidden_sizes"], agent["model"]["activation"]) == ([64, 64], "tanh")
    assert agent["model"]["shared"] is False


def test_the_two_presets_of_the_hidden_pole_differ_in_memory_only() -> None:
    trees = [preset.gen_params(preset.cpanel) for preset in (cartpole_hidden_ppo, cartpole_hidden_ppo_recurrent)]
    agents = [tree.pop("agents")["agent"] for tree in trees]
    models = [agent.pop("model") for agent in agents]

    assert trees[0] == trees[1]
    assert trees[0]["env"]["wrappers"][0]["keep"] == [0, 2]
    assert {key for key, value in agents[1].items() if agents[0].get(key) != value} == {"type", "sequence_length"}
    assert [model["type"].rpartition(":")[2] for model in models] == ["MLPConfig", "RNNConfig"]


@pytest.mark.parametrize("preset", ["digideep.params.classic_dqn", "digideep.params.atari_dqn", classic_dqn.__file__])
@pytest.mark.parametrize(("knob", "text"), [("critic_hidden_sizes", "[8]"), ("critic_observations", '["secret"]')])
def test_dqn_refuses_what_a_critic_has_at_the_knob(preset: str, knob: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_params(SessionOptions(params=preset, assignments=((knob, text),)))

    expected = "null" if knob == "critic_hidden_sizes" else "[]"
    why = "since DQN has one network, which acts, and no critic"
    assert str(caught.value) == f"{knob}: expected {expected}, {why}, found {text}; leave it out"


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if not preset.__name__.endswith("_dqn")])
def test_what_only_the_critic_sees_and_has_is_a_knob_of_every_preset_with_a_critic(preset: Any) -> None:
    changed = {"layer_norm": True, "critic_hidden_sizes": [8], "critic_observations": ["secret"], "activation": "elu"}

    model = preset.gen_params({**preset.cpanel, **changed})["agents"]["agent"]["model"]

    assert {key: model[key] for key in changed} == changed
