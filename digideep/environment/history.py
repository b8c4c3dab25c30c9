"""The raw actions of the episodes that are running, so that a failure can be walked to again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.environment.vec.base import VecEnv
from digideep.environment.vec.origin import forget, read_origin
from digideep.environment.vec.slab import Slab
from digideep.errors import DigideepError

__all__ = ["ActionHistory", "EpisodeActions", "Walk", "add_crash"]

Array: TypeAlias = np.ndarray[Any, Any]

_LIMIT_BYTES = 64 * 2**20  # of actions and what holds them; of an episode that is longer nothing can be walked to
_CHUNK_BYTES = 320  # what a chunk takes beside its arrays: a tuple, a number and a dict
_SLOT_BYTES = 160  # what an array takes beside its numbers
_BLOCK = 256  # steps that are put into one array


class _Kept(NamedTuple):
    before: int  # steps that had been made when the chunk began
    actions: dict[str, Array]  # [T, N, ...] by slot


class Walk(NamedTuple):
    """The way to a step of an episode: what its reset got, and its actions `[T, ...]` by slot, that of the step last.

    `seed` is None where the reset got none; `rng` is the state of the generator before it then.
    """

    seed: int | None
    rng: Mapping[str, Any] | None
    actions: Mapping[str, Array]


class ActionHistory:
    """The actions of former chunks, as far back as an episode goes that is still running, and what it began with."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._kept: deque[_Kept] = deque()
        self._carried = slab.origins[-1].copy()  # of the episodes that were running when the chunk began
        self._born = slab.born.copy()
        self._chunk_bytes = _CHUNK_BYTES + sum(_SLOT_BYTES + array[:-1].nbytes for array in slab.actions.values())

    def opened(self, envs: Sequence[int]) -> None:
        """Note that episodes were begun in the last row, outside a chunk."""
        for env in envs:
            self._carried[env] = self._slab.origins[-1, env]
            self._born[env] = self._slab.born[env]

    def continued(self) -> None:
        """Note that the running episodes began in another process."""
        forget(self._carried)
        self._born[:] = self._slab.born

    def keep(self, before: int) -> None:
        """Copy the chunk that is complete; it began when `before` steps had been made."""
        masks = self._slab.masks
        for env in np.flatnonzero((masks[1:] == 0).any(axis=0)):
            opened = int(np.flatnonzero(masks[:, env] == 0)[-1])
            self._carried[env] = self._slab.origins[opened, env]
        self._born[:] = self._slab.born
        end = before + self._slab.n_steps
        oldest = int(self._slab.born.min())
        if oldest < end:
            self._kept.append(_Kept(before, {slot: array[:-1].copy() for slot, array in self._slab.actions.items()}))
        while self._kept and (
            self._kept[0].before + self._slab.n_steps <= oldest or len(self._kept) * self._chunk_bytes > _LIMIT_BYTES
        ):
            self._kept.popleft()

    def walk(self, env: int, *, phase: str, before: int, rows: int) -> Walk | None:
        """Return the way to the call that wrote row `rows` of the slab; None where part of it is unknown.

        Args:
            env: which environment.
            phase: `reset`, or `step`.
            before: steps that had been made when the chunk began.
            rows: for a step also the number of steps of the chunk up to it.
        """
        slab = self._slab
        if phase == "reset":
            origin = read_origin(slab.origins[rows, env])
            nothing = {slot: array[:0, env].copy() for slot, array in slab.actions.items()}
            return None if origin is None else Walk(origin["seed"], origin["rng"], nothing)
        opened = max((int(t) for t in np.flatnonzero(slab.masks[:rows, env] == 0)), default=0)
        origin = read_origin(slab.origins[opened, env] if opened else self._carried[env])
        born = before + opened if opened else int(self._born[env])
        first = self._kept[0].before if self._kept else before
        if origin is None or born < first:
            return None
        actions = {}
        for slot, array in slab.actions.items():
            pieces = [*(kept.actions[slot][:, env] for kept in self._kept), array[:rows, env]]
            actions[slot] = np.concatenate(pieces)[born - first :]
        return Walk(origin["seed"], origin["rng"], actions)


class EpisodeActions:
    """The actions of one episode that is played alone, as raw arrays by slot."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._packed: list[dict[str, Array]] = []  # [_BLOCK, ...] by slot
        self._kept: list[dict[str, Array]] = []  # of the steps since, fewer than _BLOCK
        over = _CHUNK_BYTES + _SLOT_BYTES * len(slab.actions)
        block_bytes = over + _BLOCK * sum(array[0, 0].nbytes for array in slab.actions.values())
        room = _LIMIT_BYTES // slab.num_envs - _BLOCK * over
        self._limit = max(0, room // block_bytes) * _BLOCK
        self._steps = 0

    def keep(self, env: int) -> None:
        """Copy the action that lies in row 0 for an environment."""
        self._steps += 1
        if self._steps > self._limit:
            self._kept.clear()  # nothing can be walked to any more
            self._packed.clear()
            return
        self._kept.append({slot: array[0, env].copy() for slot, array in self._slab.actions.items()})
        if len(self._kept) == _BLOCK:
            self._packed.append(self._stacked())
            self._kept = []

    def arrays(self) -> dict[str, Array] | None:
        """Return the actions `[T, ...]` by slot; None of an episode that is too long to keep."""
        if self._steps > self._limit:
            return None
        parts = [*self._packed, self._stacked()]
        return {slot: np.concatenate([part[slot] for part in parts]) for slot in self._slab.actions}

    def _stacked(self) -> dict[str, Array]:
        return {
            slot: np.asarray([kept[slot] for kept in self._kept], array.dtype).reshape(-1, *array.shape[2:])
            for slot, array in self._slab.actions.items()
        }


def add_crash(error: DigideepError, walk: Walk | None, vec: VecEnv, *, mode: str, timeout_s: float) -> None:
    """Add to a failure of an environment, as attribute `crash`, what is needed to walk to it again, if that is known.

    Args:
        error: what a reset or step of `vec` raised, with the attribute `place`.
        walk: the way to it.
        vec: which raised it.
        mode: of the explorer.
        timeout_s: after which a call counts as one that does not come back.
    """
    place, slab = getattr(error, "place", None), vec.slab
    if place is None or slab is None or walk is None:
        return
    error.crash = {  # type: ignore[attr-defined]
        **walk._asdict(),
        "phase": place.phase,
        "mode": mode,
        "worker": vec.worker_of(place.env),
        "env_index": place.env,
        "episode": getattr(error, "episode", int(slab.numbers[place.env])),
        "step": min((len(array) for array in walk.actions.values()), default=0),
        "ending": getattr(error, "ending", "error"),
        "timeout_s": timeout_s,
    }
