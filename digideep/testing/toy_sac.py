"""SAC on Toy-v0 with everything on that has a state and a memory that wraps around; an epoch is an instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.agent.sac.config import SACConfig
from digideep.params.replay import actor_critics_node, method_knobs, replay_agent_node, replay_params
from digideep.testing.replay_toys import REPLAY_TOY, REPLAY_TOY_METHOD

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **method_knobs(SACConfig),
    **REPLAY_TOY,
    **REPLAY_TOY_METHOD,
    # Priorities, and a temperature with a learning rate of its own.
    "prioritized": True,
    "temperature": 0.2,
    "temperature_lr": 1e-2,
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return replay_params(cpanel, agent=replay_agent_node(SACConfig, cpanel, model=actor_critics_node(cpanel)))
