"""SAC with a value network on Toy-v0 with everything on that has a state; an epoch is an instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.agent.sac_value.config import SACValueConfig
from digideep.params.replay import actor_critics_node, method_knobs, replay_agent_node, replay_params
from digideep.testing.replay_toys import REPLAY_TOY, REPLAY_TOY_METHOD

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **method_knobs(SACValueConfig),
    **REPLAY_TOY,
    **REPLAY_TOY_METHOD,
    # A value network with a target, beside the critics.
    "reward_scale": 3.0,
    "activation": "tanh",
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return replay_params(cpanel, agent=replay_agent_node(SACValueConfig, cpanel, model=actor_critics_node(cpanel)))
