"""All environments in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from digideep.environment.config import EnvConfig
from digideep.environment.make import preload
from digideep.environment.vec.base import NOTHING, Fault, FinishedEpisode, Forgiven, VecEnv
from digideep.environment.vec.hang import Hang, HangWatch, hung
from digideep.environment.vec.slab import Slab
from digideep.environment.vec.stepper import Stepper
from digideep.types import Progress
from digideep.utility.imports import BUILT_IN

__all__ = ["IMPORT_S", "SerialVecEnv"]

IMPORT_S = 120.0  # at least, for what environments have to import before one can be made
_CLOSE_S = 10.0


class SerialVecEnv(VecEnv):
    """Environments stepped one after the other where the caller runs: the fastest way for cheap ones.

    Args:
        config: which environment.
        num_envs: how many.
        allowed: packages that may be imported for them.
        render_mode: as Gymnasium has it.
        step_timeout_s: longest time of a call.
        forgiven: failures that end an episode only.
        on_stuck: see `HangWatch`.
        mode: of the explorer, for messages.
        first, worker: of the share of a larger whole: its first environment and the number it has in messages.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        num_envs: int,
        allowed: Sequence[str] = BUILT_IN,
        render_mode: str | None = None,
        step_timeout_s: float = 300.0,
        forgiven: Forgiven = NOTHING,
        on_stuck: Callable[[str], None] | None = None,
        mode: str = "train",
        first: int = 0,
        worker: int = 0,
    ) -> None:
        name = config.model_name
        envs = range(first, first + num_envs)
        self._watch = HangWatch(step_timeout_s, on_stuck=on_stuck)
        try:
            with self._watch.guard(lambda: f"environment {name}: importing it", limit_s=max(IMPORT_S, step_timeout_s)):
                preload(config, allowed=allowed)
            with self._watch.guard(lambda: f"environment {name}: making it"):
                self._stepper = Stepper(
                    config, envs=envs, worker=worker, allowed=allowed, render_mode=render_mode, forgiven=forgiven
                )
        except BaseException:
            self._watch.close()
            raise
        where = self._stepper.where
        self._watch.where = where if mode == "train" else lambda: f"explorer/{mode}: {where()}"
        self.spec = self._stepper.spec
        self.num_envs = num_envs
        self.num_workers = 0
        self.slab = None
        self.restarts = 0

    @property
    def tick(self) -> int:
        """Number of steps made."""
        return self._stepper.tick

    @property
    def obstacle(self) -> str:
        """Why a state cannot be saved, or an empty text."""
        return self._stepper.obstacle

    @property
    def has_faults(self) -> bool:
        """Whether `take_faults` has something to return."""
        return bool(self._stepper.faults)

    def _guarded(self) -> AbstractContextManager[None]:
        return self._watch.guard(self._stepper.where)

    def attach(self, n_steps: int) -> Slab:
        """Make the slab in this process's own memory."""
        slab = Slab(self.spec, num_envs=self.num_envs, n_steps=n_steps)
        slab.initialise()
        return self.join(slab)

    def join(self, slab: Slab) -> Slab:
        """Step into a slab that holds the environments of others too, and return it."""
        self.slab = slab
        self._stepper.attach(slab)
        return slab

    def reset(self, row: int) -> None:
        """Begin an episode where the mode is RESET."""
        with self._guarded():
            self._stepper.reset(row)

    def step(self, t: int) -> None:
        """Make one step of every environment."""
        watch = self._watch
        watch.begin()
        try:
            self._stepper.step(t)
        except Hang as hang:  # it came while the stepper was busy with another error
            raise hung(self._stepper.where(), hang) from None
        finally:
            watch.end()

    def collect(self) -> list[FinishedEpisode]:
        """Return the episodes that ended since the last call."""
        return self._stepper.collect()

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each environment."""
        with self._guarded():
            return self._stepper.states()

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Take over what `states` returned."""
        with self._guarded():
            return self._stepper.load_states(states)

    def take_faults(self) -> list[Fault]:
        """Return what was forgiven since the last call."""
        return self._stepper.take_faults()

    def rebuild(self, envs: Sequence[int]) -> None:
        """Close environments and make them anew."""
        with self._guarded():
            self._stepper.rebuild(envs)

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every environment that asks for it."""
        with self._guarded():
            self._stepper.set_progress(progress)

    def render(self, env: int) -> Any:
        """Return what `render()` of an environment gives."""
        with self._guarded():
            return self._stepper.render(env)

    def worker_of(self, env: int) -> int:
        """Return 0: there is only this process."""
        return 0

    def close(self) -> None:
        """Close every environment; one that does not come back is left alone after a while."""
        try:
            with self._watch.guard(lambda: "environment: closing it", limit_s=min(_CLOSE_S, self._watch.limit_s)):
                self._stepper.close()
        finally:
            self._watch.close()
