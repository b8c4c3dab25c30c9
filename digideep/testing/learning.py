"""Environments whose best return is known and found in seconds."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["BanditEnv", "ChainEnv", "IdentityEnv", "OneStateEnv", "RecallEnv"]

Array: TypeAlias = np.ndarray[Any, Any]
Step: TypeAlias = tuple[Any, Any, bool, bool, dict[str, Any]]


class IdentityEnv(gymnasium.Env[Any, Any]):
    """Rewards the action that repeats the observation: `n_steps` is the best return, whatever the kind of action.

    Args:
        kind: of the action. `discrete`: one of 4, reward 1 if it is the one shown. `multi_discrete`: two of 3, and
            `multi_binary`: three bits, the share of equal elements. `box`: a number in [-1, 1], 1 minus the distance.
        n_steps: length of an episode.
    """

    def __init__(
        self, kind: Literal["discrete", "multi_discrete", "multi_binary", "box"] = "discrete", *, n_steps: int = 10
    ) -> None:
        choices: dict[str, spaces.Space[Any]] = {
            "discrete": spaces.Discrete(4),
            "multi_discrete": spaces.MultiDiscrete([3, 3]),
            "multi_binary": spaces.MultiBinary(3),
            "box": spaces.Box(-1.0, 1.0, (1,), np.float32),
        }
        self.action_space = self.observation_space = choices[kind]
        self._kind, self._n_steps = kind, n_steps
        self._shown: Any = None
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Show something to repeat."""
        super().reset(seed=seed)
        self._steps = 0
        self._shown = self._draw()
        return self._shown, {}

    def step(self, action: Any) -> Step:
        """Reward the repetition of what was shown."""
        wanted, given = np.asarray(self._shown), np.asarray(action)
        reward = 1.0 - float(np.abs(wanted - given).mean()) if self._kind == "box" else float((wanted == given).mean())
        self._steps += 1
        self._shown = self._draw()
        return self._shown, reward, False, self._steps >= self._n_steps, {}

    def get_state(self) -> dict[str, Any]:
        """Return what is shown and the length so far; the generator is saved with it."""
        return {"shown": self._shown, "steps": self._steps}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go where `get_state` was called."""
        self._shown, self._steps = state["shown"], state["steps"]

    def _draw(self) -> Any:
        rng = self.np_random
        if self._kind == "discrete":
            return int(rng.integers(4))
        if self._kind == "multi_discrete":
            return rng.integers(3, size=2)
        if self._kind == "multi_binary":
            return rng.integers(2, size=3, dtype=np.int8)
        return rng.uniform(-1.0, 1.0, size=1).astype(np.float32)


class BanditEnv(gymnasium.Env[Array, Any]):
    """Two arms, episodes of one step: arm 0 pays 1 with chance 0.2, arm 1 with chance 0.8, the best mean return."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Show the same as always."""
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: int) -> Step:
        """Pull an arm."""
        chance = (0.2, 0.8)[int(action)]
        return np.ones(1, np.float32), float(self.np_random.random() < chance), True, False, {}

    def get_state(self) -> dict[str, Any]:
        """Return nothing: the generator, saved with it, is all there is."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over nothing."""


class ChainEnv(gymnasium.Env[Array, Any]):
    """Five states in a row: 10 at the far end, 0.1 for each step back to the first; the best return is 10 in 4 steps.

    Action 1 goes on, action 0 goes back to the first state. Episodes end at the far end, or are cut after 20 steps.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (5,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._state, self._steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin at the first state."""
        super().reset(seed=seed)
        self._state, self._steps = 0, 0
        return self._observation(), {}

    def step(self, action: int) -> Step:
        """Go on or back."""
        self._steps += 1
        self._state = self._state + 1 if int(action) == 1 else 0
        arrived = self._state == 4
        reward = 10.0 if arrived else 0.1 if int(action) == 0 else 0.0
        return self._observation(), reward, arrived, self._steps >= 20 and not arrived, {}

    def get_state(self) -> dict[str, int]:
        """Return the state and the length so far."""
        return {"state": self._state, "steps": self._steps}

    def set_state(self, state: dict[str, int]) -> None:
        """Go where `get_state` was called."""
        self._state, self._steps = state["state"], state["steps"]

    def _observation(self) -> Array:
        shown = np.zeros(5, np.float32)
        shown[self._state] = 1.0
        return shown


class OneStateEnv(gymnasium.Env[Array, Any]):
    """One state that pays 1 at each step and never ends by itself; registered with a limit of 5 steps.

    With discount 0.9 its value is 10, since the limit is no end of the task.

    Args:
        continuous: whether the action is a box of one number instead of one of two.
    """

    def __init__(self, *, continuous: bool = False) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Show the same as always."""
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Step:
        """Pay 1."""
        return np.ones(1, np.float32), 1.0, False, False, {}

    def get_state(self) -> dict[str, Any]:
        """Return nothing: there is nothing to save."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over nothing."""


class RecallEnv(gymnasium.Env[Array, Any]):
    """Shows a bit once and asks for it later: 1 for the right answer, 0 otherwise; 1 with memory, 0.5 without.

    An observation is the bit as -1 or 1, at the first step only, and whether this step asks. Only the action of the
    step that asks, the last one of the episode, means anything.

    Args:
        n_steps: length of an episode.
    """

    def __init__(self, *, n_steps: int = 3) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._n_steps = n_steps
        self._bit, self._steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Show a bit."""
        super().reset(seed=seed)
        self._bit, self._steps = int(self.np_random.integers(2)), 0
        return self._observation(), {}

    def step(self, action: int) -> Step:
        """Reward the right answer to the question."""
        self._steps += 1
        is_over = self._steps == self._n_steps
        return self._observation(), float(is_over and int(action) == self._bit), is_over, False, {}

    def get_state(self) -> dict[str, int]:
        """Return the bit and the length so far; the generator is saved with it."""
        return {"bit": self._bit, "steps": self._steps}

    def set_state(self, state: dict[str, int]) -> None:
        """Go where `get_state` was called."""
        self._bit, self._steps = state["bit"], state["steps"]

    def _observation(self) -> Array:
        shown = 2.0 * self._bit - 1.0 if self._steps == 0 else 0.0
        return np.array([shown, self._steps == self._n_steps - 1], np.float32)
