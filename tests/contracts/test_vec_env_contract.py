"""The contract of every way to step environments: rows, the episode rule, and the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes_vec import ALLOWED, Follower, ScriptEnv, explorer

from digideep.environment.config import EnvConfig
from digideep.environment.vec.base import VecEnv
from digideep.environment.vec.choose import make_vec_env
from digideep.environment.vec.slab import RESET, RUN, SKIP
from digideep.errors import EnvironmentFailure
from digideep.types import Progress

STEPS = 4
ENVS = 3

# Episodes that end at each place of a chunk of 4 rows, among them of length 1 and at T-1.
LENGTHS = {
    "always 1": [1],
    "always 3": [3],
    "at the last row": [4, 1, 2],
    "longer than a chunk": [11],
    "mixed": [1, 1, 5, 3],
}


def vec_env(num_workers: int, **kwargs: Any) -> VecEnv:
    config = EnvConfig(model_name="Script-v0", from_module="fakes_vec", env_kwargs=kwargs)
    return make_vec_env(config, num_envs=ENVS, num_workers=num_workers, allowed=ALLOWED, step_timeout_s=20.0)


@pytest.fixture(params=[0, 1, 2, 3], ids=lambda n: f"{n} workers")
def workers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[0, 2], ids=lambda n: f"{n} workers")
def few_workers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def start(vec: VecEnv) -> None:
    slab = vec.attach(STEPS)
    slab.next_seeds[:] = [100 + i for i in range(ENVS)]
    slab.modes.fill(RESET)
    vec.reset(STEPS)
    slab.modes.fill(RUN)


def chunk(vec: VecEnv, actions: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Make one chunk with `actions` [T, N] and return copies of its rows."""
    slab = vec.slab
    assert slab is not None
    slab.observations["observation"][0] = slab.observations["observation"][STEPS]
    slab.masks[0] = slab.masks[STEPS]
    for t in range(STEPS):
        slab.actions[""][t] = actions[t]
        vec.step(t)
    names = ("rewards", "terminations", "masks")
    return {"observations": slab.observations["observation"].copy()} | {k: getattr(slab, k).copy() for k in names}


