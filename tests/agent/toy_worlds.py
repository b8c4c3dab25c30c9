"""Worlds whose optimum is known, as functions of numpy arrays, and the smallest training of an agent in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta, Counters
from digideep.utility.statistics import Normalizer

Array = np.ndarray[Any, Any]


class Outcome(NamedTuple):
    """What a step of `N` environments gives, each `[N, ...]`."""

    observations: Array
    rewards: Array
    terminated: Array
    truncated: Array


class Toy(NamedTuple):
    """`N` environments as two functions: first observations, and a step."""

    spec: EnvSpec
    first: Callable[[np.random.Generator, int], Array]
    step: Callable[[np.random.Generator, Array, Array], Outcome]


def train(agent: Any, toy: Toy, *, cycles: int, num_envs: int = 8, n_steps: int = 32) -> None:
    """The triangle in its smallest form, with next-step autoreset."""
    rng = np.random.default_rng(0)
    rows, action = (n_steps + 1, num_envs), toy.spec.actions[""]
    slab = {
        "/observations/observation": np.zeros((*rows, *toy.spec.observations["observation"].shape), np.float32),
        "/rewards": np.zeros(rows, np.float32),
        "/terminations": np.zeros(rows, np.float32),
        "/masks": np.zeros(rows, np.float32),
        "/agents/agent/actions": np.zeros((*rows, *action.shape), action.dtype),
        "/agents/agent/artifacts/log_probs": np.zeros(rows, np.float32),
        "/agents/agent/artifacts/values": np.zeros(rows, np.float32),
    }
    seen = slab["/observations/observation"]
    seen[-1], over = toy.first(rng, num_envs), np.zeros(num_envs, bool)
    for number in range(cycles):
        seen[0], slab["/masks"][0] = seen[-1], slab["/masks"][-1]
        actor = agent.actor(Normalizer())
        for t in range(n_steps):
            output = actor.act({"observation": seen[t]})
            slab["/agents/agent/actions"][t] = output.actions[""]
            for name, numbers in output.artifacts.items():
                slab[f"/agents/agent/artifacts/{name}"][t] = numbers
            outcome = toy.step(rng, seen[t], output.actions[""])
            fresh = toy.first(rng, num_envs)
            seen[t + 1] = np.where(over[:, None], fresh, outcome.observations)
            slab["/rewards"][t] = np.where(over, 0.0, outcome.rewards)
            slab["/terminations"][t] = ~over & outcome.terminated
            slab["/masks"][t + 1] = ~over
            over = ~over & (outcome.terminated | outcome.truncated)
        agent._memory.store(Chunk({k: v.swapaxes(0, 1) for k, v in slab.items()}, ChunkMeta(0, 0, 0, 0)))
        agent.update(Normalizer(), Counters(env_steps=(number + 1) * n_steps * num_envs))


def value(agent: Any, observation: list[float]) -> float:
    return float(
        agent.act({"observation": np.array([observation], np.float32)}, deterministic=True).artifacts["values"][0]
    )


def choices(agent: Any, observations: Array) -> Array:
    return np.array(agent.act({"observation": observations.astype(np.float32)}, deterministic=True).actions[""])


def spec_of(size: int, action: ArraySpec) -> EnvSpec:
    return EnvSpec("Toy-v0", {"observation": ArraySpec("box", (size,), "float32")}, {"": action})


def discrete(n: int) -> ArraySpec:
    return ArraySpec("discrete", (), "int64", n=(n,))


def flags(num_envs: int, value: bool) -> Array:
    return np.full(num_envs, value)


def bandit() -> Toy:
    """Return two arms that pay 1 with chances 0.2 and 0.8; episodes of one step."""

    def step(rng: np.random.Generator, seen: Array, actions: Array) -> Outcome:
        rewards = (rng.random(len(actions)) < np.where(actions == 1, 0.8, 0.2)).astype(np.float32)
        return Outcome(seen, rewards, flags(len(actions), True), flags(len(actions), False))

    return Toy(spec_of(1, discrete(2)), lambda rng, n: np.ones((n, 1)), step)


def identity(action: ArraySpec, reward: Callable[[Array, Array], Array], size: int) -> Toy:
    def first(rng: np.random.Generator, n: int) -> Array:
        if action.kind == "discrete":
            return np.eye(size)[rng.integers(size, size=n)]
        return rng.choice([-1.0, 1.0], size=(n, size))

    def step(rng: np.random.Generator, seen: Array, actions: Array) -> Outcome:
        n = len(seen)
        return Outcome(first(rng, n), reward(seen, actions), flags(n, False), rng.random(n) < 0.1)

    return Toy(spec_of(size, action), first, step)


def chain() -> Toy:
    """Return five states in a row: 1 at the far end, which ends the task, and 0.05 for staying at the near one."""

    def step(rng: np.random.Generator, seen: Array, actions: Array) -> Outcome:
        place = seen.argmax(1)
        nearer = np.clip(place + np.where(actions == 1, 1, -1), 0, 4)
        rewards = np.where(nearer == 4, 1.0, np.where(nearer == 0, 0.05, 0.0))
        return Outcome(np.eye(5)[nearer], rewards, nearer == 4, rng.random(len(seen)) < 0.02)

    return Toy(spec_of(5, discrete(2)), lambda rng, n: np.eye(5)[np.ones(n, int)], step)


def one_state(num_envs: int = 8) -> Toy:
    """Return one state with reward 1, cut by a time limit after five steps: with gamma 0.9 it is worth 10."""
    age = np.zeros(num_envs, int)

    def step(rng: np.random.Generator, seen: Array, actions: Array) -> Outcome:
        nonlocal age
        age = (age + 1) % 6  # five steps of an episode, and the one that resets
        return Outcome(seen, np.ones(num_envs), flags(num_envs, False), age == 5)

    return Toy(spec_of(1, discrete(2)), lambda rng, n: np.ones((n, 1)), step)
