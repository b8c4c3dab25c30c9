"""Acting for one half of the environments at a time, so that the other half can be stepped meanwhile.

Acting in halves may give other bits than acting at once, since products depend on the batch: it is a setting.
Whether one half is then stepped while the actor is busy with the other, by two groups of workers, changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, TypeAlias

import numpy as np

from digideep.environment.playing import ActionGuard, ActorSlab, sample, step_rows
from digideep.environment.vec.base import StepGroup, VecEnv
from digideep.environment.vec.slab import Slab
from digideep.types import Actor, ActorOutput
from digideep.utility.profiling import add_time

__all__ = ["Half", "halves", "sample_in_halves", "sampler"]

Array: TypeAlias = np.ndarray[Any, Any]


class Half:
    """The rows of some of the environments: what an actor sees there, and where its decisions go."""

    def __init__(self, slab: Slab, actor_slab: ActorSlab, envs: range) -> None:
        part = slice(envs.start, envs.stop)
        arrays = {key: array.swapaxes(0, 1)[:, part] for key, array in actor_slab.chunk(slab).items()}
        base = f"/agents/{actor_slab.name}"

        def rows(prefix: str) -> list[dict[str, Array]]:
            chosen = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            return [{key: array[t] for key, array in chosen.items()} for t in range(slab.n_steps + 1)]

        self.observations = rows("/observations/")
        self.n_steps = slab.n_steps
        self.masks = list(arrays["/masks"])
        self._actions = [{slot: array[t, part] for slot, array in slab.actions.items()} for t in range(slab.n_steps)]
        self._artifacts = rows(f"{base}/artifacts/")
        self._hidden = None if actor_slab.hidden is None else rows(f"{base}/hidden_state/")
        self._slab = actor_slab
        self._num_envs = len(envs)
        self._guard = ActionGuard(slab, name=actor_slab.name, envs=envs)

    def act(self, actor: Actor, t: int, *, deterministic: bool) -> ActorOutput:
        """Return what the actor decides on row `t`."""
        hidden = None if self._hidden is None else self._hidden[t]
        return actor.act(self.observations[t], hidden, self.masks[t], deterministic=deterministic)

    def store(self, output: ActorOutput, t: int) -> None:
        """Write a decision into row `t`, where it is checked, and the next hidden state into row `t+1`."""
        if t == 0:
            self._slab.check(output, num_envs=self._num_envs)
        for slot, row in self._actions[t].items():
            row[...] = output.actions[slot]
        for key, row in self._artifacts[t].items():
            row[...] = output.artifacts[key]
        if self._hidden is not None and output.hidden_state is not None:
            for key, row in self._hidden[t + 1].items():
                row[...] = output.hidden_state[key]
        self._guard.check(t)


def sampler(vec: VecEnv, slab: Slab, actor_slab: ActorSlab, *, act_groups: int) -> Callable[..., None]:
    """Return what fills a chunk, given `actor`, `deterministic` and `settle`: at once, or in two groups."""
    if act_groups == 1:
        return partial(sample, vec, step_rows(slab), slab=actor_slab)
    return partial(sample_in_halves, vec, halves(slab, actor_slab))


def halves(slab: Slab, actor_slab: ActorSlab) -> list[Half]:
    """Return both halves of an even number of environments."""
    middle, stop = slab.num_envs // 2, slab.num_envs
    return [Half(slab, actor_slab, envs) for envs in (range(middle), range(middle, stop))]


def sample_in_halves(
    vec: VecEnv,
    parts: Sequence[Half],
    *,
    actor: Actor,
    deterministic: bool,
    settle: Callable[[int], None],
) -> None:
    """Act and step until all rows are filled, as `sample` does, but for one half after the other.

    Where the environments have two groups, each is stepped while the actor is busy with the other.

    Args:
        vec: the environments.
        parts: as `halves` gives them.
        actor, deterministic, settle: as `sample` has them.
    """
    groups, n_steps = vec.groups, parts[0].n_steps
    act_ns = store_ns = step_ns = 0
    steps = 0
    now = perf_counter_ns()
    try:
        for t in range(n_steps):
            for i, half in enumerate(parts):
                if groups and t > 0:
                    _end_step(vec, groups[i], t, settle)
                waited = perf_counter_ns()
                output = half.act(actor, t, deterministic=deterministic)
                acted = perf_counter_ns()
                half.store(output, t)
                step_ns += waited - now
                act_ns += acted - waited
                now = perf_counter_ns()
                store_ns += now - acted
                if groups:
                    groups[i].ask(t)
            if not groups:
                vec.step(t)
                if vec.has_faults:
                    settle(t + 1)
            steps += 1
        for group in groups:
            _end_step(vec, group, n_steps, settle)
        step_ns += perf_counter_ns() - now
    except Exception:
        for group in groups:
            group.rest()
        raise
    finally:
        add_time("act", act_ns, steps)
        add_time("store", store_ns, steps)
        add_time("envstep", step_ns, steps)


def _end_step(vec: VecEnv, group: StepGroup, row: int, settle: Callable[[int], None]) -> None:
    group.wait()
    if vec.has_faults:
        settle(row)
