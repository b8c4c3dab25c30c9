"""The actor's side of a chunk: what it decides, written beside what the environments gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

import numpy as np

from digideep.environment.vec.base import VecEnv
from digideep.environment.vec.slab import Slab
from digideep.errors import NonFiniteError, ShapeError, UsageError
from digideep.spec import ArraySpec
from digideep.types import Actor, ActorOutput, LateActor
from digideep.utility.profiling import add_time

__all__ = ["ActionGuard", "ActorSlab", "StepRow", "late_actor", "only_actor", "sample", "step_rows"]

Array: TypeAlias = np.ndarray[Any, Any]

_NONE: Mapping[str, Array] = {}


class StepRow(NamedTuple):
    """Views of what is seen before one step, made once."""

    observations: Mapping[str, Array]
    masks: Array


def step_rows(slab: Slab) -> list[StepRow]:
    """Return the rows that an actor sees in a chunk, one a step."""
    return [
        StepRow({slot: array[t] for slot, array in slab.observations.items()}, slab.masks[t])
        for t in range(slab.n_steps)
    ]


def sample(
    vec: VecEnv,
    rows: Sequence[StepRow],
    *,
    actor: Actor,
    slab: ActorSlab,
    deterministic: bool,
    settle: Callable[[int], None],
) -> None:
    """Act and step until all rows are filled. Adjacent phases share time stamps, which are added to the timers once.

    Args:
        vec: the environments.
        rows: as `step_rows` gives them.
        actor: decides.
        slab: where its decisions go.
        deterministic: whether it takes the most likely action.
        settle: called with the row after a step in which environments failed and were forgiven, or a worker was lost.
    """
    late = None if deterministic else late_actor(actor)
    act, store, guard = actor.act, slab.store, slab.guard.check
    act_ns = store_ns = step_ns = 0
    steps = 0
    now = perf_counter_ns()
    try:
        for t, (observations, masks) in enumerate(rows):
            if late is None:
                output = act(observations, slab.hidden_row(t), masks, deterministic=deterministic)
            else:
                output = ActorOutput(late.choose(observations), _NONE)
            acted = perf_counter_ns()
            if t == 0:
                slab.check(output, has_artifacts=late is None)
            store(output, t)
            guard(t)
            stored = perf_counter_ns()
            vec.step(t)
            if vec.has_faults:
                settle(t + 1)
            act_ns += acted - now
            store_ns += stored - acted
            now = perf_counter_ns()
            step_ns += now - stored
            steps += 1
        if late is not None:
            slab.complete(late)
            act_ns += perf_counter_ns() - now
    finally:
        add_time("act", act_ns, steps)
        add_time("store", store_ns, steps)
        add_time("envstep", step_ns, steps)


def late_actor(actor: Actor) -> LateActor | None:
    """Return an actor that is one of those, None for others."""
    return cast(LateActor, actor) if hasattr(actor, "complete") else None


def only_actor(actors: Mapping[str, Actor]) -> tuple[str, Actor]:
    """Return name and actor of the one agent that plays.

    Raises:
        UsageError: there is none, or more than one.
    """
    if len(actors) != 1:
        raise UsageError(f"agents: expected one that acts in each environment, found {len(actors)}: {sorted(actors)}")
    return next(iter(actors.items()))


class ActorSlab:
    """Actions, artifacts and hidden states of one agent, `[T+1, N, ...]`, rows prebuilt.

    The actions are the slab's own, since the environments read them there; `guard` checks a row of them.
    """

    def __init__(self, slab: Slab, *, name: str, actor: Actor) -> None:
        self.name = name
        self.artifacts = dict(actor.artifacts)
        rows = (slab.n_steps + 1, slab.num_envs)
        self._arrays = {k: np.zeros((*rows, *s.shape), s.dtype) for k, s in self.artifacts.items()}
        initial = actor.initial_state(slab.num_envs)
        self.hidden = (
            None
            if initial is None
            else {k: np.zeros((slab.n_steps + 1, *np.shape(value)), value.dtype) for k, value in initial.items()}
        )
        if self.hidden is not None and initial is not None:
            for key, value in initial.items():
                self.hidden[key][-1] = value
        self.guard = ActionGuard(slab, name=name)
        self._specs = slab.spec.actions
        self._num_envs = slab.num_envs
        self._observations, self._taken = slab.observations, slab.actions
        steps = range(slab.n_steps + 1)
        self._actions = [[(slot, array[t]) for slot, array in slab.actions.items()] for t in steps]
        self._rows = [[(key, array[t]) for key, array in self._arrays.items()] for t in steps]
        self._hidden = [{key: array[t] for key, array in (self.hidden or {}).items()} for t in steps]

    def chunk(self, slab: Slab) -> dict[str, Array]:
        """Return the arrays of a chunk by key, those of the environments too, as `[N, T+1, ...]` views."""
        arrays = {f"/observations/{slot}": array for slot, array in slab.observations.items()}
        arrays |= {f"/{key}": getattr(slab, key) for key in ("masks", "rewards", "terminations")}
        base = f"/agents/{self.name}"
        arrays |= {f"{base}/actions/{slot}" if slot else f"{base}/actions": a for slot, a in slab.actions.items()}
        arrays |= {f"{base}/artifacts/{key}": array for key, array in self._arrays.items()}
        arrays |= {f"{base}/hidden_state/{key}": array for key, array in (self.hidden or {}).items()}
        return {key: array.swapaxes(0, 1) for key, array in arrays.items()}

    def hidden_row(self, t: int) -> Mapping[str, Array] | None:
        """Return the hidden state before acting at `t`; None where the policy has none."""
        return self._hidden[t] if self.hidden is not None else None

    def carry(self) -> None:
        """Begin the next chunk with the hidden state at the end of the last."""
        for array in (self.hidden or {}).values():
            array[0] = array[-1]

    def store(self, output: ActorOutput, t: int) -> None:
        """Write what the actor decided into row `t`, and its next hidden state into row `t+1`."""
        for slot, row in self._actions[t]:
            row[...] = output.actions[slot]
        if output.artifacts:
            for key, row in self._rows[t]:
                row[...] = output.artifacts[key]
        if self.hidden is not None and output.hidden_state is not None:
            for key, row in self._hidden[t + 1].items():
                row[...] = output.hidden_state[key]

    def complete(self, actor: LateActor) -> None:
        """Write what a late actor gives for all rows of a chunk but the last.

        Raises:
            ShapeError: a key is missing, or an array has another shape.
        """
        observations, actions = (self._flat(arrays) for arrays in (self._observations, self._taken))
        found, artifacts = actor.complete(observations, actions), self._flat(self._arrays)
        rows = self._num_envs * (len(self._rows) - 1)
        _check_shapes(found, self.artifacts, f"agent {self.name!r}: artifacts", rows)
        for key, array in artifacts.items():
            array[...] = found[key]

    def _flat(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return views `[T * N, ...]` of `[T+1, N, ...]` arrays without their last rows."""
        return {key: array[:-1].reshape((-1, *array.shape[2:])) for key, array in arrays.items()}

    def check(self, output: ActorOutput, *, num_envs: int | None = None, has_artifacts: bool = True) -> None:
        """Check what an actor decided against what it declared; once a chunk, since shapes do not change within one.

        `num_envs` is for how many it has decided; by default for all.

        Raises:
            ShapeError: a key is missing, or an array has another shape.
        """
        where = f"agent {self.name!r}"
        rows = self._num_envs if num_envs is None else num_envs
        _check_shapes(output.actions, self._specs, f"{where}: actions", rows)
        if has_artifacts:
            _check_shapes(output.artifacts, self.artifacts, f"{where}: artifacts", rows)
        if self.hidden is not None and output.hidden_state is None:
            raise ShapeError(f"{where}: expected a hidden state, found None")


