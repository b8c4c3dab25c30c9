"""CountingEnv and CountingActor through every back end: no row is lost, repeated or swapped at an end of an episode."""

from __future__ import annotations

import numpy as np
import pytest

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.testing import CountingActor
from digideep.utility.imports import BUILT_IN
from digideep.utility.node import node

N_STEPS = 6
LENGTHS = {
    "of one step": [1],
    "that end at T-1": [N_STEPS],
    "that end at T-2, so that the reset row is the last": [N_STEPS - 1],
    "of many lengths": [1, 1, 3, 2, 7, 1, 13],
}


def explorer(lengths: list[int], *, num_workers: int) -> Explorer:
    env = node(
        EnvConfig,
        model_name="digideep.testing:Counting-v0",
        env_kwargs={"lengths": lengths, "ends": "alternate"},
    )
    config = ExplorerConfig(env=env, num_envs=3, num_workers=num_workers, n_steps=N_STEPS)
    return Explorer(config, mode="train", seed=3, monitor_dir=None, allowed=BUILT_IN)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("name", LENGTHS)
def test_every_row_holds_the_next_integer_through_episodes(name: str, num_workers: int) -> None:
    lengths, actor = LENGTHS[name], CountingActor()
    counted, frames, finished = [], 0, []
    sampler = explorer(lengths, num_workers=num_workers)

    try:
        sampler.set_actors({"agent": actor})
        for _ in range(5):
            chunk = sampler.update()
            counted.append(chunk.arrays["/observations/observation"][:, :-1, 0].copy())
            frames += chunk.meta.env_steps
            assert chunk.meta.env_steps == int(chunk.arrays["/masks"][:, 1:].sum())
            np.testing.assert_array_equal(
                chunk.arrays["/agents/agent/artifacts/values"][:, :-1],
                chunk.arrays["/observations/observation"][:, :-1, 0],
            )
        finished = sampler.episodes()
    finally:
        sampler.close()

    rows = np.concatenate(counted, axis=1)
    np.testing.assert_array_equal(rows, np.tile(np.arange(5 * N_STEPS, dtype=np.float32), (3, 1)))
    assert [episode.length for episode in finished if episode.env == 0][: len(lengths)] == (lengths * 30)[
        : min(len(lengths), len([e for e in finished if e.env == 0]))
    ]
    assert frames >= sum(episode.length for episode in finished)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_reward_of_a_real_transition_is_the_integer_that_follows(num_workers: int) -> None:
    sampler = explorer(LENGTHS["of many lengths"], num_workers=num_workers)

    try:
        sampler.set_actors({"agent": CountingActor()})
        chunk = sampler.update()
        arrays = {key: array.copy() for key, array in chunk.arrays.items()}
    finally:
        sampler.close()

    real = arrays["/masks"][:, 1:] == 1
    following = arrays["/observations/observation"][:, 1:, 0]
    np.testing.assert_array_equal(arrays["/rewards"][:, :-1][real], following[real])
    np.testing.assert_array_equal(arrays["/rewards"][:, :-1][~real], 0.0)
    np.testing.assert_array_equal(arrays["/terminations"][:, :-1][~real], 0.0)
