"""What a failure carries along, so that it can be walked to again."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes_vec import ALLOWED, Follower, explorer

from digideep.environment.config import EnvConfig
from digideep.environment.crash import read_crash, replay_crash, write_crash
from digideep.environment.history import ActionHistory, EpisodeActions
from digideep.environment.recovery import Supervision
from digideep.environment.vec.origin import write_origin
from digideep.environment.vec.restart import RESTARTS, RestartBudget
from digideep.environment.vec.slab import Slab
from digideep.errors import EnvironmentFailure, WorkerError
from digideep.spec import ArraySpec, EnvSpec

SPEC = EnvSpec("Made-v0", {"observation": ArraySpec("box", (1,), "float32")}, {"": ArraySpec("discrete", (), "int64")})


def failure(*, updates: int = 4, num_workers: int = 0, restarts: int = RESTARTS, **kwargs: Any) -> EnvironmentFailure:
    made = explorer(num_workers=num_workers, kwargs=kwargs, supervision=Supervision(RestartBudget(restarts)))
    made.set_actors({"agent": Follower()})
    try:
        with pytest.raises(EnvironmentFailure) as raised:
            for _ in range(updates):
                made.update()
        return raised.value
    finally:
        made.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_failure_carries_the_whole_episode_over_several_chunks(num_workers: int) -> None:
    # Chunks of 4 steps: the eleventh step of the first episode lies in the third.
    error = failure(num_workers=num_workers, lengths=[50], fault="step", fault_at=11)

    crash = error.crash  # type: ignore[attr-defined]
    assert {key: crash[key] for key in ("phase", "mode", "worker", "env_index", "episode", "step")} == {
        "phase": "step",
        "mode": "train",
        "worker": 0,
        "env_index": 0,
        "episode": 0,
        "step": 11,
    }
    assert crash["seed"] is not None
    assert crash["rng"] is None
    np.testing.assert_array_equal(crash["actions"][""], [0, 1] * 5 + [0])


def test_an_episode_that_began_without_a_seed_carries_its_generator() -> None:
    error = failure(lengths=[3], fault="step", fault_at=8)

    # Episodes of 3 steps: the eighth step is the second of episode 2, whose actions are (2 + step) % 2.
    crash = error.crash  # type: ignore[attr-defined]
    assert (crash["seed"], crash["episode"], crash["step"]) == (None, 2, 2)
    assert crash["rng"]["bit_generator"] == "PCG64"
    np.testing.assert_array_equal(crash["actions"][""], [0, 1])


def test_a_failing_reset_has_no_actions() -> None:
    first = failure(fault="reset", fault_at=0)
    later = failure(lengths=[2], fault="reset", fault_at=1)

    for error, episode in ((first, 0), (later, 1)):
        crash = error.crash  # type: ignore[attr-defined]
        assert (crash["phase"], crash["episode"], crash["step"]) == ("reset", episode, 0)
        assert crash["actions"][""].shape == (0,)


def test_a_worker_that_died_leaves_the_way_to_where_it_died() -> None:
    error = failure(num_workers=1, lengths=[9], fault="kill", fault_at=2, restarts=0)

    assert isinstance(error, WorkerError)
    crash = error.crash  # type: ignore[attr-defined]
    assert (crash["phase"], crash["ending"], crash["episode"], crash["step"]) == ("step", "death", 0, 2)
    np.testing.assert_array_equal(crash["actions"][""], [0, 1])


def test_an_episode_that_began_in_a_worker_that_died_later_is_known_too() -> None:
    error = failure(num_workers=1, lengths=[3], fault="kill", fault_at=8, restarts=0)

    crash = error.crash  # type: ignore[attr-defined]
    assert (crash["seed"], crash["episode"], crash["step"]) == (None, 2, 2)
    assert crash["rng"]["bit_generator"] == "PCG64"


def test_the_failure_happens_again_where_it_is_replayed(tmp_path: Path) -> None:
    kwargs: dict[str, Any] = {"lengths": [50], "fault": "step", "fault_at": 6}
    error = failure(**kwargs)
    config = EnvConfig(model_name="Script-v0", from_module="fakes_vec", env_kwargs=kwargs)

    write_crash(tmp_path, config, error=error, **error.crash)  # type: ignore[attr-defined]

    with pytest.raises(KeyError, match="torque"):
        replay_crash(read_crash(tmp_path), allowed=ALLOWED)


def test_chunks_that_no_episode_needs_are_dropped() -> None:
    slab = Slab(SPEC, num_envs=2, n_steps=4)
    history = ActionHistory(slab)
    write_origin(slab.origins[-1, 0], None, seed=5)
    history.opened([0])
    slab.masks.fill(1)

    for before in (0, 4, 8):
        slab.actions[""].fill(before)
        slab.born[:] = [0, before + 4]
        history.keep(before)
    kept_for_the_long_one = len(history._kept)
    slab.born[:] = [9, 10]
    slab.actions[""].fill(12)
    history.keep(12)

    assert kept_for_the_long_one == 3
    assert [kept.before for kept in history._kept] == [8, 12]
    walk = history.walk(0, phase="step", before=16, rows=2)
    assert walk is not None
    assert walk.seed == 5
    np.testing.assert_array_equal(walk.actions[""], [8, 8, 8, 12, 12, 12, 12, 12, 12])


def test_an_episode_that_began_before_what_is_kept_is_not_told() -> None:
    slab = Slab(SPEC, num_envs=1, n_steps=4)
    history = ActionHistory(slab)
    slab.born[0] = -3  # as after a resume

    history.continued()

    assert history.walk(0, phase="step", before=0, rows=2) is None


LIMIT = 300_000


@pytest.mark.parametrize(("num_envs", "n_steps", "slots"), [(1, 1, 1), (8, 4, 1), (1, 1, 3), (2, 64, 2)])
def test_an_endless_episode_takes_no_more_memory_than_the_limit(
    num_envs: int, n_steps: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digideep.environment.history._LIMIT_BYTES", LIMIT)
    actions = {f"slot{number}": ArraySpec("discrete", (), "int64", n=(2,)) for number in range(slots)}
    slab = Slab(SPEC._replace(actions=actions), num_envs=num_envs, n_steps=n_steps)
    history = ActionHistory(slab)
    slab.masks.fill(1)

    taken = memory_of(lambda number: history.keep(1000 + number * n_steps), times=3000)

    assert 0.5 * LIMIT < taken < 1.1 * LIMIT


@pytest.mark.parametrize("slots", [1, 3])
def test_an_endless_episode_played_alone_takes_no_more_memory_than_the_limit(
    slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digideep.environment.history._LIMIT_BYTES", LIMIT)
    actions = {f"slot{number}": ArraySpec("discrete", (), "int64", n=(2,)) for number in range(slots)}
    slab = Slab(SPEC._replace(actions=actions), num_envs=1, n_steps=1)
    episode = EpisodeActions(slab)
    kept = episode._limit

    taken = memory_of(lambda _: episode.keep(0), times=kept)
    within = episode.arrays()
    episode.keep(0)

    assert 0.25 * LIMIT < taken < 1.1 * LIMIT
    assert kept > 5 * LIMIT // (320 + slots * (160 + 8))  # as many as one array a step would leave room for
    assert within is not None
    assert len(within["slot0"]) == kept
    assert episode.arrays() is None


def memory_of(step: Callable[[int], None], *, times: int) -> int:
    """Return the bytes that stay taken after calls of `step`."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(times):
            step(number)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
