"""The raw actions of the episodes that are running, so that a failure can be walked to again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.environment.vec.base import VecEnv
from digideep.environment.vec.slab import Slab

__all__ = ["ActionHistory", "EpisodeActions", "tell_crash"]

Array: TypeAlias = np.ndarray[Any, Any]

ActionsOf: TypeAlias = Callable[[int], Mapping[str, Array] | None]

_LIMIT_BYTES = 64 * 2**20  # of actions; of an episode that is longer nothing can be walked to


class _Kept(NamedTuple):
    before: int  # steps that had been made when the chunk began
    actions: dict[str, Array]  # [T, N, ...] by slot


class ActionHistory:
    """The actions of former chunks, as far back as an episode goes that is still running."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._kept: deque[_Kept] = deque()
        self._chunk_bytes = sum(array[:-1].nbytes for array in slab.actions.values())

    def keep(self, before: int) -> None:
        """Copy the chunk that is complete; it began when `before` steps had been made."""
        end = before + self._slab.n_steps
        oldest = int(self._slab.born.min())
        if oldest < end:
            self._kept.append(_Kept(before, {slot: array[:-1].copy() for slot, array in self._slab.actions.items()}))
        while self._kept and (
            self._kept[0].before + self._slab.n_steps <= oldest or len(self._kept) * self._chunk_bytes > _LIMIT_BYTES
        ):
            self._kept.popleft()

    def episode(self, env: int, *, before: int, tick: int) -> dict[str, Array] | None:
        """Return the actions `[T, ...]` by slot of the running episode of an environment; None where some are missing.

        Args:
            env: which environment.
            before: steps made when the chunk began that is in the slab.
            tick: steps made now; the last one is part of the answer.
        """
        born = int(self._slab.born[env])
        first = self._kept[0].before if self._kept else before
        if born < first:
            return None
        rows = tick - before
        answer = {}
        for slot, array in self._slab.actions.items():
            pieces = [*(kept.actions[slot][:, env] for kept in self._kept), array[:rows, env]]
            answer[slot] = np.concatenate(pieces)[born - first :]
        return answer


class EpisodeActions:
    """The actions of one episode that is played alone, as raw arrays by slot."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._kept: list[dict[str, Array]] = []
        step_bytes = sum(array[0, 0].nbytes for array in slab.actions.values())
        self._limit = _LIMIT_BYTES // (max(step_bytes, 1) * slab.num_envs)
        self._steps = 0

    def keep(self, env: int) -> None:
        """Copy the action that lies in row 0 for an environment."""
        self._steps += 1
        if self._steps <= self._limit:
            self._kept.append({slot: array[0, env].copy() for slot, array in self._slab.actions.items()})

    def arrays(self) -> dict[str, Array] | None:
        """Return the actions `[T, ...]` by slot; None of an episode that is too long to keep."""
        if self._steps > self._limit:
            return None
        return {
            slot: np.asarray([kept[slot] for kept in self._kept], array.dtype).reshape(-1, *array.shape[2:])
            for slot, array in self._slab.actions.items()
        }


def tell_crash(error: Exception, vec: VecEnv, actions_of: ActionsOf, *, mode: str) -> None:
    """Add to a failure of an environment, as attribute `crash`, what is needed to walk to it again, if that is known.

    Args:
        error: what a reset or step of `vec` raised; others are left as they are.
        vec: which raised it.
        actions_of: gives the actions of the running episode of an environment.
        mode: of the explorer.
    """
    place = getattr(error, "place", None)
    slab = vec.slab
    if place is None or slab is None:
        return
    origin = vec.origin(place.env)
    actions = actions_of(place.env)
    if origin is None or actions is None:
        return
    error.crash = {  # type: ignore[attr-defined]
        **origin,
        "phase": place.phase,
        "mode": mode,
        "worker": vec.worker_of(place.env),
        "env_index": place.env,
        "episode": int(slab.numbers[place.env]),
        "step": vec.tick - int(slab.born[place.env]),
        "actions": actions,
    }
