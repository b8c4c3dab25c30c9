"""Presets of methods with real actions and a replay memory."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig
from digideep.params.common import knob_paths
from digideep.params.overrides import validate
from digideep.testing import toy_ddpg, toy_sac, toy_sac_value, toy_td3
from digideep.utility.node import TYPE, node
from digideep.utility.tree import get

NAMES = ["classic_ddpg", "classic_td3", "mujoco_td3", "sac_params", "sacv2_params", "mujoco_sac", "dmc_sac"]
TOYS = [toy_ddpg, toy_sac, toy_sac_value, toy_td3]


def preset(name: str) -> Any:
    return importlib.import_module(f"digideep.params.{name}")


@pytest.mark.parametrize("module", TOYS, ids=lambda module: module.__name__)
def test_every_knob_of_a_replay_toy_ends_up_where_its_path_says(module: Any) -> None:
    tree = module.gen_params(module.cpanel)
    paths = knob_paths(module.cpanel, tree)

    assert validate(tree) == tree
    assert set(module.cpanel) - set(paths) == {"prioritized"}  # which chooses a node instead of filling a field
    assert all(get(tree, path, where="x") == module.cpanel[key] for key, path in paths.items())


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_mapped_to_the_environments_bounds_and_every_frame_is_learnt_from(name: str) -> None:
    cpanel = preset(name).cpanel

    assert cpanel["action_transform"] == "rescale"
    assert cpanel["n_updates"] == cpanel["n_steps"] * cpanel["num_envs"]
    assert cpanel["warm_up"] < cpanel["capacity"] and cpanel["warm_up"] < cpanel["total_frames"]


def test_a_knob_chooses_the_memory() -> None:
    cpanel = {**preset("classic_td3").cpanel, "prioritized": True, "priority_alpha": 0.7}

    tree = preset("classic_td3").gen_params(cpanel)

    assert tree["memory"]["train"][TYPE] == node(PrioritizedBufferConfig)[TYPE]
    assert tree["agents"]["agent"]["priority_alpha"] == 0.7
    assert (
        preset("classic_td3").gen_params({**cpanel, "prioritized": False})["memory"]["train"][TYPE]
        == (node(RingBufferConfig)[TYPE])
    )


def test_schedules_of_noise_and_priorities_end_at_the_goal() -> None:
    cpanel = {**preset("classic_ddpg").cpanel, "noise_scale_final": 0.0, "lr_final": 1e-5, "total_frames": 5000}

    agent = preset("classic_ddpg").gen_params(cpanel)["agents"]["agent"]

    assert (agent["noise_horizon"], agent["lr_horizon"], agent["priority_horizon"]) == (5000, 5000, 5000)


@pytest.mark.parametrize("module", TOYS, ids=lambda module: module.__name__)
def test_toys_of_replay_methods_turn_everything_on_and_fill_the_memory_more_than_once(module: Any) -> None:
    tree = module.gen_params(module.cpanel)

    statistics, agent = tree["explorer"]["train"]["statistics"], tree["agents"]["agent"]
    rows = 6 * 2 * 4 * 32
    assert (statistics["observations"], statistics["rewards"]) == (True, True)
    assert tree["explorer"]["train"]["num_workers"] == 2
    assert 128 < agent["warm_up"] < tree["memory"]["train"]["capacity"] < rows / 2
    assert agent["lr_final"] < agent["lr"] and agent["lr_horizon"] == rows and agent["n_step"] == 3
