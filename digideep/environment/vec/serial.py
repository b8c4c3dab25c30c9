"""All environments in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from digideep.environment.config import EnvConfig
from digideep.environment.vec.base import FinishedEpisode, VecEnv
from digideep.environment.vec.slab import Slab
from digideep.environment.vec.stepper import Stepper
from digideep.types import Progress
from digideep.utility.imports import BUILT_IN

__all__ = ["SerialVecEnv"]


class SerialVecEnv(VecEnv):
    """Environments stepped one after the other where the caller runs: the fastest way for cheap ones."""

    def __init__(
        self,
        config: EnvConfig,
        *,
        num_envs: int,
        allowed: Sequence[str] = BUILT_IN,
        render_mode: str | None = None,
    ) -> None:
        self._stepper = Stepper(config, envs=range(num_envs), allowed=allowed, render_mode=render_mode)
        self.spec = self._stepper.spec
        self.num_envs = num_envs
        self.num_workers = 0
        self.slab = None
        self.step = self._stepper.step  # type: ignore[method-assign]  # one call less in the step loop

    @property
    def tick(self) -> int:
        """Number of steps made."""
        return self._stepper.tick

    @property
    def obstacle(self) -> str:
        """Why a state cannot be saved, or an empty text."""
        return self._stepper.obstacle

    def attach(self, n_steps: int) -> Slab:
        """Make the slab in this process's own memory."""
        self.slab = Slab(self.spec, num_envs=self.num_envs, n_steps=n_steps)
        self.slab.initialise()
        self._stepper.attach(self.slab)
        return self.slab

    def reset(self, row: int) -> None:
        """Begin an episode where the mode is RESET."""
        self._stepper.reset(row)

    def step(self, t: int) -> None:
        """Make one step of every environment."""
        self._stepper.step(t)

    def collect(self) -> list[FinishedEpisode]:
        """Return the episodes that ended since the last call."""
        return self._stepper.collect()

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each environment."""
        return self._stepper.states()

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Take over what `states` returned."""
        return self._stepper.load_states(states)

    def origin(self, env: int) -> dict[str, Any] | None:
        """Return what the running episode began with."""
        return self._stepper.origin(env)

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every environment that asks for it."""
        self._stepper.set_progress(progress)

    def render(self, env: int) -> Any:
        """Return what `render()` of an environment gives."""
        return self._stepper.render(env)

    def worker_of(self, env: int) -> int:
        """Return 0: there is only this process."""
        return 0

    def close(self) -> None:
        """Close every environment."""
        self._stepper.close()
