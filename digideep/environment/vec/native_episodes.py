"""The episodes of a vector environment: which are over, what they returned, and what a checkpoint keeps of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from digideep.environment.vec.base import FinishedEpisode
from digideep.environment.vec.native_arrays import info_of
from digideep.environment.vec.outcome import episode_metrics
from digideep.environment.vec.slab import Slab
from digideep.errors import EnvironmentFailure

__all__ = ["NativeEpisodes"]

Array: TypeAlias = np.ndarray[Any, Any]


class NativeEpisodes:
    """The running episodes of all environments of a slab.

    Attributes:
        returns: float64 [N], of the running episodes.
        are_over: whether any has ended, so that the next step begins a new one.
        tick: steps made.
    """

    def __init__(self, slab: Slab, *, info_keys: Sequence[str]) -> None:
        self._slab = slab
        self._info_keys = info_keys
        self.returns = np.zeros(slab.num_envs)
        self.are_over = False
        self.tick = 0
        self._over: Array = np.zeros(0, np.int64)
        self._was_seeded = np.zeros(slab.num_envs, bool)
        self._finished: list[FinishedEpisode] = []

    def begin(self, *, was_seeded: bool) -> None:
        """Note that every environment has begun an episode, outside of a step."""
        self._slab.numbers += 1
        self._slab.born.fill(self.tick)
        self.returns.fill(0.0)
        self._was_seeded.fill(was_seeded)
        self.drop()

    def drop(self) -> None:
        """Forget that episodes are over: all are going to be begun anew."""
        self._slab.over.fill(0)
        self.are_over = False

    def reopen(self, t: int, ends: Array) -> None:
        """Count the episodes that step `t` has begun, and write what such a step is: no transition.

        Raises:
            EnvironmentFailure: one of these ends at once, by `ends`, [N] of bool.
        """
        slab, over = self._slab, self._over
        if ends[over].any():
            env = int(over[ends[over].argmax()])
            raise EnvironmentFailure(f"environment {env}: expected no end in the step that resets, found one")
        slab.rewards[t][over] = slab.terminations[t][over] = self.returns[over] = 0.0
        slab.masks[t + 1][over] = 0.0
        slab.numbers[over] += 1
        slab.born[over] = self.tick
        slab.over[over] = 0
        self._was_seeded[over] = False
        self.are_over = False

    def end(self, ends: Array, infos: Mapping[str, Any]) -> None:
        """Note the episodes that the last step has ended, by `ends`, [N] of bool."""
        slab, over = self._slab, np.flatnonzero(ends)
        self._finished += [
            FinishedEpisode(
                tick=self.tick,
                env=env,
                number=int(slab.numbers[env]),
                return_=float(self.returns[env]),
                length=self.tick - int(slab.born[env]),
                seed=int(slab.seeds[env]) if self._was_seeded[env] else None,
                metrics=self._metrics(infos, env) if infos else {},
            )
            for env in over.tolist()
        ]
        slab.over[over] = 1
        self._over, self.are_over = over, True

    def _metrics(self, infos: Mapping[str, Any], env: int) -> dict[str, float]:
        return episode_metrics(info_of(infos, env, num_envs=self._slab.num_envs), self._info_keys)

    def collect(self) -> list[FinishedEpisode]:
        """Return the episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def states(self, record: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Return the state of each episode; that of environment 0 holds `record`, of the vector environment."""
        slab = self._slab
        return [
            {
                "environment": record if env == 0 else None,
                "return": float(self.returns[env]),
                "length": self.tick - int(slab.born[env]),
                "number": int(slab.numbers[env]),
                "over": bool(slab.over[env]),
                "seed": int(slab.seeds[env]),
                "was_seeded": bool(self._was_seeded[env]),
            }
            for env in range(slab.num_envs)
        ]

    def load(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Take over what `states` returned."""
        slab = self._slab
        slab.born[:] = [self.tick - saved["length"] for saved in states]
        slab.over[:] = [saved["over"] for saved in states]
        self.returns[:] = [saved["return"] for saved in states]
        self._was_seeded[:] = [saved["was_seeded"] for saved in states]
        self._over = np.flatnonzero(slab.over)
        self.are_over = len(self._over) > 0
