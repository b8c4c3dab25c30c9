"""Environment state by replay: the generator before an episode and the episode's actions lead to the same state.

Some of these environments can be written down as data in most of their moments; then that is the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from digideep.environment.state_grid import GRID
from digideep.environment.state_plain import NotPlainError, unpack
from digideep.environment.state_simulators import Adapter
from digideep.errors import CheckpointError, NotReproducibleError
from digideep.utility.seeding import generator_state, set_generator_state

__all__ = ["MAX_STEPS", "REPLAYED", "ReplayRecorder", "record_for_replay"]

REPLAYED: Mapping[str, Adapter | None] = {"gymnasium.envs.box2d.": None, "minigrid.": GRID}
"""Modules of environments that repeat an episode bit for bit, and how those are written down that can be."""

# They build each episode in the world that former ones leave behind, whose order of contacts is another then: neither a
# seed nor a replay would repeat an episode. Each gets a new world.
_KEEP_THEIR_WORLD = ("BipedalWalker", "CarRacing")

MAX_STEPS = 100_000
"""Longest episode that is replayed; beyond it a resume would take longer than it is worth."""


class ReplayRecorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps what one episode needs to be walked again: how it was reset, and every action since.

    It stands directly around the environment, so that the layers above it keep their own state.

    Args:
        env: the environment.
        data: how it is written down where it can be.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], data: Adapter | None = None) -> None:
        super().__init__(env)
        self._data = data
        self._is_known = True  # how the episode began
        self._rng: dict[str, Any] | None = None
        self._seed: int | None = None
        self._options: dict[str, Any] | None = None
        self._actions: list[Any] = []
        self._steps = 0
        self._last: Any = None  # what the environment showed last, by which a replay is checked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and begin a new record."""
        base: Any = self.env.unwrapped
        if type(base).__name__ in _KEEP_THEIR_WORLD:
            base._destroy()
            base.world = type(base.world)(gravity=base.world.gravity)
        # What a seed replaces came from the operating system, and two equal runs would differ in it.
        self._rng = generator_state(base.np_random) if seed is None else None
        self._seed, self._options = seed, options
        self._actions, self._steps, self._is_known = [], 0, True
        self._last, info = self.env.reset(seed=seed, options=options)
        return self._last, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and note the action."""
        self._steps += 1
        if self._steps <= MAX_STEPS:
            # The caller's array may be a view of memory that the next step overwrites.
            self._actions.append(action.copy() if hasattr(action, "copy") else action)
        result = self.env.step(action)
        self._last = result[0]
        return result

    @property
    def obstacle(self) -> str:
        """Why there is no state now; empty where there is one."""
        return "" if self._written() is not None else self._gap()

    def get_state(self) -> dict[str, Any]:
        """Return the environment as data, or the record and by what its replay is checked: generator and last sight.

        Raises:
            NotPlainError: there is neither, see `obstacle`.
        """
        written = self._written()
        if written is not None:
            return {"data": written}
        if gap := self._gap():
            raise NotPlainError(gap)
        return {
            "before": self._rng,
            "seed": self._seed,
            "actions": list(self._actions),
            "now": generator_state(self.env.unwrapped.np_random),
            "last": self._last,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Write the data into the environment, or walk the recorded episode again.

        Raises:
            CheckpointError: the record is of no episode, or of another kind of generator.
            NotReproducibleError: the walk did not end where the record does.
        """
        if self._data is not None and "data" in state:
            self._data.set_state(self.env.unwrapped, state["data"])
            self._actions, self._steps, self._is_known = [], 0, False
            return
        if state["before"] is not None:
            set_generator_state(self.env.unwrapped.np_random, state["before"])
        elif state["seed"] is None:
            raise CheckpointError("environment state: expected the record of an episode, found none")
        self.reset(seed=state["seed"])
        for action in state["actions"]:
            self.step(action)
        same_generator = generator_state(self.env.unwrapped.np_random) == state["now"]
        if not same_generator or not _same(self._last, state["last"]):
            raise NotReproducibleError(
                f"environment {self.env}: expected to stand after {self._steps} repeated steps where it stood, "
                f"found it elsewhere"
            )

    def _gap(self) -> str:
        """Return why the episode cannot be walked again; empty where it can."""
        if not self._is_known:
            return "nobody knows how its episode began, and it cannot be written down"
        if self._steps > MAX_STEPS:
            return f"the episode is longer than the {MAX_STEPS} steps that are replayed"
        return "" if self._options is None else "its episode was reset with options"

    def _written(self) -> dict[str, Any] | None:
        if self._data is None:
            return None
        try:
            return unpack(self._data.get_state(self.env.unwrapped))  # type: ignore[no-any-return]
        except NotPlainError:
            return None


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return np.asarray(left).tobytes() == np.asarray(right).tobytes()


def record_for_replay(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return `env` with a recorder around the innermost environment where its state needs one."""
    base = env.unwrapped
    family = next((known for known in REPLAYED if type(base).__module__.startswith(known)), None)
    if family is None:
        return env
    recorder = ReplayRecorder(base, REPLAYED[family])
    if base is env:
        return recorder
    layer: Any = env
    while layer.env is not base:
        layer = layer.env
    layer.env = recorder
    return env
