"""An environment of noise whose episodes have given lengths, and a recurrent PPO agent that acts in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from digideep.agent.ppo.config import RecurrentPPOConfig
from digideep.agent.ppo.recurrent import RecurrentPPOAgent
from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import RNNConfig
from digideep.types import Chunk, Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

__all__ = ["NoisyEnv", "RecurrentTriangle"]


class NoisyEnv(gymnasium.Env[Any, Any]):
    """Shows three normal numbers, pays another one, and ends after each of `lengths` steps in turn."""

    def __init__(self, lengths: Sequence[int] = (5,), ends: str = "alternate") -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.lengths, self.ends, self.episode, self.steps = tuple(lengths), ends, -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        ended = self.steps >= self.lengths[self.episode % len(self.lengths)]
        terminates = self.ends == "terminated" or (self.ends == "alternate" and self.episode % 2 == 0)
        reward = float(self.np_random.standard_normal())
        return self._observation(), reward, ended and terminates, ended and not terminates, {}

    def _observation(self) -> Any:
        return self.np_random.standard_normal(3).astype(np.float32)


if "Noisy-v0" not in gymnasium.registry:
    gymnasium.register("Noisy-v0", entry_point="noisy_world:NoisyEnv")


class RecurrentTriangle:
    """Explorer, memory and a recurrent PPO agent, in the order in which the engine calls them; `with` closes them."""

    def __init__(
        self,
        model_name: str = "Noisy-v0",
        *,
        n_steps: int = 12,
        num_envs: int = 4,
        env_kwargs: dict[str, Any] | None = None,
        explorer: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        cls: Any = RecurrentPPOAgent,
        **fields: Any,
    ) -> None:
        module = "noisy_world" if model_name == "Noisy-v0" else None
        env = node(EnvConfig, model_name=model_name, from_module=module, env_kwargs=env_kwargs or {})
        config = ExplorerConfig(env=env, num_envs=num_envs, n_steps=n_steps, **(explorer or {}))
        self.explorer = Explorer(config, mode="train", seed=1, allowed=("digideep", "noisy_world"))
        self.memory = RollBuffer(RollBufferConfig(), name="train")
        settings = {"sequence_length": 4, "minibatch_size": 16, **fields}
        self.agent = cls(
            RecurrentPPOConfig(model=node(RNNConfig, **{"hidden_sizes": [8], "units": 6, **(model or {})}), **settings),
            name="agent",
            spec=self.explorer.spec,
            memory=self.memory,
            device="cpu",
            seed=1,
            monitor=lambda name, value: None,
        )
        self.frames = 0

    def __enter__(self) -> RecurrentTriangle:
        return self

    def __exit__(self, *error: object) -> None:
        self.explorer.close()

    def sample(self) -> Chunk:
        """Sample a chunk and keep it."""
        self.explorer.set_actors({"agent": self.agent.actor(Normalizer())})
        chunk = self.explorer.update()
        self.memory.store(chunk)
        self.frames += chunk.meta.env_steps
        return chunk

    def train(self, cycles: int) -> None:
        """Sample and learn."""
        for _ in range(cycles):
            self.sample()
            self.agent.update(Normalizer(), Counters(env_steps=self.frames))
