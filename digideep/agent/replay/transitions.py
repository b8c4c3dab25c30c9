"""Transitions drawn from a memory, normalised, as methods that learn from old data need them."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.agent.replay.targets import n_step_returns
from digideep.memory.base import IMPORTANCE
from digideep.memory.ringbuffer import RingBuffer
from digideep.types import Batch, SampleSpec, Store
from digideep.utility.statistics import Normalizer

__all__ = ["Replay", "Transitions"]

Array: TypeAlias = np.ndarray[Any, Any]


class Transitions(NamedTuple):
    """`B` windows: what was seen and done first, what it gave, and what was seen after up to `n_step` steps.

    `observations` and `following` are normalised, `[B, ...]` by slot; `actions` raw, by slot. A target is
    `rewards + discounts * value(following)`: `rewards` is the discounted sum, `discounts` gamma^k, or 0 where the task
    ended. `importance` is what each row weighs in a mean, 1 where all draws are equally likely, and `is_prioritized`
    says whether they are not. `indices` and `generations` name the rows to the memory.
    """

    observations: dict[str, Array]
    actions: dict[str, Array]
    rewards: Array
    discounts: Array
    following: dict[str, Array]
    importance: Array
    is_prioritized: bool
    indices: Array
    generations: Array


class Replay:
    """Draws transitions of one agent from a memory; the arrays of a draw are overwritten by the next.

    Args:
        memory: what it draws from.
        rng: what picks the rows; its owner saves it.
        slots: of the observations.
        actions: slots of the actions.
        name: of the agent.
        n_step: rewards of a window.
        discount: gamma.
    """

    def __init__(
        self,
        memory: Store,
        rng: np.random.Generator,
        *,
        slots: Sequence[str],
        actions: Sequence[str],
        name: str,
        n_step: int,
        discount: float,
    ) -> None:
        self.memory = memory
        self._is_sized = isinstance(memory, Sized)
        self._rng = rng
        self._slots = tuple(slots)
        self._actions = {slot: f"/agents/{name}/actions{'/' if slot else ''}{slot}" for slot in actions}
        self._keys = (
            "/rewards",
            "/terminations",
            *self._actions.values(),
            *(f"/observations/{slot}" for slot in self._slots),
        )
        self._n_step = n_step
        self._discount = discount
        self._drawn: Batch | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw: after a reset of all environments a small memory holds none but those."""
        return self._is_sized and len(self.memory) == 0  # type: ignore[arg-type]

    def check_room(self, *, num_envs: int) -> None:
        """Refuse a memory that is too small for a whole window of each environment.

        Raises:
            ConfigError: it is.
        """
        if isinstance(self.memory, RingBuffer):
            self.memory.check_windows(self._n_step, num_envs=num_envs)

    def draw(self, size: int, normalizer: Normalizer, *, beta: float | None = None) -> Transitions:
        """Return `size` transitions; `beta` is how far importance weights make up for draws that are not uniform."""
        # Of a window's observations only the ends are needed: of pictures the others would take most of the time.
        spec = SampleSpec(size, n_step=self._n_step, beta=beta, keys=self._keys, ends=True)
        drawn = self._drawn = self.memory.sample(spec, self._rng, out=self._drawn)
        returns = n_step_returns(
            normalizer.rewards(drawn["/rewards"]),
            drawn["/terminations"],
            drawn["/weights"],
            n_step=self._n_step,
            discount=self._discount,
        )
        importance = drawn.get(IMPORTANCE)
        return Transitions(
            observations=self._observations(drawn, 0, normalizer),
            actions={slot: drawn[key][:, 0] for slot, key in self._actions.items()},
            rewards=returns.rewards,
            discounts=returns.discounts,
            following=self._observations(drawn, 1, normalizer),
            importance=np.ones(size, np.float32) if importance is None else importance,
            is_prioritized=importance is not None,
            indices=drawn["/indices"],
            generations=drawn["/generations"],
        )

    def update_priorities(self, transitions: Transitions, priorities: Array) -> None:
        """Tell the memory how much each transition is worth drawing again, `[B]`."""
        self.memory.update_priorities(transitions.indices, priorities, transitions.generations)

    def _observations(self, drawn: Batch, end: int, normalizer: Normalizer) -> dict[str, Array]:
        return dict(normalizer.observations({slot: drawn[f"/observations/{slot}"][:, end] for slot in self._slots}))
