"""What all presets share: the common keys of the control panel, the nodes made from them, and where knobs end up.

A preset takes `COMMON`, changes what its task needs and adds its method's own knobs; the functions below turn the
common part of a control panel into nodes. Numbers that follow from two knobs are derived here, where both are visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from digideep.environment.config import EnvConfig, ExplorerConfig, StatisticsConfig
from digideep.errors import ConfigError
from digideep.pipeline.config import RunnerConfig, SerialEngineConfig
from digideep.utility.node import node
from digideep.utility.tree import has, join

__all__ = [
    "COMMON",
    "KNOB_PATHS",
    "env_node",
    "explorer_nodes",
    "fed_paths",
    "horizon_frames",
    "knob_paths",
    "network_fields",
    "runner_node",
    "whole_params",
]

COMMON: Mapping[str, Any] = MappingProxyType(
    {
        # The environment.
        "model_name": "CartPole-v1",
        "from_module": None,
        "env_kwargs": {},
        "play_env_kwargs": None,
        "wrappers": [],
        "play_wrappers": None,
        "info_keys": ["is_success"],
        # The run: goals, tests, saves, budgets.
        "seed": 1,
        "epoch_size": 1,
        "number_epochs": 0,
        "total_frames": 0,
        "stop_return": None,
        "test_activate": True,
        "test_interval": 10,
        "test_win_size": 10,
        "save_interval": 10,
        "save_every_s": 0.0,
        "keep_last": 3,
        "keep_best": 1,
        "keep_every": 0,
        "max_exec_time": 0.0,
        "max_exec_iter": 0,
        "on_sigusr1": "continue",
        "grace_s": 20.0,
        "init_from": None,
        "on_epoch": None,
        # How environments are stepped.
        "num_envs": 8,
        "num_workers": 0,
        "backend": "auto",
        "n_steps": 128,
        "exact": True,
        "step_timeout_s": 300.0,
        "on_env_error": "stop",
        "on_nonfinite": "stop",
        "env_error_budget": 10,
        # How sampling and learning are scheduled.
        "engine": node(SerialEngineConfig),
        # What every method has.
        "gamma": 0.99,
        "lr": 2.5e-4,
        "hidden_sizes": [64, 64],
        "activation": "tanh",
        "layer_norm": False,
        "critic_hidden_sizes": None,
        "critic_observations": [],
    }
)
"""The control panel keys that every preset has, with their defaults."""

KNOB_PATHS: Mapping[str, str] = MappingProxyType(
    {
        **{key: f"/env/{key}" for key in ("model_name", "from_module", "env_kwargs", "play_env_kwargs", "info_keys")},
        **{key: f"/env/{key}" for key in ("wrappers", "play_wrappers", "action_transform")},
        **{key: f"/runner/{key}" for key in ("seed", "total_frames", "stop_return", "save_every_s", "keep_last")},
        **{
            key: f"/runner/{key}"
            for key in ("keep_best", "keep_every", "on_sigusr1", "grace_s", "init_from", "on_epoch")
        },
        "number_epochs": "/runner/n_epochs",
        "epoch_size": "/runner/n_cycles",
        "save_interval": "/runner/save_int",
        "test_activate": "/runner/test_act",
        "test_interval": "/runner/test_int",
        "max_exec_time": "/runner/max_time",
        "max_exec_iter": "/runner/max_iter",
        **{key: f"/explorer/train/{key}" for key in ("num_envs", "num_workers", "n_steps", "exact", "step_timeout_s")},
        **{key: f"/explorer/train/{key}" for key in ("on_env_error", "on_nonfinite", "env_error_budget")},
        "backend": "/explorer/train/backend",
        "normalize_observations": "/explorer/train/statistics/observations",
        "normalize_rewards": "/explorer/train/statistics/rewards",
        "test_win_size": "/explorer/test/n_episodes",
        "engine": "/engine",
    }
)
"""Where the knobs end up whose place does not follow from their name."""

_SEARCHED = ("/agents/agent", "/agents/agent/model", "/explorer/train/statistics")


_MODES = ("train", "test", "eval")
_SHARED = ("num_workers", "exact", "step_timeout_s", "on_env_error", "on_nonfinite", "env_error_budget")


def fed_paths(key: str, path: str, params: Mapping[str, Any]) -> list[str]:
    """Return every path in `params` that the knob `key` feeds: `path`, and the same field of the other explorers.

    Training, tests and plays share how environments are stepped and what is forgiven, tests and plays their episodes.
    """
    modes = _MODES if key in _SHARED else _MODES[1:] if key == "test_win_size" else ()
    name = path.rpartition("/")[2]
    others = (f"/explorer/{mode}/{name}" for mode in modes if path.startswith("/explorer/"))
    return [path, *(other for other in others if other != path and has(params, other))]


def knob_paths(
    cpanel: Mapping[str, Any], params: Mapping[str, Any], *, own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the path in `params` of each knob that configures a field; knobs that only feed others are left out.

    `own` holds what the params module says about its own knobs. A knob that no table names configures the field of the
    same name of the agent, its model, a memory or the statistics, whichever has one first.
    """
    memories = params.get("memory")
    names = list(memories) if isinstance(memories, Mapping) else []
    searched = (*_SEARCHED[:2], *(join("/memory", name) for name in names), *_SEARCHED[2:])
    found: dict[str, str] = {}
    for key in cpanel:
        known = (own or {}).get(key) or KNOB_PATHS.get(key)
        candidates = [known] if known else [join(parent, key) for parent in searched]
        path = next((candidate for candidate in candidates if has(params, candidate)), None)
        if path is not None:
            found[key] = path
    return found


