"""PPO on CartPole-v1 with an agent of one's own, which huber_agent.py holds.

python -m digideep.main --params examples/huber_ppo.py --set huber_delta=5
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from digideep.agent.ppo.config import PPOConfig
from digideep.params import cartpole_ppo
from digideep.utility.node import TYPE, node, setting


@dataclass(frozen=True)
class HuberConfig(PPOConfig):
    """PPO's fields and one more; the agent itself is imported when it is built."""

    builds: ClassVar[str] = "huber_agent:HuberAgent"

    huber_delta: float = setting(10.0, "error of a value beyond which its loss grows linearly", above=0.0)


cpanel: dict[str, Any] = {**cartpole_ppo.cpanel, "huber_delta": 10.0}
del cpanel["value_clip"]  # the Huber loss takes its place


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the preset's tree with another agent in it."""
    tree = cartpole_ppo.gen_params({**cartpole_ppo.cpanel, **cpanel, "value_clip": None})
    fields = {key: value for key, value in tree["agents"]["agent"].items() if key != TYPE}
    tree["agents"]["agent"] = node(HuberConfig, **fields, huber_delta=cpanel["huber_delta"])
    return tree
