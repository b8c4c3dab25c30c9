"""Sequences for policies with a hidden state: rows in order, the state they begin with, and where they stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.memory.base import Memory
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig, RollBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.memory.rollbuffer import RollBuffer
from digideep.testing import CountingActor
from digideep.types import ActorOutput, SampleSpec
from digideep.utility.node import node

Array = np.ndarray[Any, Any]

MEMORIES: dict[str, Callable[[], Memory]] = {
    "roll": lambda: RollBuffer(RollBufferConfig(), name="train"),
    "ring": lambda: RingBuffer(RingBufferConfig(capacity=90), name="train"),
    "prioritised": lambda: PrioritizedBuffer(PrioritizedBufferConfig(capacity=90), name="train"),
}


class RememberingActor(CountingActor):
    """A counting actor whose hidden state is the sum of what it has seen in this episode, and how often it looked."""

    def initial_state(self, num_envs: int) -> Mapping[str, Array]:  # type: ignore[override]
        return {"sum": np.zeros((num_envs, 2), np.float32), "looks": np.zeros(num_envs, np.int64)}

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        assert hidden_state is not None and masks is not None
        output = super().act(observations, hidden_state, masks)
        kept = masks == 1.0
        after = {
            "sum": hidden_state["sum"] * kept[:, None] + observations["observation"],
            "looks": hidden_state["looks"] * kept + 1,
        }
        return output._replace(hidden_state=after)


@pytest.fixture(params=MEMORIES)
def drawn(request: pytest.FixtureRequest) -> tuple[Array, dict[str, Array]]:
    """Return the counts at which episodes open, and sequences of seven steps out of twelve chunks."""
    env = node(
        EnvConfig,
        model_name="digideep.testing:Counting-v0",
        env_kwargs={"lengths": [1, 6, 3, 2, 7, 1, 13], "ends": "alternate"},
    )
    explorer = Explorer(ExplorerConfig(env=env, num_envs=3, n_steps=9), mode="train", seed=3)
    memory, opens = MEMORIES[request.param](), set[int]()
    try:
        explorer.set_actors({"agent": RememberingActor()})
        for _ in range(12):
            chunk = explorer.update()
            memory.store(chunk)
            counts = chunk.arrays["/observations/observation"][0, :, 0].astype(int)
            opens |= set(counts[chunk.arrays["/masks"][0] == 0.0].tolist())
        batch = memory.sample(SampleSpec(2000, sequence=7), np.random.default_rng(0))
    finally:
        explorer.close()
    return np.array(sorted(opens)), dict(batch)


def test_a_sequence_has_one_row_more_than_steps_and_begins_with_a_real_transition(
    drawn: tuple[Array, dict[str, Array]],
) -> None:
    _, batch = drawn

    assert {array.shape[:2] for key, array in batch.items() if key not in ("/indices", "/generations")} == {(2000, 8)}
    assert (batch["/weights"][:, 0] == 1.0).all() and (batch["/masks"][:, 1] == 1.0).all()


def test_rows_follow_each_other_through_the_ends_of_episodes(drawn: tuple[Array, dict[str, Array]]) -> None:
    opens, batch = drawn
    counts = batch["/observations/observation"][..., 0].astype(int)
    newest = 12 * 9

    np.testing.assert_array_equal(counts, np.minimum(counts[:, :1] + np.arange(8), newest))
    # A row holds no real transition where the next one opens an episode, nor at the newest row.
    expected = (~np.isin(counts + 1, opens) & (counts < newest)).astype(np.float32)
    np.testing.assert_array_equal(batch["/weights"], expected)
    assert (expected[:, 1:-1] == 0.0).any()


def test_the_first_row_has_the_hidden_state_that_the_agent_acted_with(drawn: tuple[Array, dict[str, Array]]) -> None:
    opens, batch = drawn
    observations = batch["/observations/observation"]
    first = observations[:, 0, 0].astype(int)
    opened = opens[np.searchsorted(opens, first, side="right") - 1]

    # Before acting at a row the agent has seen the rows of its episode before that one; where the row opens an
    # episode, what the state holds is of the episode before, and the mask says so.
    looks = batch["/agents/agent/hidden_state/looks"][:, 0]
    inside = batch["/masks"][:, 0] == 1.0
    np.testing.assert_array_equal(looks[inside], (first - opened)[inside])
    totals = np.array([sum(range(start, stop)) for start, stop in zip(opened, first, strict=True)])
    np.testing.assert_array_equal(batch["/agents/agent/hidden_state/sum"][inside, 0, 0], totals[inside])
    ranks = observations[:, 0, 1]
    np.testing.assert_array_equal(batch["/agents/agent/hidden_state/sum"][inside, 0, 1], (looks * ranks)[inside])
    assert inside.any() and not inside.all()


def test_unrolling_from_the_stored_state_gives_the_states_of_later_rows(drawn: tuple[Array, dict[str, Array]]) -> None:
    _, batch = drawn
    looks = batch["/agents/agent/hidden_state/looks"]
    counts = batch["/observations/observation"][..., 0]
    state = looks[:, 0]

    for step in range(7):
        state = np.where(batch["/masks"][:, step] == 1.0, state, 0) + 1
        goes_on = counts[:, step + 1] > counts[:, step]  # up to the newest row
        np.testing.assert_array_equal(looks[goes_on, step + 1], state[goes_on])
        assert goes_on.any()
