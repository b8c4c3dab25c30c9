"""Agents with real actions and a memory, on made-up transitions or in environments, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from digideep.agent.ddpg.agent import DDPGAgent
from digideep.agent.ddpg.config import DDPGConfig
from digideep.agent.replay.agent import ReplayAgent
from digideep.agent.replay.config import ReplayConfig
from digideep.agent.sac.agent import SACAgent
from digideep.agent.sac.config import SACConfig
from digideep.agent.sac_value.agent import SACValueAgent
from digideep.agent.sac_value.config import SACValueConfig
from digideep.agent.td3.agent import TD3Agent
from digideep.agent.td3.config import TD3Config
from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.model.config import ActorCriticsConfig
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta, Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

Array = np.ndarray[Any, Any]


class Method(NamedTuple):
    """Classes of a method."""

    agent: type[Any]
    config: type[ReplayConfig]


METHODS: dict[str, Method] = {
    "ddpg": Method(DDPGAgent, DDPGConfig),
    "td3": Method(TD3Agent, TD3Config),
    "sac": Method(SACAgent, SACConfig),
    "sac_value": Method(SACValueAgent, SACValueConfig),
}
UNIT = {"low": (-1.0,), "high": (1.0,)}
SPEC = EnvSpec(
    "Made-v0",
    {"seen": ArraySpec("box", (3,), "float32"), "goal": ArraySpec("box", (2,), "float32")},
    {"": ArraySpec("box", (2,), "float32", **UNIT)},
)


def made(
    method: str,
    *,
    cls: type[Any] | None = None,
    spec: EnvSpec = SPEC,
    model: Mapping[str, Any] | None = None,
    prioritized: bool = False,
    seed: int = 3,
    dtype: torch.dtype = torch.float32,
    **fields: Any,
) -> Any:
    """Return an agent with an empty memory of 200 transitions as `memory`, and what it monitors as `told`."""
    agent, config = METHODS[method]
    network = node(ActorCriticsConfig, **{"hidden_sizes": [8, 8], **(model or {})})
    memory: Any = RingBuffer(RingBufferConfig(capacity=200), name="train")
    if prioritized:
        memory = PrioritizedBuffer(PrioritizedBufferConfig(capacity=200), name="train")
    told: dict[str, float] = {}
    defaults = {"batch_size": 16, "warm_up": 0, "lr": 1e-3}
    with default_dtype(dtype):
        built = (cls or agent)(
            config(model=network, **{**defaults, **fields}),
            name="agent",
            spec=spec,
            memory=memory,
            device="cpu",
            seed=seed,
            monitor=told.__setitem__,
        )
    built.memory, built.told = memory, told
    return built


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Make networks of another dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def fill(agent: ReplayAgent, *, seed: int = 0, num_envs: int = 4, n_steps: int = 20) -> None:
    """Store a chunk of made-up transitions in the agent's memory."""
    rng = np.random.default_rng(seed)
    rows = (num_envs, n_steps + 1)
    arrays: dict[str, Array] = {
        "/masks": (rng.random(rows) > 0.15).astype(np.float32),
        "/rewards": rng.standard_normal(rows).astype(np.float32),
        "/terminations": (rng.random(rows) < 0.2).astype(np.float32),
    }
    for slot, spec in agent.spec.observations.items():
        arrays[f"/observations/{slot}"] = rng.standard_normal((*rows, *spec.shape)).astype(np.float32)
    for slot, spec in agent.spec.actions.items():
        key = "/agents/agent/actions" + ("/" + slot if slot else "")
        arrays[key] = rng.uniform(-1.0, 1.0, (*rows, *spec.shape)).astype(spec.dtype)
    agent.memory.store(Chunk(arrays, ChunkMeta(0, 0, 0, 0)))  # type: ignore[attr-defined]


def updated(agent: ReplayAgent, updates: int, *, frame: int = 0) -> None:
    """Let an agent learn from its memory."""
    for number in range(updates):
        agent.update(Normalizer(), Counters(env_steps=frame + 8 * number))


def parameters(agent: Any) -> dict[str, Array]:
    """Return every weight of an agent as `part/name`, and of its targets as `target/part/name`."""
    state = agent.state_dict()
    found = {name.replace(".", "/", 1): array for name, array in state["policy"].items()}
    for part, arrays in state["targets"].items():
        found |= {f"target/{part}/{name}": array for name, array in arrays.items()}
    return found


class Loop:
    """Explorer, memory and agent in the order in which the engine calls them; `with` closes the environments."""

    def __init__(self, method: str, env: str, *, num_envs: int = 4, n_steps: int = 16, **options: Any) -> None:
        kwargs = options.pop("env_kwargs", {})
        config = node(EnvConfig, model_name=env, env_kwargs=kwargs, action_transform="rescale")
        self.explorer = Explorer(ExplorerConfig(env=config, num_envs=num_envs, n_steps=n_steps), mode="train", seed=1)
        spec = self.explorer.spec
        unit = {slot: part._replace(**UNIT) for slot, part in spec.actions.items()}
        self.agent = made(method, spec=spec._replace(actions=unit), **options)
        self.frames = 0
        self.returns: list[float] = []

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *error: object) -> None:
        self.explorer.close()

    def cycle(self) -> Chunk:
        """Sample a chunk, keep it, learn; return it."""
        self.explorer.set_actors({"agent": self.agent.actor(Normalizer())})
        chunk = self.explorer.update()
        self.agent.memory.store(chunk)
        self.frames += chunk.meta.env_steps
        self.agent.update(Normalizer(), Counters(env_steps=self.frames))
        return chunk

    def train(self, cycles: int) -> None:
        """Make some cycles."""
        for _ in range(cycles):
            self.cycle()

    def best(self, observations: Any) -> Array:
        """Return the best actions `[B, D]` for rows of observations."""
        output = self.agent.act({"observation": np.asarray(observations, np.float32)}, deterministic=True)
        return np.asarray(output.actions[""])

    def values(self, observations: Any) -> Array:
        """Return the values `[critics, B]` of the best actions there."""
        rows = np.asarray(observations, np.float32)
        with torch.no_grad():
            values = self.agent.networks.critics(
                {"observation": torch.from_numpy(rows)}, torch.from_numpy(self.best(rows))
            )
        return np.asarray(values.numpy())


def on_reference(method: str) -> type[Any]:
    """Return the class of a method with its own losses, written anew so that it learns on the reference path."""
    agent: Any = METHODS[method].agent

    def again(name: str) -> Callable[..., Any]:
        return lambda self, *args: getattr(agent, name)(self, *args)

    return type("OnReference", (agent,), {name: again(name) for name in ("critic_loss", "policy_loss")})