def expected_chunks(actions: list[np.ndarray[Any, Any]], **kwargs: Any) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Step one environment after the other, by the rule as it is written."""
    envs = [ScriptEnv(**kwargs) for _ in range(ENVS)]
    last = [env.reset(seed=100 + i)[0] for i, env in enumerate(envs)]
    masks = [0.0] * ENVS
    over = [False] * ENVS
    for block in actions:
        rows: dict[str, Any] = {"observations": [list(last)], "masks": [list(masks)], "rewards": [], "terminations": []}
        for t in range(STEPS):
            rewards, terminations = [0.0] * ENVS, [0.0] * ENVS
            for i, env in enumerate(envs):
                if over[i]:
                    last[i], masks[i], over[i] = env.reset()[0], 0.0, False
                else:
                    last[i], rewards[i], terminated, truncated, _ = env.step(block[t, i])
                    masks[i], over[i], terminations[i] = 1.0, terminated or truncated, float(terminated)
            for key, value in (("observations", last), ("masks", masks)):
                rows[key].append(list(value))
            rows["rewards"].append(rewards)
            rows["terminations"].append(terminations)
        yield {key: np.asarray(value, np.float32) for key, value in rows.items()}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("ends_by", ["termination", "truncation"])
def test_rows_follow_the_episode_rule(few_workers: int, lengths: list[int], ends_by: str) -> None:
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, (STEPS, ENVS)) for _ in range(5)]
    vec = vec_env(few_workers, lengths=lengths, ends_by=ends_by)

    try:
        start(vec)
        chunks = [chunk(vec, block) for block in actions]
    finally:
        vec.close()

    for found, expected in zip(chunks, expected_chunks(actions, lengths=lengths, ends_by=ends_by), strict=True):
        for key in ("observations", "masks"):
            np.testing.assert_array_equal(found[key], expected[key], err_msg=key)
        for key in ("rewards", "terminations"):
            np.testing.assert_array_equal(found[key][:STEPS], expected[key], err_msg=key)


def test_an_episode_of_three_steps_has_length_and_return_three_everywhere(workers: int) -> None:
    vec = vec_env(workers, lengths=[3])

    try:
        start(vec)
        for _ in range(6):
            chunk(vec, np.zeros((STEPS, ENVS)))
        finished = vec.collect()
    finally:
        vec.close()

    # 24 rows hold six episodes of three steps and a reset each.
    assert len(finished) == 18
    assert {(episode.length, episode.return_) for episode in finished} == {(3, 3.0)}
    first = [(episode.env, episode.number) for episode in finished[:6]]
    assert first == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert finished[0].seed == 100
    assert finished[3].seed is None
    assert finished[0].metrics == {"height": 1.5, "is_success": 1.0}


def test_episodes_of_one_step_alternate_with_resets(few_workers: int) -> None:
    vec = vec_env(few_workers, lengths=[1])

    try:
        start(vec)
        rows = chunk(vec, np.ones((STEPS, ENVS)))
    finally:
        vec.close()

    np.testing.assert_array_equal(rows["masks"][:, 0], [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(rows["rewards"][:STEPS, 0], [3, 0, 3, 0])
    np.testing.assert_array_equal(rows["terminations"][:STEPS, 0], [1, 0, 1, 0])
    np.testing.assert_array_equal(rows["observations"][:, 0, 0], [0, 0, 1, 1, 2])


def test_skipped_environments_stand_still_and_reset_ones_take_their_seed(few_workers: int) -> None:
    vec = vec_env(few_workers, lengths=[9])

    try:
        start(vec)
        slab = vec.slab
        assert slab is not None
        slab.modes[:] = [RUN, SKIP, RESET]
        slab.next_seeds[2] = 100
        vec.step(0)
        shown, seeds, next_seeds = slab.observations["observation"][1].copy(), slab.seeds.copy(), slab.next_seeds.copy()
        slab.modes.fill(RUN)
        vec.step(1)
        later = slab.observations["observation"][2].copy()
    finally:
        vec.close()

    np.testing.assert_array_equal(shown[0, :2], [0, 1])
    np.testing.assert_array_equal(shown[2, :2], [1, 0])
    np.testing.assert_array_equal(seeds, [100, 101, 100])
    np.testing.assert_array_equal(next_seeds, [-1, -1, -1])
    np.testing.assert_array_equal(later[:, 1], [2, 1, 1])


def test_states_of_one_way_are_gone_on_with_by_another(workers: int) -> None:
    first, second = vec_env(2, lengths=[5, 2]), vec_env(workers, lengths=[5, 2])

    try:
        start(first)
        chunk(first, np.ones((STEPS, ENVS)))
        chunk(first, np.ones((STEPS, ENVS)))
        states = first.states()
        start(second)
        without = second.load_states(states)
        assert first.slab is not None and second.slab is not None
        for key in ("observation",):
            second.slab.observations[key][STEPS] = first.slab.observations[key][STEPS]
        second.slab.masks[STEPS] = first.slab.masks[STEPS]
        first.collect()
        second.collect()
        blocks = [(chunk(first, np.zeros((STEPS, ENVS))), chunk(second, np.zeros((STEPS, ENVS)))) for _ in range(3)]
        episodes = [[episode[1:] for episode in vec.collect()] for vec in (first, second)]
    finally:
        first.close()
        second.close()

    assert without == {}
    for one, other in blocks:
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)
    assert episodes[0] == episodes[1]
    assert len(episodes[0]) == 6


def test_progress_reaches_environments_that_ask_for_it_through_their_wrappers(few_workers: int) -> None:
    vec = vec_env(few_workers, lengths=[3], fault="progress")

    try:
        start(vec)
        with pytest.raises(EnvironmentFailure, match=r"environment 0 \(Script-v0, worker 0, .*ValueError: no level 7"):
            vec.set_progress(Progress(frame=10, epoch=1, fraction=0.5))
    finally:
        vec.close()


def test_workers_give_timers_of_steps_and_resets(few_workers: int) -> None:
    vec = vec_env(few_workers, lengths=[1])

    try:
        start(vec)
        chunk(vec, np.zeros((STEPS, ENVS)))
        timings, again = vec.timings(), vec.timings()
    finally:
        vec.close()

    assert sorted(timings) == [f"worker{i}" for i in range(few_workers)]
    for node in timings.values():
        step = node.children["step"]
        assert step.count == STEPS
        assert step.total_ns >= step.children["reset"].total_ns > 0
    assert all(node.children["step"].count == 0 for node in again.values())


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_an_actor_sees_exactly_the_next_observation_whatever_the_workers(workers: int, lengths: list[int]) -> None:
    made = explorer(num_envs=ENVS, num_workers=workers, n_steps=STEPS, kwargs={"lengths": lengths})
    made.set_actors({"agent": Follower()})  # fails by itself where an observation is not the next one

    try:
        for _ in range(6):
            arrays = made.update().arrays
            real = arrays["/masks"][:, 1:] == 1
            steps = arrays["/observations/observation"][:, :, 1]
            np.testing.assert_array_equal((steps[:, 1:] - steps[:, :-1])[real], 1)
            np.testing.assert_array_equal(arrays["/rewards"][:, :-1][~real], 0)
        episodes = made.episodes()
    finally:
        made.close()

    assert {episode.length for episode in episodes} <= set(lengths)
    assert episodes


def test_closing_twice_is_harmless(few_workers: int) -> None:
    vec = vec_env(few_workers)

    vec.close()
    vec.close()

    assert gymnasium.registry["Script-v0"]
