"""What presets of DQN share: its knobs, and the nodes of its networks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from digideep.agent.dqn.config import DQNConfig
from digideep.errors import ConfigError, one_line
from digideep.model.config import QMixedConfig, QNetworkConfig
from digideep.params.common import network_fields
from digideep.params.replay import MEMORY, method_knobs, replay_agent_node, replay_params
from digideep.utility.node import node

__all__ = ["DQN", "dqn_params", "q_network_node"]

_NETWORK = ("dueling", "noisy", "noisy_deviation")
_OF_CRITICS: Mapping[str, Any] = MappingProxyType({"critic_hidden_sizes": None, "critic_observations": []})

DQN: Mapping[str, Any] = MappingProxyType(
    {
        **{key: value for key, value in MEMORY.items() if key != "action_transform"},
        **method_knobs(DQNConfig),
        **{key: node(QNetworkConfig)[key] for key in _NETWORK},
    }
)
"""DQN's own control panel keys, with their defaults."""


def q_network_node(cpanel: Mapping[str, Any], *, has_pictures: bool = False) -> dict[str, Any]:
    """Return the node of a network of action values: fully connected layers, with `has_pictures` behind encoders.

    Raises:
        ConfigError: a knob asks for something of a critic, which there is not.
    """
    for knob, empty in _OF_CRITICS.items():
        if cpanel[knob] != empty:
            expected, found = json.dumps(empty), one_line(json.dumps(cpanel[knob]), limit=80)
            raise ConfigError(
                f"{knob}: expected {expected}, since DQN has one network, which acts, and no critic, found {found}; "
                f"leave it out"
            )
    config = QMixedConfig if has_pictures else QNetworkConfig
    return node(config, **network_fields(cpanel), **{key: cpanel[key] for key in _NETWORK})


def dqn_params(cpanel: Mapping[str, Any], *, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole params tree of one DQN agent with the network of the node `model`."""
    return replay_params(cpanel, agent=replay_agent_node(DQNConfig, cpanel, model=model))
