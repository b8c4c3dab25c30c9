"""TD3: what it does otherwise than DDPG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from digideep.agent.ddpg.agent import DDPGAgent
from digideep.agent.replay.transitions import Transitions
from digideep.agent.td3.config import TD3Config
from digideep.agent.td3.losses import smoothed

__all__ = ["TD3Agent"]

Array: TypeAlias = np.ndarray[Any, Any]


class TD3Agent(DDPGAgent):
    """Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477); README.md lists every detail.

    Subclasses may override `critic_loss` and `policy_loss`, which puts them on the reference path, and `make_noise`.

    Args: as every agent; see docs/implement_a_method.md.
    """

    method = "TD3"
    n_critics = 2
    config: TD3Config

    def due(self) -> Sequence[str]:
        """Return the critics, and at every `policy_delay`-th step the policy."""
        return self.parts if self._is_policy_due else self.parts[:1]

    def follow(self) -> None:
        """Move the targets, at the steps at which the policy moved."""
        if self._is_policy_due:
            super().follow()

    def target_actions(self, transitions: Transitions) -> Array:
        """Return what the target policy does at the observations that follow, `[B, D]`, with noise."""
        actions = super().target_actions(transitions)
        noise = np.asarray(self.noise_rng.standard_normal(actions.shape, dtype=np.float32))
        return smoothed(actions, noise, scale=self.config.target_noise, bound=self.config.target_noise_bound)

    @property
    def _is_policy_due(self) -> bool:
        return (self.steps + 1) % self.config.policy_delay == 0
