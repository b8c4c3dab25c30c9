"""A memory that keeps each picture once takes what games give, however they are stepped, and gives it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.environment.wrappers.config import AtariPreprocessingConfig, FrameStackConfig
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.spec import ArraySpec
from digideep.types import ActorOutput, SampleSpec
from digideep.utility.node import node

Array = np.ndarray[Any, Any]


class RandomActor:
    """Presses any of the four buttons of Breakout."""

    artifacts: Mapping[str, ArraySpec] = {}
    policy_version = statistics_version = 0

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        return ActorOutput({"": self._rng.integers(4, size=len(observations["observation"]))}, {})


@pytest.mark.parametrize(
    ("backend", "lives", "least"),
    [("single", True, 11), ("native", True, 11), ("envpool", True, 11), ("envpool", False, 2)],
)
def test_lives_and_games_that_end_leave_stacks_that_are_rebuilt_to_the_bit(
    backend: Any, lives: bool, least: int
) -> None:
    pytest.importorskip("ale_py", reason="the extra atari is not installed")
    if backend == "envpool":
        pytest.importorskip("envpool", reason="the extra envpool is not installed")
    env = node(
        EnvConfig,
        model_name="ALE/Breakout-v5",
        wrappers=[
            node(AtariPreprocessingConfig, terminal_on_life_loss=lives, screen_size=42),
            node(FrameStackConfig, n=4),
        ],
    )
    config = ExplorerConfig(env=env, num_envs=2, n_steps=60, backend=backend, exact=False)
    whole = RingBuffer(RingBufferConfig(500), name="train")
    once = RingBuffer(RingBufferConfig(500, frame_stack=4), name="train")
    explorer = Explorer(config, mode="train", seed=5)
    episodes = 0

    try:
        explorer.set_actors({"agent": RandomActor()})
        for _ in range(6):
            chunk = explorer.update()
            episodes += int((chunk.arrays["/masks"][:, 1:] == 0.0).sum())
            whole.store(chunk)
            once.store(chunk)
            expected, found = (m.sample(SampleSpec(64, 3), np.random.default_rng(1)) for m in (whole, once))
            for key in expected.keys() - {"/indices"}:
                assert found[key].tobytes() == expected[key].tobytes(), key
    finally:
        explorer.close()

    assert episodes >= least