def _check_shapes(found: Mapping[str, Array], specs: Mapping[str, ArraySpec], where: str, num_envs: int) -> None:
    for key, spec in specs.items():
        if key not in found:
            raise ShapeError(f"{where}: expected the key {key!r}, found {sorted(found)}")
        expected = (num_envs, *spec.shape)
        if np.asarray(found[key]).dtype.kind == "f" and np.dtype(spec.dtype).kind != "f":
            raise ShapeError(f"{where}[{key!r}]: expected dtype {spec.dtype}, found {np.asarray(found[key]).dtype}")
        if np.shape(found[key]) != expected:
            raise ShapeError(f"{where}[{key!r}]: expected shape {expected}, found {np.shape(found[key])}")


class ActionGuard:
    """Looks at a row of actions before it reaches the environments, for NaN and for choices that do not exist.

    Integers are seen as unsigned ones, where a negative one is greater than every limit: one comparison instead of two.
    """

    def __init__(self, slab: Slab, *, name: str, envs: range | None = None) -> None:
        self._name = name
        self._specs = slab.spec.actions
        self._envs = envs or range(slab.num_envs)
        first, stop = self._envs.start, self._envs.stop
        self._rows = [
            [(slot, *_seen(array[t, first:stop], self._specs[slot])) for slot, array in slab.actions.items()]
            for t in range(slab.n_steps + 1)
        ]

    def check(self, t: int) -> None:
        """Check row `t`.

        Raises:
            NonFiniteError: the message names agent, key, environment, index and value.
        """
        for slot, row, limit in self._rows[t]:
            if limit is None:
                if np.isfinite(row).all():
                    continue
            elif isinstance(limit, int):
                # A short row is looked at faster by the interpreter than by a call of numpy.
                if (max(row.tolist()) if row.ndim == 1 and row.size <= 64 else row.max()) < limit:
                    continue
            elif (row < limit).all():
                continue
            self._refuse(slot, row, limit)

    def _refuse(self, slot: str, row: Array, limit: Any) -> NoReturn:
        is_bad = ~np.isfinite(row) if limit is None else row >= np.asarray(limit)
        env, *index = (int(i) for i in np.argwhere(is_bad)[0])
        signed = row if limit is None else row.view(self._specs[slot].dtype)
        expected = "a finite number" if limit is None else f"one of 0 to {int(np.max(limit)) - 1}"
        key = f"/agents/{self._name}/actions/{slot}" if slot else f"/agents/{self._name}/actions"
        raise NonFiniteError(
            f"agent {self._name!r}: expected {expected} in {key} of environment {self._envs[env]}, "
            f"found {signed[(env, *index)]} (first bad index {tuple(index)}); nothing was done with it"
        )


def _seen(row: Array, spec: ArraySpec) -> tuple[Array, Any]:
    """Return a row as it is looked at, and what its elements must lie below; None for those that must be finite."""
    if spec.kind == "box":
        return row, None
    if spec.kind == "multi_discrete":
        return row.view(f"u{row.dtype.itemsize}"), np.asarray(spec.n, f"u{row.dtype.itemsize}").reshape(spec.shape)
    return row.view(f"u{row.dtype.itemsize}"), 2 if spec.kind == "multi_binary" else spec.n[0]
