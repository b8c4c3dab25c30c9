"""Environments that check who drives them, that save their state, and that fail on purpose."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from digideep.utility.seeding import generator_state, set_generator_state

__all__ = ["COUNT_MODULUS", "CountingEnv", "Fault", "FaultyEnv", "ToyEnv"]

Array: TypeAlias = np.ndarray[Any, Any]
Step: TypeAlias = tuple[Any, Any, bool, bool, dict[str, Any]]

COUNT_MODULUS = 97
"""A CountingEnv expects the action (count + rank) modulo this number."""


class CountingEnv(gymnasium.Env[Array, Any]):
    """Shows (0, rank), (1, rank), (2, rank), ... and wants its own count back as action.

    Every reset shows the next integer too, so that each row of a slab must hold the one after the row before it. A
    reset with a seed begins again at 0, and the rank becomes that seed modulo 2**20.

    Args:
        lengths: steps of the episodes, one after the other, again from the first after the last.
        ends: how they end; `alternate` terminates the first, truncates the second, and so on.
        rank: what is shown beside the count until a seed says otherwise.
        check_actions: whether a wrong action raises AssertionError.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (5,),
        *,
        ends: Literal["terminated", "truncated", "alternate"] = "terminated",
        rank: int = 0,
        check_actions: bool = True,
    ) -> None:
        self.observation_space = spaces.Box(0.0, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(COUNT_MODULUS)
        self._lengths = tuple(int(length) for length in lengths)
        self._ends = ends
        self._check_actions = check_actions
        self._count, self._rank, self._episode, self._steps = -1, rank, -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode and show the next integer, 0 if a seed is given."""
        super().reset(seed=seed)
        if seed is not None:
            self._count, self._episode, self._rank = -1, -1, seed % 2**20
        self._count, self._episode, self._steps = self._count + 1, self._episode + 1, 0
        return self._observation(), {}

    def step(self, action: int) -> Step:
        """Check that the action belongs to the count, and show the next integer; the reward is that integer."""
        expected = (self._count + self._rank) % COUNT_MODULUS
        if self._check_actions and int(action) != expected:
            raise AssertionError(f"rank {self._rank}: expected action {expected} for {self._count}, found {action}")
        self._count, self._steps = self._count + 1, self._steps + 1
        ended = self._steps >= self._lengths[self._episode % len(self._lengths)]
        terminates = self._ends == "terminated" or (self._ends == "alternate" and self._episode % 2 == 0)
        info = {"metrics": {"last_count": float(self._count)}} if ended else {}
        return self._observation(), float(self._count), ended and terminates, ended and not terminates, info

    def get_state(self) -> dict[str, int]:
        """Return where the count stands."""
        return {"count": self._count, "rank": self._rank, "episode": self._episode, "steps": self._steps}

    def set_state(self, state: dict[str, int]) -> None:
        """Put the count where `get_state` found it."""
        self._count, self._rank = state["count"], state["rank"]
        self._episode, self._steps = state["episode"], state["steps"]

    def _observation(self) -> Array:
        return np.array([self._count, self._rank], dtype=np.float32)


class ToyEnv(gymnasium.Env[Array, Any]):
    """A point that is pushed towards the origin by one step a time, with noise; saves its whole state.

    Episodes end at the origin (terminated) or after a random number of steps (truncated), so that both happen often.

    Args:
        continuous: a box of two forces as action instead of one of four directions.
        sleep_s: longest random pause in a step, drawn from the clock and not from the seed.
    """

    def __init__(self, *, continuous: bool = False, sleep_s: float = 0.0) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32) if continuous else spaces.Discrete(4)
        self._continuous, self._sleep_s = continuous, sleep_s
        self._position = np.zeros(2)
        self._steps, self._limit, self._difficulty = 0, 1, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Put the point somewhere."""
        super().reset(seed=seed)
        self._position = self.np_random.uniform(-1.0, 1.0, size=2)
        self._steps, self._limit = 0, int(self.np_random.integers(5, 25))
        return self._observation(), {}

    def step(self, action: Any) -> Step:
        """Push the point; the reward is minus its distance from the origin."""
        if self._sleep_s:
            time.sleep(self._sleep_s * (time.perf_counter_ns() % 1000) / 1000.0)
        directions = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        force = np.asarray(action, dtype=np.float64) if self._continuous else directions[int(action)]
        self._position = self._position + 0.1 * force + self.np_random.normal(0.0, 0.01, size=2)
        self._steps += 1
        distance = float(np.sqrt((self._position**2).sum()))
        terminated, truncated = distance < 0.15, self._steps >= self._limit
        info = {"metrics": {"distance": distance}, "is_success": terminated} if terminated or truncated else {}
        return self._observation(), -distance, terminated, truncated and not terminated, info

    def set_progress(self, progress: dict[str, Any]) -> None:
        """Take over how far the run has come; it is shown as the third element of observations."""
        self._difficulty = float(progress["fraction"])

    def get_state(self) -> dict[str, Any]:
        """Return everything that the next steps depend on."""
        return {
            "position": self._position.copy(),
            "steps": self._steps,
            "limit": self._limit,
            "difficulty": self._difficulty,
            "rng": generator_state(self.np_random),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go where `get_state` was called."""
        self._position = np.array(state["position"])
        self._steps, self._limit, self._difficulty = state["steps"], state["limit"], state["difficulty"]
        set_generator_state(self.np_random, state["rng"])

    def _observation(self) -> Array:
        return np.array([*self._position, self._difficulty], dtype=np.float32)


Fault: TypeAlias = Literal[
    "none", "init", "reset", "step", "close", "nan", "inf", "reward_nan", "shape", "dtype", "type", "info", "hang",
    "exit", "urandom", "print",
]  # fmt: skip
"""What a FaultyEnv can do wrong."""


class FaultyEnv(ToyEnv):
    """A ToyEnv that fails in one way at one step.

    Args:
        fault: `init`, `reset`, `step`, `close` raise RuntimeError there; `nan`, `inf` stand in the observation,
            `reward_nan` in the reward; `shape`, `dtype`, `type` break the declared observation, `info` returns no dict;
            `hang` sleeps without end, `exit` ends the process; `urandom` shows noise that no seed repeats, at every
            step; `print` writes a line at every step.
        at: step of the episode (1 is the first) at which it happens.
        episode: of this environment at which it happens; None: in each. Not for `urandom` and `print`.
        once: path of a file that is made when it happens and that keeps it from happening again, in any process.
        hang_s: how long `hang` sleeps.
        continuous: as ToyEnv.
    """

    def __init__(
        self,
        fault: Fault = "none",
        *,
        at: int = 1,
        episode: int | None = None,
        once: str | None = None,
        hang_s: float = 3600.0,
        continuous: bool = False,
    ) -> None:
        super().__init__(continuous=continuous)
        self._fault, self._at, self._only_episode, self._once, self._hang_s = fault, at, episode, once, hang_s
        self._episode = -1
        if fault == "init" and self._claims():
            raise RuntimeError("this environment fails when it is made")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Reset as a ToyEnv, or fail."""
        self._episode += 1
        if self._fault == "reset" and self._now(self._at):
            raise RuntimeError("this environment fails when it is reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Step:
        """Step as a ToyEnv, or fail."""
        if self._fault == "urandom":
            return self._replaced(super().step(action), np.frombuffer(os.urandom(3), np.uint8).astype(np.float32))
        if self._fault == "print":
            print("a line of an environment that talks")  # noqa: T201
        result = super().step(action)
        if self._fault not in ("none", "init", "reset", "close", "print") and self._now(self._steps):
            return self._failed(result)
        return result

    def close(self) -> None:
        """Close, or fail."""
        if self._fault == "close" and self._claims():
            raise RuntimeError("this environment fails when it is closed")
        super().close()

    def get_state(self) -> dict[str, Any]:
        """Return the state of the ToyEnv and the number of the episode."""
        return {**super().get_state(), "episode": self._episode}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go where `get_state` was called."""
        super().set_state(state)
        self._episode = state["episode"]

    def _now(self, step: int) -> bool:
        in_episode = self._only_episode is None or self._only_episode == self._episode
        return step == self._at and in_episode and self._claims()

    def _claims(self) -> bool:
        if self._once is None:
            return True
        try:
            Path(self._once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _failed(self, result: Step) -> Step:
        observation, reward, terminated, truncated, info = result
        if self._fault == "step":
            raise RuntimeError("this environment fails when it is stepped")
        if self._fault == "hang":
            time.sleep(self._hang_s)
        if self._fault == "exit":
            os._exit(1)
        if self._fault == "reward_nan":
            return observation, float("nan"), terminated, truncated, info
        if self._fault == "info":
            return observation, reward, terminated, truncated, None  # type: ignore[return-value]
        broken: dict[str, Any] = {
            "nan": np.array([0.0, np.nan, 0.0], np.float32),
            "inf": np.array([0.0, 0.0, np.inf], np.float32),
            "shape": np.zeros(4, np.float32),
            "dtype": np.zeros(3, np.float64),
            "type": [0.0, 0.0, 0.0],
        }
        return self._replaced(result, broken.get(self._fault, observation))

    @staticmethod
    def _replaced(result: Step, observation: Any) -> Step:
        return observation, result[1], result[2], result[3], result[4]
