"""TD3 on Toy-v0 with everything on that has a state and a memory that wraps around; an epoch is an instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.agent.td3.config import TD3Config
from digideep.params.replay import actor_critics_node, method_knobs, replay_agent_node, replay_params
from digideep.testing.replay_toys import REPLAY_TOY, REPLAY_TOY_METHOD

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **method_knobs(TD3Config),
    **REPLAY_TOY,
    **REPLAY_TOY_METHOD,
    # Priorities, with schedules of both exponents; noise that falls; a policy that moves at every second step.
    "prioritized": True,
    "priority_alpha_final": 0.3,
    "noise_scale_final": 0.05,
    "critic_hidden_sizes": [24],
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return replay_params(cpanel, agent=replay_agent_node(TD3Config, cpanel, model=actor_critics_node(cpanel)))
