"""Environments that one vector environment holds: its arrays go straight into rows of the slab."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from digideep.environment.config import EnvConfig
from digideep.environment.make import preload
from digideep.environment.spaces import SINGLE_ACTION, discrete_start
from digideep.environment.vec.base import NOTHING, Fault, FinishedEpisode, Forgiven, VecEnv, traced
from digideep.environment.vec.finite_rows import check_finite
from digideep.environment.vec.hang import RAISED, Hang, HangWatch, hung, let_ctrl_c_out
from digideep.environment.vec.native_arrays import ActionBatch, ObservationBatch, check_flags, write_rewards
from digideep.environment.vec.native_episodes import NativeEpisodes
from digideep.environment.vec.native_forms import Backend, NativeForm, make_form
from digideep.environment.vec.outcome import NotFinite, check_info, told
from digideep.environment.vec.serial import IMPORT_S
from digideep.environment.vec.slab import RESET, Slab
from digideep.errors import (
    CheckpointError,
    DigideepError,
    EnvironmentFailure,
    NonFiniteError,
    NotReproducibleError,
    UsageError,
    one_line,
)
from digideep.types import Progress
from digideep.utility.imports import BUILT_IN

__all__ = ["NativeVecEnv"]

logger = logging.getLogger(__name__)

Array: TypeAlias = np.ndarray[Any, Any]
T = TypeVar("T")

_CLOSE_S = 10.0
_NOTE = "a step of a vector environment cannot be walked to again in a single one; train with backend=single to find it"
_BOOL, _FLOAT32 = np.dtype(bool), np.dtype(np.float32)


class NativeVecEnv(VecEnv):
    """All environments in one vector environment of this process, which resets each in the step after its last one.

    They share what is theirs: their state is one record, which stands in the state of environment 0, and what one of
    them does wrong ends the episodes of all.

    Args:
        config: which environment.
        num_envs: how many.
        backend: whose vector environment.
        allowed: packages that may be imported for it.
        step_timeout_s: longest time of a call.
        forgiven: failures that end episodes only.
        on_stuck: see `HangWatch`.

    Attributes:
        backend: as above.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        num_envs: int,
        backend: Backend = "native",
        allowed: Sequence[str] = BUILT_IN,
        step_timeout_s: float = 300.0,
        forgiven: Forgiven = NOTHING,
        on_stuck: Callable[[str], None] | None = None,
    ) -> None:
        name = config.model_name
        self.backend = backend
        self._config, self._allowed, self._forgiven = config, allowed, forgiven
        self.num_envs, self.num_workers, self.restarts = num_envs, 0, 0
        self.slab = None
        self._form: NativeForm | None = None
        self._progress: Progress | None = None
        self._faults: list[Fault] = []
        self._watch = HangWatch(step_timeout_s, on_stuck=on_stuck)
        try:
            with self._watch.guard(lambda: f"environment {name}: importing it", limit_s=max(IMPORT_S, step_timeout_s)):
                preload(config, allowed=allowed)
            with self._watch.guard(lambda: f"environment {name}: making it"):
                self._form = self._make()
        except BaseException:
            self._watch.close()
            raise
        self._watch.where = self._where
        self.spec = self._form.spec
        self.has_one_generator = self._form.has_one_generator

    def _make(self) -> NativeForm:
        form = make_form(self._config, num_envs=self.num_envs, backend=self.backend, allowed=self._allowed)
        self._step = form.env.step
        self._observed = ObservationBatch(form.observation_space, form.spec, num_envs=self.num_envs)
        self._acted = ActionBatch(form.action_space, form.spec, self._config.action_transform)
        self._obstacle = form.obstacle
        return form

    @property
    def has_faults(self) -> bool:
        """Whether `take_faults` has something to return."""
        return bool(self._faults)

    @property
    def tick(self) -> int:
        """Number of steps made."""
        return self._episodes.tick

    @property
    def obstacle(self) -> str:
        """Why a state cannot be saved, or an empty text."""
        return self._obstacle

    def attach(self, n_steps: int) -> Slab:
        """Make the slab in this process's own memory."""
        slab = self._slab = self.slab = Slab(self.spec, num_envs=self.num_envs, n_steps=n_steps)
        slab.initialise()
        self._episodes = NativeEpisodes(slab, info_keys=self._config.info_keys)
        self._rows = slab.rows(0, self.num_envs)
        self._single = self._observed.single(slab)
        self._masks, self._rewards, self._terminations = list(slab.masks), list(slab.rewards), list(slab.terminations)
        self._raw = [{slot: array[t] for slot, array in slab.actions.items()} for t in range(n_steps + 1)]
        is_direct = self._form is not None and not self._form.keeps_actions and discrete_start(self.spec) == 0
        self._direct = list(slab.actions[SINGLE_ACTION]) if is_direct else None
        self._float_slots = [slot for slot, array in slab.observations.items() if array.dtype.kind == "f"]
        return slab

    def reset(self, row: int) -> None:
        """Begin an episode in every environment; a vector environment begins them together."""
        slab, form = self._slab, self._form
        if not (slab.modes == RESET).all():
            raise UsageError("native environments: expected a reset of all, found one of some; there is no such reset")
        if form is None:
            return  # it could not be made anew: a fault, which is waiting
        seeds = slab.next_seeds.tolist() if slab.next_seeds[0] >= 0 else None
        if seeds is not None:
            slab.seeds[:] = slab.next_seeds[0] if self.has_one_generator else slab.next_seeds
        slab.next_seeds.fill(-1)
        self._episodes.begin(was_seeded=seeds is not None)
        self._masks[row].fill(0.0)
        try:
            with self._watch.guard(self._where):
                observations, infos = _pair(form.reset(seeds))
                check_info(infos)
                self._observed.write(observations, self._rows[row])
            if self._forgiven.nonfinite:
                self._check_finite(row)
        except RAISED as error:
            self._forgive(error, row=row)

    def step(self, t: int) -> None:
        """Make one step of all environments; it is the reset of those that were over."""
        watch = self._watch
        watch.begin()
        try:
            self._advance(t)
        except Hang as hang:  # it came while another error was looked at
            raise hung(self._where(), hang) from None
        finally:
            watch.end()

    def _advance(self, t: int) -> None:
        episodes = self._episodes
        episodes.tick += 1
        self._masks[t + 1].fill(1.0)
        try:
            actions = self._acted.read(self._raw[t]) if self._direct is None else self._direct[t]
            observations, rewards, terminated, truncated, infos = self._step(actions)
            single, returns = None if self._single is None else self._single[t + 1], episodes.returns
            # The common case first, and the checks by name only where it is another.
            if (
                single is not None
                and type(observations) is np.ndarray
                and observations.dtype == single.dtype
                and observations.shape == single.shape
            ):
                single[...] = observations
            else:
                self._observed.write(observations, self._rows[t + 1])
            if type(rewards) is np.ndarray and rewards.dtype == _FLOAT32 and rewards.shape == returns.shape:
                self._rewards[t][...] = rewards
            else:
                write_rewards(rewards, self._rewards[t])
            for flags in (terminated, truncated):
                if type(flags) is not np.ndarray or flags.dtype != _BOOL or flags.shape != returns.shape:
                    check_flags(terminated, truncated, num_envs=self.num_envs)
            if type(infos) is not dict:
                check_info(infos)
            if self._forgiven.nonfinite:
                self._check_finite(t + 1, rewards=self._rewards[t])
            returns += rewards
            self._terminations[t][...] = terminated
            if episodes.are_over:
                episodes.reopen(t, terminated | truncated)
            # Looking for a byte costs a tenth of `any`.
            if 1 in terminated.tobytes() or 1 in truncated.tobytes():
                episodes.end(terminated | truncated, infos)
        except RAISED as error:
            self._forgive(error, row=t + 1)
            self._rewards[t].fill(0.0)
            self._terminations[t].fill(0.0)

    def _check_finite(self, row: int, *, rewards: Array | None = None) -> None:
        for env in range(self.num_envs):
            check_finite(self._rows[row], env, slots=self._float_slots)
            if rewards is not None and not np.isfinite(rewards[env]):
                raise NotFinite("/rewards", float(rewards[env]), 0)

    def collect(self) -> list[FinishedEpisode]:
        """Return the episodes that ended since the last call."""
        return self._episodes.collect()

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each environment's episode; that of environment 0 holds what all of them share."""
        form, record = self._form, None
        if form is not None and not form.obstacle:
            record = self._guarded(form.capture)
            # What an environment holds changes: one that has no state now may have had one before.
            self._obstacle = "" if record is not None else f"{self.spec.id} has no state to save just now"
        return self._episodes.states(record)

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Take over what `states` returned: all of it, or none."""
        self._slab.numbers[:] = [saved["number"] for saved in states]
        self._slab.seeds[:] = [saved["seed"] for saved in states]
        reason = self._restore(states[0]["environment"])
        if reason:
            return dict.fromkeys(range(self.num_envs), reason)
        self._episodes.load(states)
        return {}

    def _restore(self, record: Mapping[str, Any] | None) -> str:
        """Put the environments where their state was saved; return why that is not possible, or an empty text."""
        form = self._form
        if form is None or form.obstacle:
            return self._obstacle
        if record is None:
            return f"{self.spec.id} had no state when the checkpoint was saved"
        reason = form.mismatch(record)
        if reason:
            return reason
        try:
            self._guarded(lambda: form.restore(record))
        except (CheckpointError, NotReproducibleError) as error:
            return one_line(error, limit=500)
        return ""

    def _guarded(self, call: Callable[[], T]) -> T:
        """Return what a call outside of a chunk returns; what it raises is told as that of a step."""
        try:
            with self._watch.guard(self._where):
                return call()
        except RAISED as error:
            failure = self._failure(error)
            if failure is error:
                raise
            raise failure from error

    def take_faults(self) -> list[Fault]:
        """Return what was forgiven since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def rebuild(self, envs: Sequence[int]) -> None:
        """Close the vector environment and make it anew, whichever of its environments failed."""
        try:
            with self._watch.guard(self._where):
                self._close()
                form = self._make()
                if self._progress is not None:
                    form.set_progress(self._progress)
                self._form = form
        except RAISED as error:
            self._forgive(error, row=None)

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to a vector environment that asks for it."""
        self._progress = progress
        form = self._form
        if form is not None:
            self._guarded(lambda: form.set_progress(progress))

    def worker_of(self, env: int) -> int:
        """Return 0: there is only this process."""
        return 0

    def close(self) -> None:
        """Close the vector environment; one that does not come back is left alone after a while."""
        try:
            with self._watch.guard(lambda: "environment: closing it", limit_s=min(_CLOSE_S, self._watch.limit_s)):
                self._close()
        finally:
            self._watch.close()

    def _close(self) -> None:
        form, self._form = self._form, None
        if form is None:
            return
        try:
            form.close()
        except BaseException as error:
            let_ctrl_c_out(error)
            logger.warning("%s: close() raised %s", self._config.model_name, told(error))

    def _where(self) -> str:
        """Return what is being called, or was last, in the words of every message."""
        which = "environment 0" if self.num_envs == 1 else f"environments 0 to {self.num_envs - 1}"
        seed, step = (int(self._slab.seeds[0]), self.tick) if self.slab is not None else (-1, 0)
        told_seed = seed if seed >= 0 else "none"
        return f"{which} ({self._config.model_name}, {self.backend}, seed {told_seed}, step {step} of all)"

    def _forgive(self, error: BaseException, *, row: int | None) -> None:
        """Note what the environments did wrong, or raise it where that is not forgiven; all episodes end with it."""
        failure = self._failure(error)
        is_forgiven = self._forgiven.nonfinite if isinstance(error, NotFinite) else self._forgiven.errors
        if failure is error:
            raise error
        if not is_forgiven or isinstance(error, Hang):
            raise failure from error
        # One error, told for environment 0: those beside it lose their episodes and have done nothing.
        self._faults += [Fault(env, failure, is_lost=env > 0) for env in range(self.num_envs)]
        self._episodes.drop()
        if row is not None:
            self._masks[row].fill(0.0)
            for array in self._rows[row].values():
                array.fill(0)  # a number that is none must be nowhere

    def _failure(self, error: BaseException) -> DigideepError:
        """Return the error that says where and when this happened."""
        let_ctrl_c_out(error)
        is_its_doing = not isinstance(error, DigideepError) or isinstance(error, EnvironmentFailure)
        if isinstance(error, DigideepError) and (not is_its_doing or hasattr(error, "ending")):
            return error
        kind = NonFiniteError if isinstance(error, NotFinite) else EnvironmentFailure
        failure = traced(kind(f"{self._where()}: {told(error)}"), traceback.format_exc())
        failure.ending = "hang" if isinstance(error, Hang) else "error"  # type: ignore[attr-defined]
        failure.crash_note = _NOTE  # type: ignore[attr-defined]
        return failure


def _pair(answer: Any) -> tuple[Any, Any]:
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise EnvironmentFailure(f"reset: expected (observations, infos), found {one_line(answer, limit=80)}")
    return answer
