"""Parameters of one's own: PPO in the corridor, with two knobs that no preset has.

python -m digideep.main --params examples/corridor_ppo.py --set corridor_length=12
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.params import cartpole_ppo

# A control panel is a dictionary: take a preset's, change what the task needs, add what is new.
cpanel: dict[str, Any] = {
    **cartpole_ppo.cpanel,
    "model_name": "Corridor-v0",
    "from_module": "corridor",  # found beside this file, imported first, copied into the session
    "epoch_size": 4,
    "total_frames": 60_000,
    "stop_return": None,
    "gae_lambda": 0.9,
    "corridor_length": 8,
    "careful": False,
}

# Which field a new knob configures: its type, its meaning in --describe, and its path are those of the field.
knobs = {"corridor_length": "/env/env_kwargs/length"}


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree; numbers that follow from two knobs are computed here, where both are visible."""
    tree = cartpole_ppo.gen_params(cpanel)
    length = cpanel["corridor_length"]
    tree["env"]["env_kwargs"] = {"length": length}
    # Tests begin with the door at its furthest, whatever the progress of training.
    tree["env"]["play_env_kwargs"] = {"length": length, "shortest": length}
    if cpanel["careful"]:
        tree["agents"]["agent"].update(target_kl=0.01, clip_param=cpanel["clip_param"] / 2)
    return tree
