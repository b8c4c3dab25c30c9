"""SAC with twin critics and a learned temperature on the DeepMind Control Suite, walker-walk to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params import sacv2_params

__all__ = ["cpanel", "gen_params"]

cpanel: dict[str, Any] = {
    **sacv2_params.cpanel,
    # The environment, and how it is stepped: a chunk is 1 x 8 = 8 frames.
    "model_name": "dm_control/walker-walk-v0",
    # The run: epochs of 10,000 frames, ten episodes each.
    "epoch_size": 1250,
    "total_frames": 500_000,
    "test_win_size": 5,
    "save_interval": 2,
    # The method.
    "lr": 3e-4,
    "warm_up": 5_000,
    "capacity": 1_000_000,
}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    return sacv2_params.gen_params(cpanel)
