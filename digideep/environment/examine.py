"""Examinations: is what an environment gives what it declares, does one seed give one episode, is a state a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np

from digideep.environment.config import EnvConfig
from digideep.environment.make import make_env
from digideep.environment.spaces import ActionReader, ObservationWriter, env_spec, sample_action
from digideep.environment.state import capture, obstacle, restore
from digideep.environment.vec.outcome import check_info, flag, number
from digideep.environment.wrappers.action import Transform
from digideep.errors import NonFiniteError
from digideep.spec import EnvSpec
from digideep.utility.differences import first_difference
from digideep.utility.imports import BUILT_IN
from digideep.utility.seeding import generator

__all__ = ["Probe", "seed_difference", "state_difference", "state_obstacle"]

Make: TypeAlias = Callable[[], gymnasium.Env[Any, Any]]


class Probe:
    """Drives one environment with raw actions and checks every result as training does.

    Attributes:
        steps, step_ns: calls of `env.step`, and the time spent in them.
        resets, reset_ns: the same of `env.reset`.
        outside: the first number of an observation beyond the bounds that its Box declares, in words; empty if none.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], spec: EnvSpec, transform: Transform = "clip") -> None:
        self.steps = self.step_ns = self.resets = self.reset_ns = 0
        self.outside = ""
        self._boxes = {slot: one for slot, one in spec.observations.items() if one.kind == "box" and one.low}
        self._env, self._id = env, spec.id
        self._writer = ObservationWriter(env.observation_space, spec)
        self._reader = ActionReader(env.action_space, spec, transform)
        self._rows = {slot: np.zeros((1, *one.shape), one.dtype) for slot, one in spec.observations.items()}

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode.

        Raises:
            EnvironmentFailure: the observation or the info is not what was declared.
            NonFiniteError: NaN or infinity.
        """
        start = perf_counter_ns()
        observation, info = self._env.reset(seed=seed)
        self.reset_ns += perf_counter_ns() - start
        self.resets += 1
        check_info(info)
        self._check(observation, 0.0)

    def step(self, actions: Mapping[str, np.ndarray[Any, Any]]) -> bool:
        """Make one step with raw actions `[1, ...]` by slot and return whether it ended the episode.

        Raises:
            EnvironmentFailure, NonFiniteError: as `reset`.
        """
        action = self._reader.read(actions, 0)
        start = perf_counter_ns()
        observation, reward, terminated, truncated, info = self._env.step(action)
        self.step_ns += perf_counter_ns() - start
        self.steps += 1
        check_info(info)
        self._check(observation, number(reward, "reward"))
        is_terminated, is_truncated = flag(terminated, "terminated"), flag(truncated, "truncated")
        return is_terminated or is_truncated

    def _look_at_bounds(self) -> None:
        for slot, one in self._boxes.items():
            values, low, high = (np.ravel(array).astype(np.float64) for array in (self._rows[slot], one.low, one.high))
            bad = np.flatnonzero((values < low) | (values > high))
            if bad.size:
                i = int(bad[0])
                least, most = (float(bound[i if len(bound) > 1 else 0]) for bound in (low, high))
                self.outside = (
                    f"/observations/{slot} is {values[i]:g} at step {self.steps} (first bad index {i}), declared from "
                    f"{least:g} to {most:g}"
                )
                return

    def _check(self, observation: Any, reward: float) -> None:
        self._writer.write(observation, self._rows, 0)
        if not self.outside:
            self._look_at_bounds()
        shown = {f"/observations/{slot}": row for slot, row in self._rows.items()}
        with np.errstate(over="ignore"):
            rewards = np.array([reward], np.float32)  # as training keeps it
        for key, array in {**shown, "/rewards": rewards}.items():
            bad = np.flatnonzero(~np.isfinite(array))
            if bad.size:
                value = np.ravel(array)[bad[0]]
                raise NonFiniteError(
                    f"environment {self._id}: {key!r} is {value} at step {self.steps} (first bad index {bad[0]})"
                )


def seed_difference(make: Make, *, steps: int = 200, seed: int = 1) -> str:
    """Return where two environments with one seed and the same actions differ first; empty if they do not.

    The second one is made in the same process and reset twice before, so that a difference of that kind shows too.
    """
    traces = []
    for resets in (0, 2):
        env = make()
        try:
            for _ in range(resets):
                env.reset(seed=seed + 1)
            traces.append(_begin(env, steps, seed=seed).trace)
        finally:
            env.close()
    return first_difference(*traces)


def state_difference(make: Make, *, steps: int = 60, seed: int = 1) -> str:
    """Return where an environment with a saved state goes on differently; empty if it does not, or why it has no state.

    The state is saved after a reset, between steps, after the last step of an episode and in the next episode, put into
    a fresh environment, and the next steps of both are compared to the bit.
    """
    for walked in _moments(make, seed=seed):
        env, fresh = make(), make()
        try:
            walk = _begin(env, walked, seed=seed)
            state = capture(env)
            if state is None:
                return obstacle(env)
            actions = _actions(env, walked + steps, seed=seed)[walked:]
            expected = _go_on(env, actions, ended=walk.ended)
            restore(fresh, state)
            found = _go_on(fresh, actions, ended=walk.ended)
        finally:
            env.close()
            fresh.close()
        difference = first_difference(expected.trace, found.trace)
        if difference:
            return f"saved after {walked} steps, then {difference}"
    return ""


def state_obstacle(config: EnvConfig, *, allowed: Iterable[str] = BUILT_IN) -> str:
    """Return why the environment of `config` has no state that could be saved; empty if it has one.

    Raises:
        DigideepError: it cannot be made, see `make_env`.
    """
    env = make_env(config, allowed=allowed)
    try:
        return obstacle(env)
    finally:
        env.close()


class _Walk(NamedTuple):
    trace: list[tuple[Any, ...]]  # (observation, reward, terminated, truncated) a step; (observation,) a reset
    ended: bool


def _begin(env: gymnasium.Env[Any, Any], steps: int, *, seed: int) -> _Walk:
    first = (env.reset(seed=seed)[0],)
    walk = _go_on(env, _actions(env, steps, seed=seed), ended=False)
    return _Walk([first, *walk.trace], walk.ended)


def _go_on(env: gymnasium.Env[Any, Any], actions: Sequence[Any], *, ended: bool) -> _Walk:
    """Step as a vector environment does: what follows the last step of an episode is a reset."""
    trace: list[tuple[Any, ...]] = []
    for action in actions:
        if ended:
            trace.append((_copied(env.reset()[0]),))
            ended = False
            continue
        observation, reward, terminated, truncated, _ = env.step(action)
        trace.append((_copied(observation), float(reward), bool(terminated), bool(truncated)))
        ended = bool(terminated or truncated)
    return _Walk(trace, ended)


def _actions(env: gymnasium.Env[Any, Any], steps: int, *, seed: int) -> list[Any]:
    spec = env_spec(env, id="environment")
    reader, rng = ActionReader(env.action_space, spec), generator(seed, "actions")
    return [reader.read(sample_action(spec.actions, rng), 0) for _ in range(steps)]


def _moments(make: Make, *, seed: int, limit: int = 500) -> list[int]:
    env = make()
    try:
        trace = _begin(env, limit, seed=seed).trace
    finally:
        env.close()
    end = next((i for i, entry in enumerate(trace) if len(entry) == 4 and (entry[2] or entry[3])), None)
    return sorted({0, 1, 7} if end is None else {0, 1, max(end - 1, 0), end, end + 1, end + 4})


def _copied(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: _copied(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_copied(part) for part in observation)
    return observation.copy() if isinstance(observation, np.ndarray) else observation
