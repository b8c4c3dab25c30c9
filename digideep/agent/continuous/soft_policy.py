"""A policy that draws its actions through tanh and is moved towards value and entropy: what both forms of SAC share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from digideep.agent.continuous.passes import CriticPass, PolicyPass
from digideep.agent.continuous.policy import Head
from digideep.model.squashed import Squashed, squash, squashed_mode

__all__ = ["SOFT_HEAD", "SoftBatch", "SoftFigures", "SoftPolicy"]

Array: TypeAlias = np.ndarray[Any, Any]

SOFT_HEAD = Head(best=squashed_mode, draw=lambda outputs, noise: squash(outputs, noise).actions)
"""How outputs become actions: tanh of the means, or of a draw."""


class SoftBatch(Protocol):
    """A batch: normalised observations by slot, and noise `[B, D]` that picks an action for each."""

    @property
    def observations(self) -> Mapping[str, Any]:
        """Return them by slot."""
        ...

    @property
    def noise(self) -> Any:
        """Return it."""
        ...


class SoftFigures(NamedTuple):
    """The loss of a policy, and the mean of its log-densities."""

    loss: float
    log_prob: float


class _Drawn(NamedTuple):
    batch: SoftBatch
    squashed: Squashed


class SoftPolicy:
    """What a policy of now does in a batch, computed once for all parts of a step, and its gradient.

    Args:
        policy: the way through it. Nobody else may use it between `draw` and `gradient`.
    """

    def __init__(self, policy: PolicyPass) -> None:
        self._policy = policy
        self._drawn: _Drawn | None = None

    def draw(self, batch: SoftBatch) -> Squashed:
        """Return the actions that the batch's noise picks, until `forget` those of the first call."""
        if self._drawn is None or self._drawn.batch is not batch:
            self._drawn = _Drawn(batch, squash(self._policy(batch.observations), batch.noise))
        return self._drawn.squashed

    def forget(self) -> None:
        """Take note that the policy has moved."""
        self._drawn = None

    def gradient(self, batch: SoftBatch, critics: CriticPass, *, temperature: float) -> SoftFigures:
        """Write the gradient of the policy.

        With B rows, a and l what it draws and the log-densities, c the temperature: L = mean(c l - min q(a)), so that
        dL/dl = c / B, dL/dq = -1/B for the lesser critic of each row, and from there through the critics to a, and
        through `squashed` to the policy's outputs.
        """
        squashed = self.draw(batch)
        rows = len(squashed.log_probs)
        values = critics(batch.observations, squashed.actions)
        by_values = np.zeros_like(values)
        by_values[values.argmin(axis=0), np.arange(rows)] = -1.0 / rows
        by_actions = critics.by_actions(by_values)
        by_log_probs = np.full(rows, temperature / rows, values.dtype)
        self._policy.backward(squashed.gradient(by_actions, by_log_probs))
        self.forget()  # its activations are spent
        log_prob = float(squashed.log_probs.mean())
        return SoftFigures(temperature * log_prob - float(values.min(axis=0).mean()), log_prob)
