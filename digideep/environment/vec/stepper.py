"""Environments of one process, stepped one after the other into their columns of a slab.

Both back ends are made of this class, so that where environments live cannot change a bit of what they give.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NoReturn

import numpy as np

from digideep.environment import state as environment_state
from digideep.environment.config import EnvConfig
from digideep.environment.make import make_env
from digideep.environment.spaces import (
    SINGLE_ACTION,
    SINGLE_OBSERVATION,
    ActionReader,
    ObservationWriter,
    env_spec,
)
from digideep.environment.vec.base import FinishedEpisode, Place, traced
from digideep.environment.vec.outcome import check_info, describe, episode_metrics, flag, number
from digideep.environment.vec.slab import RESET, SKIP, Slab
from digideep.errors import CheckpointError, DigideepError, EnvironmentFailure, NotReproducibleError, one_line
from digideep.types import Progress
from digideep.utility.imports import BUILT_IN

__all__ = ["Stepper"]

logger = logging.getLogger(__name__)


class Stepper:
    """Environments `first` to `first + count` of a vector environment.

    Attributes:
        spec: of one environment.
        obstacle: why a state cannot be saved, or "": of this kind of environment, or as it was at the last save.
        tick: steps made.
        reset_ns, resets: time and number of the resets inside steps.
        position: its only item is the environment that is being stepped, counted from `first`: what a death is told by.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        envs: range,
        worker: int = 0,
        allowed: Sequence[str] = BUILT_IN,
        render_mode: str | None = None,
    ) -> None:
        self._config = config
        self._range = envs
        self._worker = worker
        self._envs: list[Any] = []
        try:
            for _ in envs:
                self._envs.append(make_env(config, allowed=allowed, render_mode=render_mode))
            self.spec = env_spec(self._envs[0], id=config.model_name)
        except BaseException:
            self.close()
            raise
        self._lasting = self.obstacle = environment_state.obstacle(self._envs[0])
        self.position: list[int] | memoryview = [0]
        self.tick = 0
        self.reset_ns = 0
        self.resets = 0
        count = len(envs)
        self._steps: list[Callable[[Any], Any]] = [env.step for env in self._envs]
        self._bare = [env.unwrapped for env in self._envs]
        self._listeners = [_listener(env) for env in self._envs]
        self._returns = [0.0] * count
        self._born = [0] * count
        self._over = [False] * count
        self._was_seeded = [False] * count
        self._origins: list[dict[str, Any] | None] = [None] * count
        self._phase = "step"
        self._finished: list[FinishedEpisode] = []
        self._writers = [ObservationWriter(env.observation_space, self.spec) for env in self._envs]
        self._reader = ActionReader(self._envs[0].action_space, self.spec, config.action_transform)

    def attach(self, slab: Slab) -> None:
        """Prebuild the views of this share's rows."""
        first, stop = self._range.start, self._range.stop
        rows = range(slab.n_steps + 1)
        self._rows = slab.rows(first, stop)
        self._masks = [slab.masks[t, first:stop] for t in rows]
        self._rewards = [slab.rewards[t, first:stop] for t in rows]
        self._terminations = [slab.terminations[t, first:stop] for t in rows]
        self._actions = [{slot: array[t, first:stop] for slot, array in slab.actions.items()} for t in rows]
        self._modes = slab.modes[first:stop]
        self._next_seeds = slab.next_seeds[first:stop]
        self._seeds = slab.seeds[first:stop]
        self._numbers = slab.numbers[first:stop]
        self._shared_over = slab.over[first:stop]
        self._shared_born = slab.born[first:stop]
        self._fast_box = _fast_box(self._envs[0].observation_space)
        self._discrete = _discrete_start(self.spec)

    def reset(self, row: int) -> None:
        """Begin an episode where the mode is RESET."""
        i = 0
        try:
            for i, mode in enumerate(self._modes.tolist()):
                if mode == RESET:
                    self._reset(i, row)
        except (Exception, SystemExit) as error:
            self._fail(i, error)

    def step(self, t: int) -> None:
        """Make one step of every environment, or the reset that is due instead."""
        self.tick += 1
        modes, over, position = self._modes.tolist(), self._over, self.position
        actions = self._batch(t)
        row = self._rows[t + 1]
        box = self._fast_box
        single = row[SINGLE_OBSERVATION] if box is not None else None
        shape, dtype = box if box is not None else ((), None)
        rewards, returns = self._rewards[t], self._returns
        self._masks[t + 1].fill(1.0)
        self._terminations[t].fill(0.0)
        self._shared_over.fill(0)
        i = 0
        try:
            for i, step in enumerate(self._steps):
                position[0] = i
                if over[i] or modes[i]:
                    rewards[i] = 0.0
                    if modes[i] != SKIP:
                        self._reset(i, t + 1)
                    continue
                observation, reward, terminated, truncated, info = step(actions[i])
                # The common case first, and the checks by name only where it is another.
                if (
                    single is not None
                    and type(observation) is np.ndarray
                    and observation.dtype == dtype
                    and observation.shape == shape
                ):
                    single[i] = observation
                else:
                    self._writers[i].write(observation, row, i)
                if type(reward) is not float:
                    reward = number(reward, "reward")
                rewards[i] = reward
                returns[i] += reward
                if terminated is not False or truncated is not False or type(info) is not dict:
                    self._end(i, t, terminated=terminated, truncated=truncated, info=info)
        except (Exception, SystemExit) as error:
            self._fail(i, error)

    def _batch(self, t: int) -> list[Any]:
        if self._discrete is None:
            return self._reader.batch(self._actions[t])
        actions: list[Any] = self._actions[t][SINGLE_ACTION].tolist()
        return [action + self._discrete for action in actions] if self._discrete else actions

    def _end(self, i: int, t: int, *, terminated: Any, truncated: Any, info: Any) -> None:
        """Check flags and info; note the end of an episode if this is one."""
        is_terminated, is_truncated = flag(terminated, "terminated"), flag(truncated, "truncated")
        check_info(info)
        if not (is_terminated or is_truncated):
            return
        if is_terminated:
            self._terminations[t][i] = 1.0
        self._over[i] = True
        self._shared_over[i] = 1
        self._finished.append(
            FinishedEpisode(
                tick=self.tick,
                env=self._range.start + i,
                number=int(self._numbers[i]),
                return_=self._returns[i],
                length=self.tick - self._born[i],
                seed=self._episode_seed(i),
                metrics=episode_metrics(info, self._config.info_keys),
            )
        )

    def _reset(self, i: int, row: int) -> None:
        start = perf_counter_ns()
        next_seed = int(self._next_seeds[i])
        self._next_seeds[i] = -1
        if next_seed >= 0:
            self._seeds[i] = next_seed
        self._numbers[i] += 1
        self._begin(i, returned=0.0, length=0, over=False, was_seeded=next_seed >= 0)
        self._origins[i] = _origin(self._bare[i], next_seed)
        self._phase = "reset"
        answer = self._envs[i].reset(seed=next_seed if next_seed >= 0 else None)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise EnvironmentFailure(f"reset: expected (observation, info), found {one_line(answer, limit=80)}")
        observation, info = answer
        if type(info) is not dict:
            check_info(info)
        self._writers[i].write(observation, self._rows[row], i)
        self._masks[row][i] = 0.0
        self._phase = "step"
        self.reset_ns += perf_counter_ns() - start
        self.resets += 1

    def _begin(self, i: int, *, returned: float, length: int, over: bool, was_seeded: bool) -> None:
        self._returns[i] = returned
        self._born[i] = self._shared_born[i] = self.tick - length
        self._over[i] = over
        self._shared_over[i] = over
        self._origins[i] = None
        self._was_seeded[i] = was_seeded

    def _episode_seed(self, i: int) -> int | None:
        return int(self._seeds[i]) if self._was_seeded[i] else None

    @property
    def unread(self) -> int:
        """Number of episodes that ended since the last `collect`."""
        return len(self._finished)

    def collect(self) -> list[FinishedEpisode]:
        """Return the episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each environment and of its running episode."""
        captured = [None if self._lasting else environment_state.capture(env) for env in self._envs]
        # What an environment holds changes: one that has no state now may have had one before, and in its next episode.
        changed = [env for env, state in zip(self._envs, captured, strict=True) if state is None]
        self.obstacle = self._lasting or (environment_state.obstacle(changed[0]) if changed else "")
        return [
            {
                "environment": captured[i],
                "return": self._returns[i],
                "length": self.tick - self._born[i],
                "number": int(self._numbers[i]),
                "over": self._over[i],
                "seed": int(self._seeds[i]),
                "was_seeded": self._was_seeded[i],
            }
            for i in range(len(self._envs))
        ]

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Take over the states of this share; return why not, by environment, counted from 0 for all."""
        without: dict[int, str] = {}
        for i, (env, saved) in enumerate(zip(self._envs, states, strict=True)):
            self._numbers[i] = saved["number"]
            self._seeds[i] = saved["seed"]
            reason = self._restore(i, env, saved["environment"])
            if reason:
                without[self._range.start + i] = reason
                continue
            self._begin(
                i,
                returned=saved["return"],
                length=saved["length"],
                over=saved["over"],
                was_seeded=saved["was_seeded"],
            )
        return without

    def _restore(self, i: int, env: Any, state: Mapping[str, Any] | None) -> str:
        """Put an environment where its state was saved; return why that is not possible, or an empty text."""
        if self._lasting:
            return self._lasting
        if state is None:
            return f"{self._config.model_name} had no state when the checkpoint was saved"
        reason = environment_state.mismatch(env, state)
        if reason:
            return reason
        try:
            environment_state.restore(env, state)
        except (CheckpointError, NotReproducibleError) as error:
            return one_line(error, limit=500)
        except (Exception, SystemExit) as error:
            self._fail(i, error)
        return ""

    def origin(self, env: int) -> dict[str, Any] | None:
        """Return what the running episode of an environment began with; None where nobody knows any more."""
        return self._origins[env - self._range.start]

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every environment that asks for it."""
        for i, listener in enumerate(self._listeners):
            if listener is not None:
                try:
                    listener(progress._asdict())
                except (Exception, SystemExit) as error:
                    self._fail(i, error)

    def render(self, env: int) -> Any:
        """Return what `render()` of an environment gives."""
        try:
            return self._envs[env - self._range.start].render()
        except Exception as error:
            self._fail(env - self._range.start, error)

    def close(self) -> None:
        """Close every environment; what one of them raises is logged, since the others have to be closed too."""
        envs, self._envs, self._steps = self._envs, [], []
        for env in envs:
            try:
                env.close()
            except (Exception, SystemExit) as error:
                logger.warning(
                    "%s: close() raised %s: %s", self._config.model_name, type(error).__name__, one_line(error)
                )

    def _fail(self, i: int, error: BaseException) -> NoReturn:
        if isinstance(error, DigideepError) and not isinstance(error, EnvironmentFailure):
            raise error  # not the environment's doing
        where = describe(
            self._config.model_name,
            env=self._range.start + i,
            worker=self._worker,
            seed=int(self._seeds[i]),
            number=int(self._numbers[i]),
            step=self.tick - self._born[i],
        )
        ours = isinstance(error, DigideepError)
        text = one_line(error, limit=500)
        what = text if ours else f"{type(error).__name__}: {text}" if text else type(error).__name__
        place = Place(self._range.start + i, self._phase)
        raise traced(EnvironmentFailure(f"{where}: {what}"), traceback.format_exc(), place) from error


def _origin(bare: Any, seed: int) -> dict[str, Any]:
    """Return what an episode is about to begin with: a seed, or the generator as it is."""
    if seed >= 0:
        return {"seed": seed, "rng": None}
    rng = getattr(bare, "_np_random", None)
    return {"seed": None, "rng": rng.bit_generator.state if type(rng) is np.random.Generator else None}


def _listener(env: Any) -> Callable[[dict[str, Any]], Any] | None:
    """Return the environment's `set_progress`, looked for in every wrapper; None without one."""
    return env.get_wrapper_attr("set_progress") if env.has_wrapper_attr("set_progress") else None


def _fast_box(space: Any) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Return shape and dtype of an observation space that is one box; None for all others."""
    from gymnasium import spaces

    return (space.shape, space.dtype) if isinstance(space, spaces.Box) and space.shape else None


def _discrete_start(spec: Any) -> int | None:
    """Return what is added to an action that is one integer; None for all other actions."""
    only = spec.actions.get(SINGLE_ACTION)
    return only.start if only is not None and only.kind == "discrete" else None
