"""Explorer, ring memory and Q-learner in the order in which the engine calls them."""

from __future__ import annotations

from typing import Any

import numpy as np

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.model.config import MLPConfig
from digideep.testing.q_agent import QAgent
from digideep.testing.q_config import QConfig
from digideep.types import Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer


class Triangle:
    """One Q-learner in some environments of digideep.testing; `with` closes them."""

    def __init__(self, model_name: str, *, num_envs: int = 4, n_steps: int = 16, seed: int = 1, **fields: Any) -> None:
        env = node(EnvConfig, model_name=f"digideep.testing:{model_name}")
        self.explorer = Explorer(ExplorerConfig(env=env, num_envs=num_envs, n_steps=n_steps), mode="train", seed=seed)
        self.memory = RingBuffer(RingBufferConfig(capacity=2000), name="train")
        self.metrics: dict[str, float] = {}
        fields.setdefault("model", node(MLPConfig, hidden_sizes=[32]))
        self.agent = QAgent(
            QConfig(**fields),
            name="agent",
            spec=self.explorer.spec,
            memory=self.memory,
            device="cpu",
            seed=seed,
            monitor=self.metrics.__setitem__,
        )
        self.frames = 0

    def __enter__(self) -> Triangle:
        return self

    def __exit__(self, *error: object) -> None:
        self.explorer.close()

    def cycle(self) -> None:
        """Sample a chunk, keep it, learn."""
        self.explorer.set_actors({"agent": self.agent.actor(Normalizer())})
        chunk = self.explorer.update()
        self.memory.store(chunk)
        self.frames += chunk.meta.env_steps
        self.agent.update(Normalizer(), Counters(env_steps=self.frames))

    def train(self, cycles: int) -> None:
        """Make some cycles."""
        for _ in range(cycles):
            self.cycle()

    def choices(self, observations: Any) -> list[int]:
        """Return the best actions for rows of observations."""
        output = self.agent.act({"observation": np.asarray(observations)}, deterministic=True)
        return [int(action) for action in output.actions[""]]

    def value(self, observation: Any) -> float:
        """Return the greatest action value of one observation."""
        output = self.agent.act({"observation": np.asarray([observation])}, deterministic=True)
        return float(output.artifacts["values"][0])
