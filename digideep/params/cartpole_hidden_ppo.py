"""PPO without memory on CartPole-v1 whose velocities are hidden, to compare: it cannot learn to balance the pole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params import cartpole_hidden_ppo_recurrent
from digideep.params.common import COMMON
from digideep.params.ppo import PPO, ppo_params

__all__ = ["cpanel", "gen_params"]

_SAME = {key: value for key, value in cartpole_hidden_ppo_recurrent.cpanel.items() if key in {**COMMON, **PPO}}

cpanel: dict[str, Any] = {
    **COMMON,
    **PPO,
    # Everything that the preset with memory says, but for the network: as many layers, without a cell.
    **_SAME,
    "hidden_sizes": [64, 64],
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return ppo_params(cpanel)
