"""PPO on CartPole-v1 with a network of one's own, which residual_network.py holds.

python -m digideep.main --params examples/residual_ppo.py --set width=32 blocks=1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from digideep.model.config import ModelConfig
from digideep.params import cartpole_ppo
from digideep.utility.node import node, setting


@dataclass(frozen=True)
class ResidualConfig(ModelConfig):
    """What can be configured; this file imports no torch, so that a wrong option is told at once."""

    builds: ClassVar[str] = "residual_network:ResidualNetwork"  # imported when it is built

    width: int = setting(64, "units of the trunk", unit="units", low=1, high=4096)
    blocks: int = setting(2, "residual blocks", low=0)


cpanel: dict[str, Any] = {**cartpole_ppo.cpanel, "width": 64, "blocks": 2}
for _knob in ("hidden_sizes", "activation", "shared", "layer_norm", "critic_hidden_sizes", "critic_observations"):
    del cpanel[_knob]  # this network does not have it


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the preset's tree with another network in it."""
    tree = cartpole_ppo.gen_params({**cartpole_ppo.cpanel, **cpanel})
    tree["agents"]["agent"]["model"] = node(ResidualConfig, width=cpanel["width"], blocks=cpanel["blocks"])
    return tree
