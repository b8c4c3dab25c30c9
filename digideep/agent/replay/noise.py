"""Noise that is added to actions so that a deterministic policy tries something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from digideep.agent.schedules import linear
from digideep.utility.differences import check_parts

__all__ = ["ActionNoise", "Noise", "NoiseKind"]

Array: TypeAlias = np.ndarray[Any, Any]

NoiseKind: TypeAlias = Literal["normal", "ornstein_uhlenbeck"]

_MEAN_REVERSION = 0.15


class Noise(Protocol):
    """What `DDPGAgent.make_noise` returns: noise that is added to actions after the warm-up, in training only."""

    @property
    def remembers(self) -> bool:
        """Whether what comes next depends on what each environment had before."""

    def scale(self, row: int) -> float:
        """Return the deviation at a row, for the monitor; rows count from the first one that had noise."""

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator, *, row: int, masks: Array | None) -> Array:
        """Return noise `[N, D]`, float32, in units of half the action's range, drawn from `rng` only.

        Where a mask `[N]` is 0 an episode begins; None: nowhere.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return what the next draw depends on beside row and generator, as plain data and copies of arrays."""

    def load_state_dict(self, state: Mapping[str, Any], *, where: str) -> None:
        """Take over what `state_dict` returned; messages begin with `where`."""


class ActionNoise:
    """Normal noise, new at each step, or Ornstein-Uhlenbeck noise, which wanders and begins each episode at 0.

    A step of the second is x += -0.15 x + scale n with n standard normal: its deviation in the long run is 1.9 times
    `scale`. Sources: Fujimoto et al. 2018, arXiv:1802.09477, section 6.1; Uhlenbeck and Ornstein 1930 as in Lillicrap
    et al. 2016, arXiv:1509.02971, section 7.

    Args:
        kind: which.
        scale: deviation at the first row, in units of the action's bounds.
        final: deviation at the horizon; None: constant.
        horizon: over which it moves, in rows, one for each environment and step.
    """

    def __init__(self, kind: NoiseKind, *, scale: float, final: float | None = None, horizon: int = 0) -> None:
        self._kind = kind
        self._scale, self._final, self._horizon = scale, final, horizon
        self._wandering: Array | None = None  # [N, D]

    @property
    def remembers(self) -> bool:
        """Whether what comes next depends on what each environment had before."""
        return self._kind == "ornstein_uhlenbeck"

    def scale(self, row: int) -> float:
        """Return the deviation at a row, counted from the first one that had noise."""
        return linear(self._scale, self._final, horizon=self._horizon, frame=row)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator, *, row: int, masks: Array | None) -> Array:
        """Return noise `[N, D]`; where a mask `[N]` is 0 an episode begins."""
        noise = rng.standard_normal(shape, dtype=np.float32) * np.float32(self.scale(row))
        if self._kind == "normal":
            return noise
        before = self._wandering
        if before is None or before.shape != shape:
            before = np.zeros(shape, np.float32)
        elif masks is not None:
            before = before * masks[:, None]
        self._wandering = np.asarray(before * np.float32(1.0 - _MEAN_REVERSION) + noise)
        return self._wandering

    def state_dict(self) -> dict[str, Any]:
        """Return where the noise has wandered to; the schedule follows rows that others count."""
        return {"wandering": None if self._wandering is None else self._wandering.copy()}

    def load_state_dict(self, state: Mapping[str, Any], *, where: str) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: a part is missing or surplus.
        """
        check_parts(state, ("wandering",), where=where)
        self._wandering = None if state["wandering"] is None else np.array(state["wandering"])
