"""Explorer: an actor in several environments, giving chunks for training or episodes for an evaluation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.evaluation import Evaluation
from digideep.environment.finite import first_bad, not_finite
from digideep.environment.history import ActionHistory, tell_crash
from digideep.environment.monitor_files import MonitorFiles
from digideep.environment.playing import ActorSlab, only_actor
from digideep.environment.size import check_before, check_size
from digideep.environment.vec.base import VecEnv
from digideep.environment.vec.choose import make_vec_env, resolve_workers
from digideep.environment.vec.slab import RESET, RUN, Slab
from digideep.environment.wrappers.action import spec_for_agent
from digideep.errors import CheckpointError, ConfigError, EnvironmentFailure, UsageError
from digideep.spec import EnvSpec
from digideep.types import Actor, Chunk, ChunkMeta, Episode, Progress, StateDict
from digideep.utility.imports import BUILT_IN
from digideep.utility.node import configure
from digideep.utility.profiling import add_time
from digideep.utility.seeding import derive

if TYPE_CHECKING:
    from digideep.utility.profiling import TimerNode

__all__ = ["Explorer", "Mode", "check_available"]

logger = logging.getLogger(__name__)

Mode = Literal["train", "test", "eval"]
VERSION = 1


class _Rows(NamedTuple):
    """Views of one step, made once."""

    observations: Mapping[str, np.ndarray[Any, Any]]
    masks: np.ndarray[Any, Any]


class Explorer:
    """An actor in `num_envs` environments, in this process or in workers; which one changes no number.

    Attributes:
        spec: what one environment shows and takes, in its own units.
        num_envs, num_workers: environments, and processes that step them (0: this one).
        chosen: what was measured because the configuration said "auto", by field; empty without that.
        restarts, env_errors: workers and environments that failed and were replaced.
    """

    def __init__(
        self,
        config: ExplorerConfig,
        *,
        mode: Mode,
        seed: int,
        monitor_dir: Path | None = None,
        allowed: Sequence[str] = BUILT_IN,
        render_mode: str | None = None,
        seed_label: str | None = None,
    ) -> None:
        self.mode = mode
        self._config = config
        self._seed = seed
        self._label = seed_label or mode
        check_available(config)
        env = configure(config.env, where=f"explorer/{mode}/env", allowed=allowed, expected=EnvConfig)
        self.num_envs = config.num_envs
        # An evaluation lives from step to step; rows are kept only for training.
        n_steps = config.n_steps if mode == "train" else 1
        where = f"explorer/{mode}"
        check_before(env, num_envs=self.num_envs, n_steps=n_steps, allowed=allowed, where=where)
        is_measured = mode == "train" and render_mode is None
        self.num_workers, self.chosen = resolve_workers(config, env, allowed=allowed, is_measured=is_measured)
        if render_mode is not None:
            self.num_workers = 0  # a window and its pictures belong to this process
        self._vec: VecEnv = make_vec_env(
            env,
            num_envs=self.num_envs,
            num_workers=self.num_workers,
            allowed=allowed,
            render_mode=render_mode,
            step_timeout_s=config.step_timeout_s,
        )
        try:
            self.spec: EnvSpec = self._vec.spec
            spec_for_agent(self.spec.actions, env.action_transform)  # refuses early what cannot be rescaled
            check_size(self.spec, num_envs=self.num_envs, n_steps=n_steps, where=where)
            self._slab: Slab = self._vec.attach(n_steps)
        except BaseException:
            self._vec.close()
            raise
        self.restarts = 0
        self.env_errors = 0
        self._history = ActionHistory(self._slab)
        self._monitor = MonitorFiles(monitor_dir, mode=mode, env_id=env.model_name, keys=env.info_keys)
        self._rows = [
            _Rows({slot: array[t] for slot, array in self._slab.observations.items()}, self._slab.masks[t])
            for t in range(self._slab.n_steps + 1)
        ]
        self._actors: Mapping[str, Actor] = {}
        self._actor_slab: ActorSlab | None = None
        self._pending_hidden: Mapping[str, Any] | None = None
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._episodes: list[Episode] = []
        self._changed = ""  # why a state that was there could not be taken over
        self._is_started = False
        self._is_closed = False

    @property
    def exactness(self) -> str:
        """`exact`, or why a resume cannot give the same bits."""
        obstacle = self._vec.obstacle or self._changed
        return f"resume starts new episodes: {obstacle}" if obstacle else "exact"

    def set_actors(self, actors: Mapping[str, Actor]) -> None:
        """Take the policies of the next chunk; what they declare must stay what it was at the first call.

        Raises:
            UsageError: not exactly one acts, or it declares other artifacts than the first.
        """
        name, actor = only_actor(actors)
        self._actors = actors
        if self._actor_slab is None:
            self._actor_slab = ActorSlab(self._slab, name=name, actor=actor)
            self._load_hidden()
            named = {f"/observations/{slot}": array for slot, array in self._slab.observations.items()}
            named |= {f"/{key}": getattr(self._slab, key) for key in ("masks", "rewards", "terminations")}
            named |= self._actor_slab.keys(self._slab)
            self._arrays = {key: array.swapaxes(0, 1) for key, array in named.items()}
        elif self._actor_slab.name != name or self._actor_slab.artifacts != dict(actor.artifacts):
            raise UsageError(
                f"agent {name!r}: expected the artifacts of agent {self._actor_slab.name!r}, "
                f"{sorted(self._actor_slab.artifacts)}, found {sorted(actor.artifacts)}; make a new explorer"
            )

    def reset(self) -> None:
        """Begin an episode in every environment; the first time environment i is seeded with (seed, mode, i)."""
        if not self._is_started:
            self._slab.next_seeds[:] = [derive(self._seed, self._label, i) for i in range(self.num_envs)]
        self._reset_where(range(self.num_envs))
        self._is_started = True

    def _reset_where(self, envs: Sequence[int]) -> None:
        for env in envs:
            self._slab.modes[env] = RESET
        try:
            self._vec.reset(self._slab.n_steps)
        except EnvironmentFailure as error:
            self._tell(error, before=self._vec.tick)
            raise
        self._slab.modes.fill(RUN)

    def update(self) -> Chunk:
        """Make `n_steps` steps of every environment and return them; valid until the next call.

        Raises:
            EnvironmentFailure: an environment raised, died, hung, or broke what it declared.
            NonFiniteError: an environment or the policy gave NaN or infinity.
        """
        if self.mode != "train" or self._actor_slab is None:
            raise UsageError(
                f"explorer of mode {self.mode!r}: expected mode 'train' and actors, found mode or none of them"
            )
        if not self._is_started:
            self.reset()
        slab = self._slab
        last = slab.n_steps
        for array in slab.observations.values():
            array[0] = array[last]
        slab.masks[0] = slab.masks[last]
        self._actor_slab.carry()
        tick = self._vec.tick
        lengths = tick - slab.born  # of the running episodes, for messages
        actor = self._actors[self._actor_slab.name]
        try:
            self._sample(actor, self._actor_slab)
        except Exception as error:
            # A number that went bad before is the cause of whatever the policy or an environment made of it.
            self._check(self._vec.tick - tick, lengths)
            self._tell(error, before=tick)
            raise
        self._check(last, lengths)
        self._history.keep(tick)
        self._finish_episodes()
        frames = int(slab.masks[1:].sum())
        return Chunk(self._arrays, ChunkMeta(frames, frames, actor.policy_version, actor.statistics_version))

    def _sample(self, actor: Actor, actor_slab: ActorSlab) -> None:
        """Fill all rows. Adjacent phases share time stamps, which are added to the timers once."""
        act, step, store = actor.act, self._vec.step, actor_slab.store
        guard, deterministic = actor_slab.guard.check, self._config.deterministic
        act_ns = store_ns = step_ns = 0
        steps = 0
        now = perf_counter_ns()
        try:
            for t, (observations, masks) in enumerate(self._rows[:-1]):
                output = act(observations, actor_slab.hidden_row(t), masks, deterministic=deterministic)
                acted = perf_counter_ns()
                if t == 0:
                    actor_slab.check(output)
                store(output, t)
                guard(t)
                stored = perf_counter_ns()
                step(t)
                act_ns += acted - now
                store_ns += stored - acted
                now = perf_counter_ns()
                step_ns += now - stored
                steps += 1
        finally:
            add_time("act", act_ns, steps)
            add_time("store", store_ns, steps)
            add_time("envstep", step_ns, steps)

    def _tell(self, error: Exception, *, before: int) -> None:
        """Add to a failure in the chunk that began after `before` steps what is needed to walk to it again."""
        episode, tick = self._history.episode, self._vec.tick
        tell_crash(error, self._vec, lambda env: episode(env, before=before, tick=tick), mode=self.mode)

    def _check(self, rows: int, lengths: np.ndarray[Any, Any]) -> None:
        bad = first_bad(self._slab, rows=rows)
        if bad is not None:
            worker = self._vec.worker_of(bad.env)
            raise not_finite(bad, self._slab, rows=rows, worker=worker, length=int(lengths[bad.env]))

    def _finish_episodes(self) -> None:
        for done in self._vec.collect():
            episode = Episode(done.env, done.number, done.return_, done.length, done.seed, done.metrics)
            self._episodes.append(episode)
            self._monitor.write(episode, worker=self._vec.worker_of(done.env))
        self._monitor.flush()

    def evaluate(
        self,
        n_episodes: int | None = None,
        *,
        stochastic: bool | None = None,
        first_episode: int = 0,
        on_frame: Callable[[int, Any], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[Episode]:
        """Play episodes `first_episode` to `first_episode + n_episodes` and return them in order.

        Episode k is reset with a seed of its own, so that the result depends on neither environments nor workers; the
        first environment that is free takes the next one, so that no length of episode is favoured.

        Args:
            n_episodes: how many; None takes the configuration's.
            stochastic: sampled instead of most likely actions; None takes the configuration's `deterministic`.
            first_episode: number of the first one.
            on_frame: gets the number of the episode and what `render()` returned, after each reset and step.
            should_stop: asked after each step; where it says so, only the episodes that have ended are returned.
        """
        if not self._actors:
            raise UsageError(f"explorer of mode {self.mode!r}: expected actors before evaluate(), found none")
        name, actor = only_actor(self._actors)
        evaluation = Evaluation(
            self._vec,
            self._slab,
            actor=actor,
            name=name,
            mode=self.mode,
            seed=self._seed,
            label=self._label,
            deterministic=self._config.deterministic if stochastic is None else not stochastic,
            on_frame=on_frame,
            should_stop=should_stop,
        )
        count = self._config.n_episodes if n_episodes is None else n_episodes
        episodes, workers = evaluation.play(first_episode, count)
        if len(episodes) == count:  # the rows of half an evaluation would stand in the file and come again
            for episode, worker in zip(episodes, workers, strict=True):
                self._monitor.write(episode, worker=worker)
            self._monitor.flush()
        return episodes

    def episodes(self) -> list[Episode]:
        """Return the training episodes that ended since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def timings(self) -> Mapping[str, TimerNode]:
        """Return the timers of the workers since the last call, by name of the worker."""
        return self._vec.timings()

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every environment that has `set_progress`."""
        self._vec.set_progress(progress)

    def sync(self) -> dict[str, int]:
        """Make the monitor files durable and return the length of each."""
        return self._monitor.sync()

    def close(self) -> None:
        """Close environments, workers and files; harmless when repeated."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._vec.close()
            finally:
                self._monitor.close()

    def state_dict(self) -> StateDict:
        """Return the last row and every environment's state, as plain data."""
        if not self._is_started:
            return {"version": VERSION, "num_envs": self.num_envs, "is_started": False}
        last = self._slab.n_steps
        hidden = self._actor_slab.hidden if self._actor_slab is not None else None
        return {
            "version": VERSION,
            "num_envs": self.num_envs,
            "is_started": True,
            "observations": {slot: array[last].copy() for slot, array in self._slab.observations.items()},
            "masks": self._slab.masks[last].copy(),
            "hidden_state": None if hidden is None else {key: array[last].copy() for key, array in hidden.items()},
            "environments": self._vec.states(),
            "restarts": self.restarts,
            "env_errors": self.env_errors,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Go on where `state_dict` stood; environments without a saved state begin an episode with a seed of its own.

        Raises:
            CheckpointError: the state is that of another version.
            UsageError: it is that of another number of environments.
        """
        if state["version"] != VERSION:
            raise CheckpointError(
                f"explorer.{self.mode}: expected a state of version {VERSION}, found {state['version']}; "
                f"it needs another digideep"
            )
        if state["num_envs"] != self.num_envs:
            raise UsageError(
                f"/explorer/{self.mode}/num_envs: expected {state['num_envs']} as in the checkpoint, "
                f"found {self.num_envs}; start a new session with init_from for another number"
            )
        if not state["is_started"]:
            return
        last = self._slab.n_steps
        for slot, array in self._slab.observations.items():
            array[last] = self._saved(state["observations"], slot, array[last])
        self._slab.masks[last] = state["masks"]
        self._pending_hidden = state["hidden_state"]
        self._load_hidden()
        self.restarts, self.env_errors = state["restarts"], state["env_errors"]
        broken = self._vec.load_states(state["environments"])
        self._changed = next(iter(broken.values()), "")
        for env in broken:
            # The number of the next episode is part of the seed, so that two resumes do not play the same one.
            number = int(self._slab.numbers[env]) + 1
            self._slab.next_seeds[env] = derive(self._seed, self._label, env, "resume", number)
        if broken:
            logger.info(  # the warning is the session's, which asks for `exactness`
                "explorer/%s: %d of %d environments begin a new episode: %s",
                self.mode, len(broken), self.num_envs, self._changed,
            )  # fmt: skip
            self._reset_where(list(broken))
        self._is_started = True

    def _saved(self, saved: Mapping[str, Any], slot: str, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        array = saved.get(slot)
        if array is None or array.shape != row.shape or array.dtype != row.dtype:
            found = "nothing" if array is None else f"{array.shape} {array.dtype}"
            raise CheckpointError(
                f"explorer.{self.mode}: expected '/observations/{slot}' of {row.shape} {row.dtype}, found {found}; "
                f"is it the same environment?"
            )
        return np.asarray(array)

    def _load_hidden(self) -> None:
        """Take over a hidden state once both it and the first actor are there."""
        if self._actor_slab is None or self._actor_slab.hidden is None or self._pending_hidden is None:
            return
        for key, array in self._actor_slab.hidden.items():
            array[-1] = self._pending_hidden[key]
        self._pending_hidden = None


def check_available(config: ExplorerConfig) -> None:
    """Check that this version can do what a configuration asks for.

    Raises:
        ConfigError: it cannot.
    """
    for field in ("on_env_error", "on_nonfinite"):
        if getattr(config, field) != "stop":
            raise ConfigError(
                f"explorer/{field}: expected 'stop', found {getattr(config, field)!r}; this version has no other"
            )
