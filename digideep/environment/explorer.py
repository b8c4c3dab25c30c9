"""Explorer: an actor in several environments, giving chunks for training or episodes for an evaluation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.evaluation import Evaluation
from digideep.environment.finite import first_bad, not_finite
from digideep.environment.history import ActionHistory, add_crash
from digideep.environment.monitor_files import MonitorFiles
from digideep.environment.playing import ActorSlab, only_actor
from digideep.environment.recovery import Recovery, Supervision
from digideep.environment.rows import check_state, last_row, load_last_row
from digideep.environment.size import check_before, check_size
from digideep.environment.turns import sampler
from digideep.environment.vec.backend import open_environments
from digideep.environment.vec.base import VecEnv
from digideep.environment.vec.restart import RestartBudget
from digideep.environment.vec.slab import RESET, RUN, Slab
from digideep.environment.wrappers.action import spec_for_agent
from digideep.errors import DigideepError, EnvironmentFailure, NonFiniteError, UsageError
from digideep.spec import EnvSpec
from digideep.types import Actor, Chunk, ChunkMeta, Episode, Progress, StateDict
from digideep.utility.imports import BUILT_IN
from digideep.utility.node import configure
from digideep.utility.seeding import derive

if TYPE_CHECKING:
    from digideep.utility.profiling import TimerNode

__all__ = ["Explorer", "Mode"]

logger = logging.getLogger(__name__)

Mode = Literal["train", "test", "eval"]
VERSION = 1


class Explorer:
    """An actor in `num_envs` environments, in this process or in workers; which one changes no number.

    Attributes:
        spec: what one environment shows and takes, in its own units.
        num_envs, num_workers: environments, and processes that step them (0: this one).
        parent_steps: whether this process steps a share beside its workers.
        backend: "single" environments, or whose vector environment: "native" or "envpool".
        chosen: what was measured because the configuration said "auto", by field; empty without that.
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
        supervision: Supervision | None = None,
    ) -> None:
        supervision = supervision or Supervision(RestartBudget())
        self.mode = mode
        self._config = config
        self._seed = seed
        self._label = seed_label or mode
        env = configure(config.env, where=f"explorer/{mode}/env", allowed=allowed, expected=EnvConfig)
        self.num_envs = config.num_envs
        # An evaluation lives from step to step; rows are kept only for training.
        n_steps = config.n_steps if mode == "train" else 1
        where = f"explorer/{mode}"
        check_before(env, config, n_steps=n_steps, allowed=allowed, where=where)
        opened = open_environments(
            config, env, mode=mode, allowed=allowed, render_mode=render_mode, supervision=supervision
        )
        self._vec: VecEnv = opened.vec
        self.num_workers, self.parent_steps = opened.way
        self.backend, self.chosen = opened.backend, opened.chosen
        try:
            self.spec: EnvSpec = self._vec.spec
            spec_for_agent(self.spec.actions, env.action_transform)  # refuses early what cannot be rescaled
            check_size(self.spec, num_envs=self.num_envs, n_steps=n_steps, where=where)
            self._slab: Slab = self._vec.attach(n_steps)
        except BaseException:
            self._vec.close()
            raise
        self._restarts = 0  # in former processes
        self._recovery = Recovery.supervised(self._vec, supervision, budget=config.env_error_budget, mode=mode)
        self._history = ActionHistory(self._slab)
        self._monitor = MonitorFiles(monitor_dir, mode=mode, env_id=env.model_name, keys=env.info_keys)
        self._actors: Mapping[str, Actor] = {}
        self._actor_slab: ActorSlab | None = None
        self._pending_hidden: Mapping[str, Any] | None = None
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._episodes: list[Episode] = []
        self._changed = ""  # why a state that was there could not be taken over
        self._is_started = False
        self._is_closed = False
        self._chunk_tick = 0  # steps made before the chunk that is being sampled

    @property
    def frames_underway(self) -> int:
        """Real transitions of the newest chunk so far, the step under way included; for a thread that looks on."""
        return int(self._slab.masks[1 : 1 + self._vec.tick - self._chunk_tick].sum())

    @property
    def arrays(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Arrays of a chunk by key, once there are actors; what they hold has a meaning in chunks only."""
        return self._arrays

    @property
    def restarts(self) -> int:
        """Workers that died or hung and were replaced."""
        return self._restarts + self._vec.restarts

    @property
    def env_errors(self) -> int:
        """Errors of environments that were forgiven."""
        return self._recovery.env_errors

    @property
    def exactness(self) -> str:
        """`exact`, or why a resume cannot give the same bits."""
        obstacle = self._vec.obstacle or self._changed
        return f"resume starts new episodes: {obstacle}" if obstacle else "exact"

    def set_actors(self, actors: Mapping[str, Actor]) -> None:
        """Take the policies of the next chunk; what they declare must stay what it was at the first call.

        Raises:
            UsageError: not exactly one acts, it cannot act in groups, or it declares other artifacts than the first.
        """
        name, actor = only_actor(actors)
        self._actors = actors
        if self._config.act_groups == 2 and getattr(actor, "needs_all_rows", False):
            raise UsageError(
                f"/explorer/{self.mode}/act_groups: expected 1, since the noise of agent {name!r} goes on from what it "
                f"was, found 2; set it to 1, or noise to normal"
            )
        if self._actor_slab is None:
            self._actor_slab = ActorSlab(self._slab, name=name, actor=actor)
            self._sample = sampler(self._vec, self._slab, self._actor_slab, act_groups=self._config.act_groups)
            self._load_hidden()
            self._arrays = self._actor_slab.chunk(self._slab)
        elif self._actor_slab.name != name or self._actor_slab.artifacts != dict(actor.artifacts):
            raise UsageError(
                f"agent {name!r}: expected the artifacts of agent {self._actor_slab.name!r}, "
                f"{sorted(self._actor_slab.artifacts)}, found {sorted(actor.artifacts)}; make a new explorer"
            )

    def reset(self) -> None:
        """Begin an episode in every environment; the first time environment i is seeded with (seed, mode, i).

        Environments that have one generator are seeded with (seed, mode).
        """
        if not self._is_started:
            places = [() if self._vec.has_one_generator else (i,) for i in range(self.num_envs)]
            self._slab.next_seeds[:] = [derive(self._seed, self._label, *place) for place in places]
        self._reset_where(range(self.num_envs))
        self._settle()
        self._is_started = True

    def _reset_where(self, envs: Sequence[int], *, row: int | None = None) -> None:
        """Begin episodes in a row of the chunk, by default in the last one, which is outside of every chunk."""
        row = self._slab.n_steps if row is None else row
        self._slab.modes[list(envs)] = RESET
        try:
            self._vec.reset(row)
        except (EnvironmentFailure, NonFiniteError) as error:
            self._recovery.final(error, lambda error: self._add_crash(error, row=row))
            raise
        self._slab.modes.fill(RUN)
        if row == self._slab.n_steps:
            self._history.opened(envs)

    def _settle(self, row: int | None = None) -> None:
        """Begin new episodes where environments have failed and were forgiven, or their worker was replaced."""
        at = self._slab.n_steps if row is None else row
        while self._vec.has_faults:
            faults = self._recovery.take(lambda error: self._add_crash(error, row=at))
            envs = sorted({fault.env for fault in faults})
            if row is not None:  # a worker lost after the step takes along what its environments did in it
                self._slab.rewards[row - 1, envs] = self._slab.terminations[row - 1, envs] = 0.0
            self._seed_anew(envs, why="failed")
            self._reset_where(envs, row=at)

    def _seed_anew(self, envs: Iterable[int], *, why: str) -> None:
        for env in envs:
            # The number of the next episode is part of the seed, so that no two begin alike.
            number = int(self._slab.numbers[env]) + 1
            self._slab.next_seeds[env] = derive(self._seed, self._label, env, why, number)

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
        self._settle()
        slab = self._slab
        last = slab.n_steps
        for array in slab.observations.values():
            array[0] = array[last]
        slab.masks[0] = slab.masks[last]
        self._actor_slab.carry()
        self._chunk_tick = tick = self._vec.tick
        lengths = tick - slab.born  # of the running episodes, for messages
        actor = self._actors[self._actor_slab.name]
        failure: Exception | None = None
        try:
            self._sample(actor=actor, deterministic=self._config.deterministic, settle=self._settle)
        except Exception as error:
            failure = error
        rows = self._vec.tick - tick
        # A number that went bad before is the cause of whatever the policy or an environment made of it.
        failure = self._bad_number(rows, lengths) or failure
        if failure is not None:
            self.abandon()
            self._recovery.final(failure, lambda error: self._add_crash(error, row=rows))
            raise failure
        self._history.keep(tick)
        self._finish_episodes()
        frames = int(slab.masks[1:].sum())
        return Chunk(self._arrays, ChunkMeta(frames, frames, actor.policy_version, actor.statistics_version))

    def _add_crash(self, error: DigideepError, *, row: int) -> None:
        """Add to a failure in the call that wrote `row`, or the row it names, what is needed to walk to it again."""
        place, row = getattr(error, "place", None), getattr(error, "row", row)
        if place is not None:
            walk = self._history.walk(place.env, phase=place.phase, before=self._chunk_tick, rows=row)
            add_crash(error, walk, self._vec, mode=self.mode, timeout_s=self._config.step_timeout_s)

    def _bad_number(self, rows: int, lengths: np.ndarray[Any, Any]) -> NonFiniteError | None:
        bad = first_bad(self._slab, rows=rows)
        if bad is None:
            return None
        worker = self._vec.worker_of(bad.env)
        return not_finite(bad, self._slab, rows=rows, worker=worker, length=int(lengths[bad.env]))

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
            self._vec, self._slab,
            actor=actor, name=name, mode=self.mode, seed=self._seed, label=self._label,
            deterministic=self._config.deterministic if stochastic is None else not stochastic,
            on_frame=on_frame, should_stop=should_stop,
            recovery=self._recovery, timeout_s=self._config.step_timeout_s,
        )  # fmt: skip
        count = self._config.n_episodes if n_episodes is None else n_episodes
        errors = self._recovery.errors.total
        episodes, workers = evaluation.play(first_episode, count)
        if len(episodes) < count:
            self._recovery.errors.total = errors  # it will be played again from its beginning
        else:  # the rows of half an evaluation would stand in the file and come again
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

    def abandon(self, why: str = "the chunk in which an environment failed was dropped") -> None:
        """Give up the episodes that are running: what is saved from now on says that none has begun, and `why`."""
        self._is_started = False
        self._changed = why

    def state_dict(self) -> StateDict:
        """Return the last row and every environment's state, as plain data."""
        common = {"version": VERSION, "num_envs": self.num_envs, "is_started": self._is_started}
        common["restarts"] = self.restarts
        if not self._is_started:
            numbers = self._slab.numbers.copy()  # so that no later episode gets the seed of an earlier one
            return {**common, **self._recovery.counts(), "numbers": numbers}
        try:
            environments = self._environments()
        except EnvironmentFailure:
            self.abandon("an environment could not give its state")
            raise
        hidden = self._actor_slab.hidden if self._actor_slab is not None else None
        return {
            **common,
            **last_row(self._slab, hidden),
            "environments": environments,
            **self._recovery.counts(),
        }

    def _environments(self) -> list[dict[str, Any]]:
        """Return the states of all environments, none of which was lost while it was asked."""
        while True:
            self._settle()
            states = self._vec.states()
            if not self._vec.has_faults:
                return states

    def load_state_dict(self, state: StateDict) -> None:
        """Go on where `state_dict` stood; environments without a saved state begin an episode with a seed of its own.

        Raises:
            CheckpointError: the state is that of another version.
            UsageError: it is that of another number of environments.
        """
        check_state(state, version=VERSION, mode=self.mode, num_envs=self.num_envs)
        self._restarts = int(state.get("restarts", 0))
        self._recovery.load_counts(state)
        if state["is_started"]:
            load_last_row(self._slab, state, where=f"explorer.{self.mode}")
            self._pending_hidden = state["hidden_state"]
            self._load_hidden()
            broken = self._vec.load_states(state["environments"])
            self._history.continued()
        elif "numbers" in state and (state["numbers"] >= 0).any():
            self._slab.numbers[:] = state["numbers"]
            broken = dict.fromkeys(range(self.num_envs), "the episodes that were running were given up")
        else:
            return
        self._changed = next(iter(broken.values()), "")
        if broken:
            logger.info(  # the warning is the session's, which asks for `exactness`
                "explorer/%s: %d of %d environments begin a new episode: %s",
                self.mode, len(broken), self.num_envs, self._changed,
            )  # fmt: skip
            self._seed_anew(broken, why="resume")
            self._reset_where(list(broken))
        self._settle()
        self._is_started = True

    def _load_hidden(self) -> None:
        """Take over a hidden state once both it and the first actor are there."""
        if self._actor_slab is None or self._actor_slab.hidden is None or self._pending_hidden is None:
            return
        for key, array in self._actor_slab.hidden.items():
            array[-1] = self._pending_hidden[key]
        self._pending_hidden = None
