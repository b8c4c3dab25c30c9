"""Environments of one process, stepped one after the other into their columns of a slab.

Both back ends are made of this class, so that where environments live cannot change a bit of what they give.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NoReturn

import numpy as np

from digideep.environment import state as environment_state
from digideep.environment.config import EnvConfig
from digideep.environment.spaces import (
    SINGLE_ACTION,
    SINGLE_OBSERVATION,
    ActionReader,
    ObservationWriter,
    discrete_start,
    env_spec,
    plain_box,
)
from digideep.environment.vec.base import NOTHING, Fault, FinishedEpisode, Forgiven, Place, traced
from digideep.environment.vec.finite_rows import check_finite
from digideep.environment.vec.hang import RAISED, Hang, let_ctrl_c_out
from digideep.environment.vec.held import Held
from digideep.environment.vec.origin import write_origin
from digideep.environment.vec.outcome import NotFinite, check_info, describe, episode_metrics, flag, number, told
from digideep.environment.vec.signals import IN_RESET, IN_STEP
from digideep.environment.vec.slab import RESET, SKIP, Slab
from digideep.errors import (
    CheckpointError,
    DigideepError,
    EnvironmentFailure,
    NonFiniteError,
    NotReproducibleError,
    one_line,
)
from digideep.types import Progress
from digideep.utility.imports import BUILT_IN

__all__ = ["Stepper"]

_LARGEST = float(np.finfo(np.float32).max)  # beyond it a reward is infinite in the slab


class Stepper:
    """Environments `first` to `first + count` of a vector environment.

    Attributes:
        spec: of one environment.
        obstacle: why a state cannot be saved, or "": of this kind of environment, or as it was at the last save.
        tick: steps made.
        reset_ns, resets: time and number of the resets inside steps.
        position: the environment being called, counted from `first`, and IN_STEP or IN_RESET: to tell of a death.
        faults: failures that were forgiven and are not taken yet.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        envs: range,
        worker: int = 0,
        allowed: Sequence[str] = BUILT_IN,
        render_mode: str | None = None,
        forgiven: Forgiven = NOTHING,
        tick: int = 0,
    ) -> None:
        self._config = config
        self._range = envs
        self._worker = worker
        self._forgiven = forgiven
        self._held = Held(config, count=len(envs), allowed=allowed, render_mode=render_mode)
        self._envs = self._held.envs
        try:
            self.spec = env_spec(self._envs[0], id=config.model_name)
        except BaseException:
            self.close()
            raise
        self._lasting = self.obstacle = environment_state.obstacle(self._envs[0])
        self.position: list[int] | memoryview = [0, IN_STEP]
        self.tick = tick
        self.reset_ns = 0
        self.resets = 0
        self.faults: list[Fault] = []
        count = len(envs)
        self._steps = self._held.steps
        self._returns = [0.0] * count
        self._born = [tick] * count
        self._over = [False] * count
        self._was_seeded = [False] * count
        self._finished: list[FinishedEpisode] = []
        self._writers = [ObservationWriter(env.observation_space, self.spec) for env in self._envs]
        self._reader = ActionReader(self._envs[0].action_space, self.spec, config.action_transform)

    def attach(self, slab: Slab) -> None:
        """Prebuild the views of this share's rows."""
        first, stop, rows = self._range.start, self._range.stop, range(slab.n_steps + 1)
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
        self._origins = [slab.origins[t, first:stop] for t in rows]
        self._float_slots = [slot for slot, array in slab.observations.items() if array.dtype.kind == "f"]
        self._fast_box = plain_box(self._envs[0].observation_space)
        self._discrete = discrete_start(self.spec)

    def reset(self, row: int) -> None:
        """Begin an episode where the mode is RESET."""
        pairs = enumerate(self._modes.tolist())
        i = 0
        while True:
            try:
                for i, mode in pairs:
                    if mode == RESET and i not in self._held.missing:
                        self._reset(i, row)
                return
            except RAISED as error:
                self._forgive(i, error, row=row)

    def step(self, t: int) -> None:
        """Make one step of every environment, or the reset that is due instead."""
        self.tick += 1
        modes, over, position = self._modes.tolist(), self._over, self.position
        actions = self._batch(t)
        row, box = self._rows[t + 1], self._fast_box
        single = row[SINGLE_OBSERVATION] if box is not None else None
        shape, dtype = box if box is not None else ((), None)
        rewards, returns = self._rewards[t], self._returns
        self._masks[t + 1].fill(1.0)
        self._terminations[t].fill(0.0)
        self._shared_over.fill(0)
        checks_finite = self._forgiven.nonfinite
        pairs = enumerate(self._steps)
        i = 0
        while True:
            try:
                for i, step in pairs:
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
                    if checks_finite:
                        check_finite(row, i, slots=self._float_slots)
                    if type(reward) is not float:
                        reward = float(reward) if type(reward) is np.float64 else number(reward, "reward")
                    if not -_LARGEST <= reward <= _LARGEST:
                        raise NotFinite("/rewards", float(np.sign(reward) * np.inf), 0)
                    rewards[i] = reward
                    returns[i] += reward
                    if terminated is not False or truncated is not False or type(info) is not dict:
                        self._end(i, t, terminated=terminated, truncated=truncated, info=info)
                return
            except RAISED as error:
                # The iterator stands behind the environment that failed: where it is forgiven the others go on.
                self._forgive(i, error, row=t + 1)
                rewards[i] = self._terminations[t][i] = 0.0

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
        self.position[0], self.position[1] = i, IN_RESET
        write_origin(self._origins[row][i], self._envs[i].unwrapped, seed=next_seed)
        answer = self._envs[i].reset(seed=next_seed if next_seed >= 0 else None)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise EnvironmentFailure(f"reset: expected (observation, info), found {one_line(answer, limit=80)}")
        observation, info = answer
        if type(info) is not dict:
            check_info(info)
        self._writers[i].write(observation, self._rows[row], i)
        if self._forgiven.nonfinite:
            check_finite(self._rows[row], i, slots=self._float_slots)
        self._masks[row][i] = 0.0
        self.position[1] = IN_STEP
        self.reset_ns += perf_counter_ns() - start
        self.resets += 1

    def _begin(self, i: int, *, returned: float, length: int, over: bool, was_seeded: bool) -> None:
        self._returns[i] = returned
        self._born[i] = self._shared_born[i] = self.tick - length
        self._over[i] = over
        self._shared_over[i] = over
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
        captured = [None if self._lasting else self._capture(i) for i in range(len(self._envs))]
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

    def _capture(self, i: int) -> environment_state.StateTree | None:
        self.position[0] = i
        try:
            return environment_state.capture(self._envs[i])
        except (EnvironmentFailure, Hang) as error:
            self._fail(i, error)

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
        except RAISED as error:
            self._fail(i, error)
        return ""

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every environment that asks for it."""
        self._held.set_progress(progress)
        for i in range(len(self._envs)):
            try:
                self._held.tell(i)
            except RAISED as error:
                self._fail(i, error)

    def rebuild(self, envs: Sequence[int]) -> None:
        """Close environments, counted from 0 for all, and make them anew."""
        for env in envs:
            i = env - self._range.start
            try:
                made = self._held.remake(i)
                self._writers[i] = ObservationWriter(made.observation_space, self.spec)
            except RAISED as error:
                self._forgive(i, error, row=None)

    def render(self, env: int) -> Any:
        """Return what `render()` of an environment gives."""
        try:
            return self._envs[env - self._range.start].render()
        except RAISED as error:
            self._fail(env - self._range.start, error)

    def close(self) -> None:
        """Close every environment."""
        self._held.close()

    def take_faults(self) -> list[Fault]:
        """Return what was forgiven since the last call."""
        faults, self.faults = self.faults, []
        return faults

    def where(self) -> str:
        """Return which environment is being called, or was last, in the words of every message."""
        return self._where(int(self.position[0]))

    def _where(self, i: int) -> str:
        return describe(
            self._config.model_name,
            env=self._range.start + i,
            worker=self._worker,
            seed=int(self._seeds[i]),
            number=int(self._numbers[i]),
            step=self.tick - self._born[i],
        )

    def _forgive(self, i: int, error: BaseException, *, row: int | None) -> None:
        """Note what an environment did wrong, or raise it where that is not forgiven."""
        failure = self._failure(i, error)
        self.position[1] = IN_STEP
        is_forgiven = self._forgiven.nonfinite if isinstance(error, NotFinite) else self._forgiven.errors
        is_its_doing = isinstance(failure, EnvironmentFailure | NonFiniteError)
        if failure is error:
            raise error
        if not is_forgiven or not is_its_doing or isinstance(error, Hang):
            raise failure from error
        self.faults.append(Fault(self._range.start + i, failure))
        self._over[i] = False
        self._shared_over[i] = 0
        if row is not None:
            self._masks[row][i] = 0.0
            for array in self._rows[row].values():
                array[i] = 0  # a number that is none must be nowhere

    def _fail(self, i: int, error: BaseException) -> NoReturn:
        failure = self._failure(i, error)
        failure.place = None  # type: ignore[attr-defined]  # no step of an episode, which could be dropped
        if failure is error:
            raise error
        raise failure from error

    def _failure(self, i: int, error: BaseException) -> DigideepError:
        """Return the error that says where and when this happened."""
        let_ctrl_c_out(error)
        if isinstance(error, DigideepError) and not isinstance(error, EnvironmentFailure):
            return error  # not the environment's doing
        place = Place(self._range.start + i, "reset" if self.position[1] == IN_RESET else "step")
        kind = NonFiniteError if isinstance(error, NotFinite) else EnvironmentFailure
        failure = traced(kind(f"{self._where(i)}: {told(error)}"), traceback.format_exc(), place)
        failure.ending = "hang" if isinstance(error, Hang) else "error"  # type: ignore[attr-defined]
        return failure
