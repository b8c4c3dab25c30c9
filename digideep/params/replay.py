"""What presets share whose agent learns from a replay memory: their knobs, and the nodes made from them.

Every field of the method's configuration is a knob of the same name, but for horizons: schedules end where the goal is.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from digideep.agent.replay.config import ReplayConfig
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig
from digideep.model.config import ActorCriticsConfig
from digideep.params.common import horizon_frames, network_fields, whole_params
from digideep.utility.node import TYPE, node

__all__ = ["MEMORY", "actor_critics_node", "method_knobs", "replay_agent_node", "replay_params"]

_HORIZON = "_horizon"
_GIVEN = (TYPE, "model", "memory", "gamma", "lr")

MEMORY: Mapping[str, Any] = MappingProxyType(
    {
        "capacity": 1_000_000,
        "prioritized": False,
        "on_disk": False,
        "on_damage": "stop",
        "normalize_observations": False,
        "normalize_rewards": False,
        "action_transform": "rescale",
    }
)
"""Control panel keys that every method with a replay memory has beside its own, with their defaults."""


def method_knobs(config: type[ReplayConfig]) -> dict[str, Any]:
    """Return the control panel keys of a method, with the defaults of its configuration."""
    return {key: value for key, value in node(config).items() if key not in _GIVEN and not key.endswith(_HORIZON)}


def replay_agent_node(
    config: type[ReplayConfig], cpanel: Mapping[str, Any], *, model: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the node of an agent whose schedules end where the goal is."""
    fields = node(config)
    own = {key: cpanel[key] for key in method_knobs(config)}
    horizons = {key: horizon_frames(cpanel) for key in fields if key.endswith(_HORIZON)}
    shared = {"gamma": cpanel["gamma"], "lr": cpanel["lr"], "memory": "train"}
    return node(config, model=dict(model), **own, **horizons, **shared)


def actor_critics_node(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node of a policy and critics of fully connected layers."""
    return node(ActorCriticsConfig, **network_fields(cpanel))


def replay_params(cpanel: Mapping[str, Any], *, agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole params tree of one agent that learns from a replay memory."""
    memory = PrioritizedBufferConfig if cpanel["prioritized"] else RingBufferConfig
    fields = {key: cpanel[key] for key in ("capacity", "on_disk", "on_damage", "frame_stack") if key in cpanel}
    return whole_params(cpanel, agent=agent, memory=node(memory, **fields))
