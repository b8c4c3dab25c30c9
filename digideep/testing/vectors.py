"""A vector environment that checks who drives it, in each of the ways to begin the next episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from digideep.testing.environments import COUNT_MODULUS

__all__ = ["CountingVectorEnv"]

Array: TypeAlias = np.ndarray[Any, Any]


class CountingVectorEnv(VectorEnv[Array, Array, Array]):
    """CountingEnvs as one vector environment: the same counts, rewards and ends; ranks are those of neighbours.

    A reset with a seed begins again at 0, and environment i gets the rank seed + i, modulo 2**20.

    Args:
        num_envs: how many.
        lengths: steps of the episodes of each environment, one after the other, again from the first after the last.
        ends: how they end; `alternate` terminates the first, truncates the second, and so on.
        check_actions: whether a wrong action raises AssertionError; those of a step that resets may be any.
        autoreset_mode: when the next episode begins: in the step after the last one, or in the same step, whose last
            observation is in `infos["final_obs"]` then.
    """

    def __init__(
        self,
        num_envs: int = 1,
        lengths: Sequence[int] = (5,),
        *,
        ends: Literal["terminated", "truncated", "alternate"] = "terminated",
        check_actions: bool = True,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": autoreset_mode}
        self.single_observation_space = spaces.Box(0.0, np.inf, (2,), np.float32)
        self.single_action_space = spaces.Discrete(COUNT_MODULUS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._lengths = np.array([int(length) for length in lengths])
        self._ends, self._check_actions, self._mode = ends, check_actions, autoreset_mode
        self._counts, self._ranks = np.full(num_envs, -1), np.arange(num_envs)
        self._episodes, self._steps = np.full(num_envs, -1), np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)
        self.progress: list[dict[str, Any]] = []

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode everywhere and show the next integers, 0 if a seed is given."""
        first = seed[0] if isinstance(seed, list) else seed
        super().reset(seed=first)
        if first is not None:
            self._counts.fill(-1)
            self._episodes.fill(-1)
            self._ranks = (first + np.arange(self.num_envs)) % 2**20
        self._begin(np.ones(self.num_envs, bool))
        return self._observations(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Check that the actions belong to the counts, and show the next integers, which are the rewards too."""
        reset = self._over
        self._check(actions, ~reset)
        self._begin(reset)
        self._counts[~reset] += 1
        self._steps[~reset] += 1
        over = ~reset & (self._steps >= self._lengths[self._episodes % len(self._lengths)])
        terminates = (self._ends == "terminated") | ((self._ends == "alternate") & (self._episodes % 2 == 0))
        rewards = np.where(reset, 0.0, self._counts).astype(np.float64)
        infos: dict[str, Any] = {}
        if over.any():
            infos = {"metrics": {"last_count": rewards.copy(), "_last_count": over.copy()}, "_metrics": over.copy()}
        if self._mode is AutoresetMode.SAME_STEP:
            infos |= {"final_obs": self._observations(), "_final_obs": over.copy()}
            self._begin(over)
            self._over = np.zeros(self.num_envs, bool)
        else:
            self._over = over
        return self._observations(), rewards, over & terminates, over & ~terminates, infos

    def set_progress(self, progress: dict[str, Any]) -> None:
        """Keep what was told."""
        self.progress.append(progress)

    def get_state(self) -> dict[str, Array]:
        """Return where the counts stand."""
        state = {"counts": self._counts, "ranks": self._ranks, "episodes": self._episodes}
        return {**state, "steps": self._steps, "over": self._over}

    def set_state(self, state: dict[str, Array]) -> None:
        """Put the counts where `get_state` found them."""
        self._counts, self._ranks, self._episodes = state["counts"], state["ranks"], state["episodes"]
        self._steps, self._over = state["steps"], state["over"]

    def _begin(self, which: Array) -> None:
        self._counts[which] += 1
        self._episodes[which] += 1
        self._steps[which] = 0

    def _check(self, actions: Array, which: Array) -> None:
        expected = (self._counts + self._ranks) % COUNT_MODULUS
        wrong = np.flatnonzero(which & (actions != expected))
        if self._check_actions and wrong.size:
            i = int(wrong[0])
            raise AssertionError(f"environment {i}: expected action {expected[i]}, found {actions[i]}")

    def _observations(self) -> Array:
        return np.stack([self._counts, self._ranks], axis=1).astype(np.float32)
