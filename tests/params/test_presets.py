from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from digideep.params import acrobot_ppo, atari_ppo, cartpole_ppo, pendulum_ppo
from digideep.params.common import COMMON, KNOB_PATHS, horizon_frames, knob_paths
from digideep.params.overrides import validate
from digideep.params.source import presets
from digideep.utility.tree import get
from digideep.utility.yaml12 import dumps_yaml, loads_yaml

PRESETS = [acrobot_ppo, atari_ppo, cartpole_ppo, pendulum_ppo]

SHARED = """
model_name from_module env_kwargs play_env_kwargs wrappers play_wrappers info_keys
seed num_envs num_workers backend n_steps epoch_size number_epochs
total_frames stop_return save_interval save_every_s keep_last keep_best keep_every test_activate test_interval
test_win_size max_exec_time max_exec_iter on_sigusr1 grace_s step_timeout_s on_env_error on_nonfinite env_error_budget
gamma lr hidden_sizes activation engine exact init_from on_epoch
""".split()


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

    assert set(paths) == set(preset.cpanel)
    assert {key: get(tree, path, where="x") for key, path in paths.items()} == preset.cpanel


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

    assert list(found) == [preset.__name__ for preset in PRESETS]
    assert all(found[preset.__name__] == preset.__doc__.split("\n")[0] for preset in PRESETS)


def test_presets_import_neither_torch_nor_gymnasium() -> None:
    code = (
        "import sys\n"
        "from digideep.params import acrobot_ppo, cartpole_ppo, pendulum_ppo\n"
        "for preset in (acrobot_ppo, cartpole_ppo, pendulum_ppo): preset.gen_params(preset.cpanel)\n"
        "print([m for m in ('torch', 'gymnasium', 'numpy') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
