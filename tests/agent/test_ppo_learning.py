"""PPO on environments whose optimum is known, each in about a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta, Counters
from digideep.utility.node import node
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


def made_agent(toy: Toy, **fields: Any) -> PPOAgent:
    config = PPOConfig(**{"model": node(MLPConfig, hidden_sizes=[32]), "minibatch_size": 128, "lr": 3e-3, **fields})
    memory = RollBuffer(RollBufferConfig(), name="train")
    return PPOAgent(
        config, name="agent", spec=toy.spec, memory=memory, device="cpu", seed=1, monitor=lambda name, value: None
    )


def train(agent: PPOAgent, toy: Toy, *, cycles: int, num_envs: int = 8, n_steps: int = 32) -> None:
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
        agent._memory.store(Chunk({k: v.swapaxes(0, 1) for k, v in slab.items()}, ChunkMeta(0, 0, 0, 0)))  # type: ignore[attr-defined]
        agent.update(Normalizer(), Counters(env_steps=(number + 1) * n_steps * num_envs))


def value(agent: PPOAgent, observation: list[float]) -> float:
    return float(
        agent.act({"observation": np.array([observation], np.float32)}, deterministic=True).artifacts["values"][0]
    )


def choices(agent: PPOAgent, observations: Array) -> Array:
    return np.array(agent.act({"observation": observations.astype(np.float32)}, deterministic=True).actions[""])


def spec_of(size: int, action: ArraySpec) -> EnvSpec:
    return EnvSpec("Toy-v0", {"observation": ArraySpec("box", (size,), "float32")}, {"": action})


def discrete(n: int) -> ArraySpec:
    return ArraySpec("discrete", (), "int64", n=(n,))


def flags(num_envs: int, value: bool) -> Array:
    return np.full(num_envs, value)


def test_the_better_arm_of_a_bandit_is_found() -> None:
    def step(rng: np.random.Generator, seen: Array, actions: Array) -> Outcome:
        rewards = (rng.random(len(actions)) < np.where(actions == 1, 0.8, 0.2)).astype(np.float32)
        return Outcome(seen, rewards, flags(len(actions), True), flags(len(actions), False))

    toy = Toy(spec_of(1, discrete(2)), lambda rng, n: np.ones((n, 1)), step)
    agent = made_agent(toy)

    train(agent, toy, cycles=15)

    output = agent.act({"observation": np.ones((500, 1), np.float32)})
    assert (output.actions[""] == 1).mean() > 0.95
    assert abs(value(agent, [1.0]) - 0.8) < 0.1


def identity(action: ArraySpec, reward: Callable[[Array, Array], Array], size: int) -> Toy:
    def first(rng: np.random.Generator, n: int) -> Array:
        if action.kind == "discrete":
            return np.eye(size)[rng.integers(size, size=n)]
        return rng.choice([-1.0, 1.0], size=(n, size))

    def step(rng: np.random.Generator, seen: Array, actions: Array) -> Outcome:
        n = len(seen)
        return Outcome(first(rng, n), reward(seen, actions), flags(n, False), rng.random(n) < 0.1)

    return Toy(spec_of(size, action), first, step)


def test_the_shown_action_is_learnt_for_discrete_actions() -> None:
    toy = identity(discrete(4), lambda seen, actions: (seen.argmax(1) == actions).astype(np.float32), 4)
    agent = made_agent(toy, gamma=0.0)

    train(agent, toy, cycles=25)

    assert choices(agent, np.eye(4)).tolist() == [0, 1, 2, 3]


def test_the_shown_bits_are_learnt_for_multi_binary_and_multi_discrete_actions() -> None:
    observations = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    for action in (ArraySpec("multi_binary", (2,), "int8"), ArraySpec("multi_discrete", (2,), "int64", n=(2, 2))):
        toy = identity(action, lambda seen, actions: ((seen > 0) == (actions == 1)).mean(1), 2)
        agent = made_agent(toy, gamma=0.0)

        train(agent, toy, cycles=25)

        assert choices(agent, observations).tolist() == [[1, 0], [0, 1], [1, 1], [0, 0]]


def test_the_shown_number_is_learnt_for_box_actions() -> None:
    toy = identity(ArraySpec("box", (2,), "float32"), lambda seen, actions: -np.square(actions - 0.5 * seen).sum(1), 2)
    agent = made_agent(toy, gamma=0.0, entropy_coef=0.0, value_clip=None)

    train(agent, toy, cycles=60)

    observations = np.array([[1.0, -1.0], [-1.0, 1.0]])
    np.testing.assert_allclose(choices(agent, observations), 0.5 * observations, atol=0.15)


def test_the_far_end_of_a_chain_of_five_states_is_worth_walking_to() -> None:
    def step(rng: np.random.Generator, seen: Array, actions: Array) -> Outcome:
        place = seen.argmax(1)
        nearer = np.clip(place + np.where(actions == 1, 1, -1), 0, 4)
        rewards = np.where(nearer == 4, 1.0, np.where(nearer == 0, 0.05, 0.0))
        return Outcome(np.eye(5)[nearer], rewards, nearer == 4, rng.random(len(seen)) < 0.02)

    toy = Toy(spec_of(5, discrete(2)), lambda rng, n: np.eye(5)[np.ones(n, int)], step)
    agent = made_agent(toy, gamma=0.9)

    train(agent, toy, cycles=40)

    assert choices(agent, np.eye(5)[:4]).tolist() == [1, 1, 1, 1]
    assert abs(value(agent, [0.0, 0.0, 0.0, 1.0, 0.0]) - 1.0) < 0.15
    assert abs(value(agent, [0.0, 1.0, 0.0, 0.0, 0.0]) - 0.81) < 0.15


def test_a_time_limit_is_no_death_one_state_with_reward_one_is_worth_ten() -> None:
    age = np.zeros(8, int)

    def step(rng: np.random.Generator, seen: Array, actions: Array) -> Outcome:
        nonlocal age
        age = (age + 1) % 6  # five steps of an episode, and the one that resets
        return Outcome(seen, np.ones(8), flags(8, False), age == 5)

    toy = Toy(spec_of(1, discrete(2)), lambda rng, n: np.ones((n, 1)), step)
    agent = made_agent(toy, gamma=0.9, value_clip=None, lr=0.01, max_grad_norm=None)

    train(agent, toy, cycles=60)

    assert abs(value(agent, [1.0]) - 10.0) < 0.5
