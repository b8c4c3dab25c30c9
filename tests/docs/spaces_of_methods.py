"""The table of docs/methods.md that says which method takes which spaces: tried, not typed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from digideep.errors import SpaceError
from digideep.types import Counters
from digideep.utility.node import build
from digideep.utility.statistics import Normalizer

__all__ = ["MARKS", "METHODS", "SPACES", "rendered", "tried"]

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
MARKS = "<!-- spaces: begin -->", "<!-- spaces: end -->"
_ID = "MadeSpaces-v0"

METHODS = {
    "PPO": "cartpole_ppo",
    "PPO, recurrent": "cartpole_hidden_ppo_recurrent",
    "A2C": "classic_a2c",
    "DQN": "classic_dqn",
    "DDPG": "classic_ddpg",
    "TD3": "classic_td3",
    "SAC of 2018": "sac_params",
    "SAC": "sacv2_params",
}
"""The preset that stands for each method."""

_BOX = spaces.Box(np.float32(-2.0), np.float32(3.0), (2,), np.float32)
_FLAT = spaces.Box(np.float32(-1.0), np.float32(1.0), (3,), np.float32)
SPACES: dict[str, dict[str, spaces.Space[Any]]] = {
    "actions: `Discrete`": {"action": spaces.Discrete(3, start=1)},
    "actions: `MultiDiscrete`": {"action": spaces.MultiDiscrete([3, 2])},
    "actions: `MultiBinary`": {"action": spaces.MultiBinary(3)},
    "actions: `Box`": {"action": _BOX},
    "actions: `Box` without bounds": {"action": spaces.Box(-np.inf, np.inf, (2,), np.float32)},
    "actions: `Dict` or `Tuple` of `Box`": {"action": spaces.Dict({"arm": _BOX, "hand": spaces.Tuple([_BOX])})},
    "actions: `Dict` or `Tuple` of several kinds": {
        "action": spaces.Tuple([_BOX, spaces.Discrete(2), spaces.MultiBinary(2)])
    },
    "observations: `Box`": {},
    "observations: `Box` of bytes": {"observation": spaces.Box(0, 255, (4, 4), np.uint8)},
    "observations: `Discrete`": {"observation": spaces.Discrete(4, start=2)},
    "observations: `MultiDiscrete`": {"observation": spaces.MultiDiscrete([2, 5])},
    "observations: `MultiBinary`": {"observation": spaces.MultiBinary([2, 2])},
    "observations: `Dict` or `Tuple`, nested": {
        "observation": spaces.Dict({"a": spaces.Tuple([_FLAT, spaces.Discrete(3)]), "b": spaces.MultiBinary(2)})
    },
}
"""What is tried: the space named, beside an observation of three numbers and actions that the method likes best."""


class MadeSpaces(gymnasium.Env[Any, Any]):
    """Shows samples of one space, and insists on actions of the other."""

    def __init__(self, *, space: str, discrete: bool) -> None:
        made = SPACES[space]
        self.observation_space = made.get("observation", _FLAT)
        self.action_space = made.get("action", spaces.Discrete(2) if discrete else _BOX)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space, f"{action!r} is not in {self.action_space}"
        self._steps += 1
        return self.observation_space.sample(), 1.0, self._steps == 5, False, {}


gymnasium.register(_ID, entry_point=MadeSpaces)


def tried(method: str, space: str) -> str:
    """Return what becomes of two chunks of a method with a space: nothing, or the error that names the space."""
    preset = importlib.import_module(f"digideep.params.{METHODS[method]}")
    small = {
        "model_name": _ID,
        "env_kwargs": {"space": space, "discrete": method == "DQN"},
        "num_envs": 2,
        "n_steps": 8,
        "hidden_sizes": [8],
        "warm_up": 0,
        "n_updates": 2,
        "batch_size": 8,
        "minibatch_size": 16,
        "sequence_length": 8,
        "units": 8,
        "capacity": 64,
        "total_frames": 1000,
        "wrappers": [],
    }
    cpanel = {**preset.cpanel, **{key: value for key, value in small.items() if key in preset.cpanel}}
    try:
        _learn(preset.gen_params(cpanel))
    except SpaceError as error:
        return str(error)
    return ""


def rendered() -> str:
    """Return the table, of what was tried now."""
    lines = [f"| | {' | '.join(METHODS)} |", f"|---|{'---|' * len(METHODS)}"]
    for space in SPACES:
        cells = ["no" if tried(method, space) else "yes" for method in METHODS]
        lines.append(f"| {space} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stored() -> str:
    """Return the table that stands in the page."""
    first, last = (re.escape(mark) for mark in MARKS)
    found = re.search(f"{first}\n\n(.*?)\n\n{last}", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return found[1] if found else ""


def _learn(params: Mapping[str, Any]) -> None:
    train = {**params["explorer"]["train"], "env": dict(params["env"])}
    explorer = build(train, where="/explorer/train", builds_nodes=True, mode="train", seed=1)
    try:
        memory = build(params["memory"]["train"], where="/memory/train", name="train")
        agent = build(
            params["agents"]["agent"],
            where="/agents/agent",
            builds_nodes=True,
            name="agent",
            spec=_spec_for_agent(explorer.spec, params["env"]["action_transform"]),
            memory=memory,
            device="cpu",
            seed=1,
            monitor=lambda name, value: None,
        )
        for number in range(1, 3):
            explorer.set_actors({"agent": agent.actor(Normalizer())})
            memory.store(explorer.update())
            agent.update(Normalizer(), Counters(env_steps=16 * number))
    finally:
        explorer.close()


def _spec_for_agent(spec: Any, transform: str) -> Any:
    from digideep.environment.wrappers.action import spec_for_agent

    return spec._replace(actions=spec_for_agent(spec.actions, transform))
