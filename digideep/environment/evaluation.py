"""Evaluation: exactly n episodes, each with its own seed, the same whatever environments and workers play them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from digideep.environment.finite import first_bad, not_finite
from digideep.environment.history import EpisodeActions, Walk, add_crash
from digideep.environment.playing import ActionGuard
from digideep.environment.recovery import Recovery
from digideep.environment.vec.base import FinishedEpisode, VecEnv, told_in
from digideep.environment.vec.slab import RESET, RUN, SKIP, Slab
from digideep.errors import DigideepError, EnvironmentFailure, NonFiniteError, UsageError
from digideep.types import Actor, Episode
from digideep.utility.seeding import derive, generator

__all__ = ["Evaluation", "Played"]


class Played(NamedTuple):
    """Episodes in order, and the worker that played each."""

    episodes: list[Episode]
    workers: list[int]


class _Seat:
    """What one environment is playing: the episode, its generator, the policy's hidden state, the actions so far."""

    def __init__(
        self,
        episode: int,
        rng: np.random.Generator,
        *,
        seed: int,
        hidden: Mapping[str, Any] | None,
        actions: EpisodeActions,
    ) -> None:
        self.episode = episode
        self.seed = seed
        self.rng = rng
        self.hidden = hidden
        self.actions = actions


class Evaluation:
    """One evaluation in environments whose slab has a single step.

    The policy decides for one environment at a time: a row of a batch has other last bits than the row alone, and the
    result must not depend on how many environments there are.
    """

    def __init__(
        self,
        vec: VecEnv,
        slab: Slab,
        *,
        actor: Actor,
        name: str,
        mode: str,
        seed: int,
        label: str,
        deterministic: bool,
        on_frame: Callable[[int, Any], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        recovery: Recovery,
        timeout_s: float,
    ) -> None:
        self._vec = vec
        self._slab = slab
        self._actor = actor
        self._guard = ActionGuard(slab, name=name)
        self._mode = mode
        self._seed = seed
        self._label = label
        self._deterministic = deterministic
        self._on_frame = on_frame
        self._should_stop = should_stop
        self._recovery = recovery
        self._timeout_s = timeout_s
        self._attempts: Counter[int] = Counter()  # by episode: those that an error of the environment ended
        self._seats: dict[int, _Seat] = {}
        self._taken: dict[int, list[int]] = {env: [] for env in range(vec.num_envs)}

    def play(self, first: int, count: int) -> Played:
        """Play episodes `first` to `first + count`.

        Raises:
            EnvironmentFailure, NonFiniteError: as in training.
        """
        if count < 1:
            raise UsageError(f"evaluation: expected at least 1 episode, found {count}")
        try:
            return self._play(first, count)
        except (EnvironmentFailure, NonFiniteError) as error:
            told_in(self._mode, error)
            raise

    def _play(self, first: int, count: int) -> Played:
        waiting = iter(range(first, first + count))
        self._vec.collect()  # what an evaluation that failed has left behind
        self._slab.modes.fill(SKIP)
        for env in range(self._vec.num_envs):
            self._take(env, next(waiting, None))
        fresh = set(self._seats)
        finished: list[FinishedEpisode] = []
        while self._seats and not (self._should_stop is not None and self._should_stop()):
            self._act(fresh)
            self._step()
            for env in fresh:
                self._slab.modes[env] = RUN
            again = self._settle()
            self._check()
            self._show(without=again)
            for array in self._slab.observations.values():
                array[0] = array[1]
            self._slab.masks[0] = self._slab.masks[1]
            # What a worker tells later may be lost with it.
            finished += self._vec.collect()
            again |= self._settle()
            fresh = {env for env in self._seats if self._slab.over[env]}
            for env in sorted(fresh):
                self._take(env, next(waiting, None))
            fresh = (fresh | again) & set(self._seats)
        return self._result(finished)

    def _take(self, env: int, episode: int | None) -> None:
        """Give an environment its next episode, or leave it alone from now on."""
        if episode is None:
            self._seats.pop(env, None)
            self._slab.modes[env] = SKIP
            return
        self._taken[env].append(episode)
        self._seat(env, episode)

    def _seat(self, env: int, episode: int) -> None:
        """Have an environment begin an episode in the next step."""
        again: list[str | int] = ["again", self._attempts[episode]] if self._attempts[episode] else []
        rng = generator(self._seed, f"{self._label}-actions", episode, *again)
        seed = derive(self._seed, self._label, episode, *again)
        actions, hidden = EpisodeActions(self._slab), self._actor.initial_state(1)
        self._seats[env] = _Seat(episode, rng, seed=seed, hidden=hidden, actions=actions)
        self._slab.next_seeds[env] = seed
        self._slab.modes[env] = RESET

    def _settle(self) -> set[int]:
        """Have episodes begin again where environments failed and were forgiven, or their worker was replaced.

        An episode whose worker was lost begins with its own seed; one that an error ended is another one, since it
        would end so again.
        """
        again: set[int] = set()
        while self._vec.has_faults:
            for fault in self._recovery.take(self._add_crash):
                seat = self._seats.get(fault.env)
                if seat is not None:
                    self._attempts[seat.episode] += not fault.is_lost
                    self._seat(fault.env, seat.episode)
                    again.add(fault.env)
        return again

    def _act(self, fresh: set[int]) -> None:
        """Decide for every environment that is inside an episode; `fresh` ones reset and need no action."""
        for env, seat in self._seats.items():
            if env in fresh:
                continue
            output = self._actor.act(
                {slot: array[0, env : env + 1] for slot, array in self._slab.observations.items()},
                seat.hidden,
                self._slab.masks[0, env : env + 1],
                deterministic=self._deterministic,
                generators=[seat.rng],
            )
            for slot, array in self._slab.actions.items():
                array[0, env] = output.actions[slot][0]
            seat.actions.keep(env)
            seat.hidden = output.hidden_state
        self._guard.check(0)

    def _step(self) -> None:
        try:
            self._vec.step(0)
        except (EnvironmentFailure, NonFiniteError) as error:
            self._recovery.final(error, self._add_crash)
            raise

    def _add_crash(self, error: DigideepError) -> None:
        place = getattr(error, "place", None)
        seat = None if place is None else self._seats.get(place.env)
        actions = None if seat is None else seat.actions.arrays()
        if seat is not None and actions is not None:
            walk = Walk(seat.seed, None, actions)
            add_crash(error, walk, self._vec, mode=self._mode, timeout_s=self._timeout_s)

    def _check(self) -> None:
        bad = first_bad(self._slab, rows=1)
        if bad is not None:
            length = int(self._vec.tick - self._slab.born[bad.env]) - 1
            error = not_finite(bad, self._slab, rows=1, worker=self._vec.worker_of(bad.env), length=length)
            self._recovery.final(error, self._add_crash)
            raise error

    def _show(self, *, without: set[int]) -> None:
        if self._on_frame is not None:
            for env, seat in self._seats.items():
                if env not in without:
                    self._on_frame(seat.episode, self._vec.render(env))

    def _result(self, finished: list[FinishedEpisode]) -> Played:
        """Return the episodes in order; the n-th one that an environment ended is the n-th that it took."""
        played: dict[int, tuple[Episode, int]] = {}
        taken = {env: iter(numbers) for env, numbers in self._taken.items()}
        for done in finished:
            k = next(taken[done.env])
            # Which environment played it is chance, so it is not told: all evaluations with one seed are equal.
            episode = Episode(0, k, done.return_, done.length, done.seed, done.metrics)
            played[k] = (episode, self._vec.worker_of(done.env))
        ordered = [played[k] for k in sorted(played)]
        return Played([episode for episode, _ in ordered], [worker for _, worker in ordered])
