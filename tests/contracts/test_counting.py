"""CountingEnv and CountingActor through every back end and every memory.

No row is lost, repeated or swapped at an end of an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.environment.wrappers.config import FrameStackConfig
from digideep.memory.base import Memory
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig, RollBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.memory.rollbuffer import RollBuffer
from digideep.testing import CountingActor
from digideep.types import ActorOutput, SampleSpec
from digideep.utility.imports import BUILT_IN
from digideep.utility.node import node

N_STEPS = 6
LENGTHS = {
    "of one step": [1],
    "that end at T-1": [N_STEPS],
    "that end at T-2, so that the reset row is the last": [N_STEPS - 1],
    "of many lengths": [1, 1, 3, 2, 7, 1, 13],
}


def explorer(lengths: list[int], *, num_workers: int, stack: int = 0) -> Explorer:
    env = node(
        EnvConfig,
        model_name="digideep.testing:Counting-v0",
        env_kwargs={"lengths": lengths, "ends": "alternate"},
        wrappers=[node(FrameStackConfig, n=stack)] if stack else [],
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


MEMORIES: dict[str, tuple[int, Callable[[], Memory]]] = {
    "roll": (0, lambda: RollBuffer(RollBufferConfig(), name="train")),
    "ring": (0, lambda: RingBuffer(RingBufferConfig(capacity=200), name="train")),
    "ring that wraps": (0, lambda: RingBuffer(RingBufferConfig(capacity=40), name="train")),
    "ring of frames": (4, lambda: RingBuffer(RingBufferConfig(capacity=40, frame_stack=4), name="train")),
    "prioritised": (0, lambda: PrioritizedBuffer(PrioritizedBufferConfig(capacity=40), name="train")),
    "prioritised, of frames": (
        4,
        lambda: PrioritizedBuffer(PrioritizedBufferConfig(capacity=40, frame_stack=4), name="train"),
    ),
}


class NewestCountingActor(CountingActor):
    """Looks at the newest of a stack."""

    def act(
        self,
        observations: Mapping[str, np.ndarray[Any, Any]],
        hidden_state: Mapping[str, np.ndarray[Any, Any]] | None = None,
        masks: np.ndarray[Any, Any] | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        return super().act({"observation": observations["observation"][:, -1]})


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("kind", MEMORIES)
def test_every_window_of_a_memory_counts_on_through_episodes(kind: str, name: str) -> None:
    (stack, make), lengths = MEMORIES[kind], LENGTHS[name]
    memory, rng, drawn = make(), np.random.default_rng(0), 0
    sampler = explorer(lengths, num_workers=0, stack=stack)
    opens = np.cumsum([0, *(length + 1 for length in lengths * 60)])

    try:
        sampler.set_actors({"agent": NewestCountingActor() if stack else CountingActor()})
        for number in range(1, 13):
            memory.store(sampler.update())
            for spec in (SampleSpec(40), SampleSpec(40, n_step=3), SampleSpec(40, sequence=9)):
                batch = memory.sample(spec, rng)
                shown = batch["/observations/observation"]
                counts = (shown[:, :, -1, 0] if stack else shown[:, :, 0]).astype(int)
                newest = number * N_STEPS
                following = counts[:, :1] + np.arange(max(spec.n_step, spec.sequence) + 1)
                np.testing.assert_array_equal(counts, np.minimum(following, newest))
                real = batch["/weights"] == 1.0
                np.testing.assert_array_equal(real, ~np.isin(counts + 1, opens) & (counts < newest))
                np.testing.assert_array_equal(batch["/rewards"][real], counts[real] + 1)
                if stack:
                    first = opens[np.searchsorted(opens, counts, side="right") - 1]
                    expected = np.maximum(counts[..., None] - 3 + np.arange(4), first[..., None])
                    np.testing.assert_array_equal(shown[..., 0], expected)
                    np.testing.assert_array_equal(shown[..., 1], np.broadcast_to(shown[:, :1, :1, 1], expected.shape))
                drawn += len(counts)
    finally:
        sampler.close()

    assert drawn == 12 * 3 * 40
