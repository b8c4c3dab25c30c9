"""The step loop takes no memory that it does not give back, whoever steps the environments."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from fakes_vec import Follower, explorer

from digideep.environment.explorer import Explorer
from digideep.types import ActorOutput

N_STEPS = 10
LENGTH = 19  # of an episode: with the row that begins the next, every other chunk shows the same
WARM_CHUNKS, CHUNKS = 50, 200
ALLOWED_BYTES = 4000  # a list that grows by one known object a step takes 16,000


class Steady(Follower):
    """Takes action 0, and remembers nothing."""

    def act(self, observations: Mapping[str, Any], *_: Any, **options: Any) -> ActorOutput:
        num_envs = len(next(iter(observations.values())))
        zeros = np.zeros(num_envs, np.float32)
        return ActorOutput({"": np.zeros(num_envs, np.int64)}, {"log_probs": zeros, "values": zeros})


def started(name: str, *, actor: Any, **fields: Any) -> Explorer:
    made = explorer(name, n_steps=N_STEPS, num_envs=4, **fields)
    made.set_actors({"agent": actor})
    return made


def advance(made: Explorer, chunks: int) -> None:
    for _ in range(chunks):
        made.update()
        made.episodes()


def grown(made: Explorer, between: Callable[[], None] = lambda: None) -> int:
    """Return how many bytes more are allocated after 2,000 steps than before them; the explorer is closed.

    It is the least of three times 2,000 steps: what grows does so in each, and what is made once, here or by whatever
    else this process runs, counts in one of them.
    """
    tracemalloc.start()
    try:
        advance(made, WARM_CHUNKS)
        allocated = [_allocated()]
        for _ in range(3):
            for _ in range(CHUNKS):
                advance(made, 1)
                between()
            allocated.append(_allocated())
    finally:
        tracemalloc.stop()
        made.close()
    return min(after - before for before, after in itertools.pairwise(allocated))


def _allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_two_thousand_steps_of_single_environments_take_no_memory(num_workers: int) -> None:
    made = started("Script-v0", actor=Steady(), num_workers=num_workers, kwargs={"lengths": [LENGTH]})

    assert grown(made) < ALLOWED_BYTES


def test_two_thousand_steps_of_a_native_vector_environment_take_no_memory() -> None:
    made = started("CartPole-v1", actor=Steady(), backend="native")

    assert grown(made) < ALLOWED_BYTES


def test_two_thousand_steps_take_no_memory_in_the_workers_either() -> None:
    made = started("Traced-v0", actor=Steady(), num_workers=2, kwargs={"lengths": [LENGTH]})

    advance(made, WARM_CHUNKS)
    made.update()
    made.update()
    early = {episode.env: episode.metrics["bytes"] for episode in made.episodes()}
    advance(made, CHUNKS)
    made.update()
    made.update()
    late = {episode.env: episode.metrics["bytes"] for episode in made.episodes()}
    made.close()

    assert early.keys() == late.keys() == {0, 1, 2, 3}
    assert max(late[env] - early[env] for env in early) < ALLOWED_BYTES


def test_one_object_more_in_a_list_at_each_step_would_be_seen() -> None:
    kept: list[None] = []
    made = started("Script-v0", actor=Steady(), kwargs={"lengths": [LENGTH]})

    assert grown(made, lambda: kept.extend([None] * N_STEPS)) > ALLOWED_BYTES