def horizon_frames(cpanel: Mapping[str, Any]) -> int:
    """Return over how many frames schedules run: to the goal that the control panel sets."""
    chunk = cpanel["n_steps"] * cpanel["num_envs"]
    return int(cpanel["total_frames"] or cpanel["number_epochs"] * cpanel["epoch_size"] * chunk)


def network_fields(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that every network has, as the control panel has them."""
    names = ("hidden_sizes", "activation", "layer_norm", "critic_hidden_sizes", "critic_observations")
    return {name: cpanel[name] for name in names}


def env_node(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node of the environment."""
    return node(
        EnvConfig,
        model_name=cpanel["model_name"],
        from_module=cpanel["from_module"],
        env_kwargs=cpanel["env_kwargs"],
        play_env_kwargs=cpanel["play_env_kwargs"],
        wrappers=cpanel.get("wrappers", []),
        play_wrappers=cpanel.get("play_wrappers"),
        info_keys=cpanel["info_keys"],
        action_transform=cpanel.get("action_transform", "clip"),
    )


def runner_node(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node of the runner."""
    return node(
        RunnerConfig,
        seed=cpanel["seed"],
        n_epochs=cpanel["number_epochs"],
        n_cycles=cpanel["epoch_size"],
        total_frames=cpanel["total_frames"],
        stop_return=cpanel["stop_return"],
        save_int=cpanel["save_interval"],
        save_every_s=cpanel["save_every_s"],
        keep_last=cpanel["keep_last"],
        keep_best=cpanel["keep_best"],
        keep_every=cpanel["keep_every"],
        test_act=cpanel["test_activate"],
        test_int=cpanel["test_interval"],
        max_time=cpanel["max_exec_time"],
        max_iter=cpanel["max_exec_iter"],
        on_sigusr1=cpanel["on_sigusr1"],
        grace_s=cpanel["grace_s"],
        init_from=cpanel["init_from"],
        on_epoch=cpanel["on_epoch"],
    )


def explorer_nodes(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nodes of the explorers that train, test and play.

    Tests and play step at most as many environments as there are episodes, with the workers and the patience of
    training; what they return depends on none of the three.

    Raises:
        ConfigError: a chunk has no step, or a test no episode.
    """
    episodes = cpanel["test_win_size"]
    for key in ("n_steps", "test_win_size"):
        if cpanel[key] < 1:
            raise ConfigError(f"{key}: expected at least 1, found {cpanel[key]}; choose one in that range")
    same = {key: cpanel[key] for key in _SHARED}
    evaluated = {**same, "num_envs": min(cpanel["num_envs"], episodes), "n_episodes": episodes}
    statistics = node(
        StatisticsConfig,
        observations=cpanel.get("normalize_observations", False),
        rewards=cpanel.get("normalize_rewards", False),
        gamma=cpanel["gamma"],
    )
    return {
        "train": node(
            ExplorerConfig,
            num_envs=cpanel["num_envs"],
            backend=cpanel.get("backend", "auto"),
            n_steps=cpanel["n_steps"],
            statistics=statistics,
            **same,
        ),
        "test": node(ExplorerConfig, deterministic=True, **evaluated),
        "eval": node(ExplorerConfig, deterministic=True, **evaluated),
    }


def whole_params(cpanel: Mapping[str, Any], *, agent: Mapping[str, Any], memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole params tree of one agent and one memory, given as nodes."""
    return {
        "env": env_node(cpanel),
        "runner": runner_node(cpanel),
        "engine": cpanel["engine"],
        "explorer": explorer_nodes(cpanel),
        "memory": {"train": dict(memory)},
        "agents": {"agent": dict(agent)},
    }
