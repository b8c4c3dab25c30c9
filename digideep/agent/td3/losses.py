"""What TD3 adds to DDPG's targets; its losses are DDPG's, with two critics."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from digideep.agent.ddpg.losses import DDPGBatch, bootstrapped_targets, critic_loss, policy_loss, weight_penalty

__all__ = ["DDPGBatch", "bootstrapped_targets", "critic_loss", "policy_loss", "smoothed", "weight_penalty"]

Array: TypeAlias = np.ndarray[Any, Any]


def smoothed(actions: Array, noise: Array, *, scale: float, bound: float) -> Array:
    """Return actions `[B, D]` with noise that is cut at `bound`, within [-1, 1].

    Args:
        actions: of the target policy.
        noise: from a standard normal.
        scale: deviation of the noise before it is cut.
        bound: of the noise.

    Source: Fujimoto et al. 2018, arXiv:1802.09477, section 5.3, eq. 14.
    """
    cut = np.clip(noise * actions.dtype.type(scale), -bound, bound)
    return np.asarray(np.clip(actions + cut, -1.0, 1.0))
