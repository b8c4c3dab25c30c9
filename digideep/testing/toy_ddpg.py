"""DDPG on Toy-v0 with everything on that has a state and a memory that wraps around; an epoch is an instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.agent.ddpg.config import DDPGConfig
from digideep.params.replay import actor_critics_node, method_knobs, replay_agent_node, replay_params
from digideep.testing.replay_toys import REPLAY_TOY, REPLAY_TOY_METHOD

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **method_knobs(DDPGConfig),
    **REPLAY_TOY,
    **REPLAY_TOY_METHOD,
    # Noise that wanders, and falls; a decay; layers that are normalised.
    "noise": "ornstein_uhlenbeck",
    "noise_scale_final": 0.05,
    "critic_weight_decay": 1e-2,
    "layer_norm": True,
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return replay_params(cpanel, agent=replay_agent_node(DDPGConfig, cpanel, model=actor_critics_node(cpanel)))
