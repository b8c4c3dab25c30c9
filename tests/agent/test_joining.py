"""What agents refuse, warn of, or wait for, before anything can be learnt in a training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dqn_agents import MADE, make_dqn
from made_agents import METHODS, SPEC, made

from digideep.agent.a2c.agent import A2CAgent
from digideep.agent.a2c.config import A2CConfig
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.errors import ConfigError
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.spec import EnvSpec
from digideep.types import Chunk, ChunkMeta, Counters, Training
from digideep.utility.statistics import Normalizer

ROLLOUTS: dict[str, Any] = {"ppo": (PPOAgent, PPOConfig), "a2c": (A2CAgent, A2CConfig)}
REPLAYS = ["dqn", *METHODS]
STOCHASTIC = Training(is_deterministic=False, num_envs=4, frames=1000)


def replay_agent(method: str, **fields: Any) -> Any:
    return make_dqn(fields) if method == "dqn" else made(method, **fields)


def use(agent: Any, *, capacity: int, prioritized: bool = False) -> Any:
    """Give an agent another, empty memory."""
    if prioritized:
        memory: Any = PrioritizedBuffer(PrioritizedBufferConfig(capacity=capacity), name="train")
    else:
        memory = RingBuffer(RingBufferConfig(capacity=capacity), name="train")
    agent.replay.memory = agent.memory = memory
    return agent


def step(agent: Any, spec: EnvSpec, *, masks: tuple[float, float], num_envs: int = 2) -> dict[str, float]:
    """Store a chunk of one step, let the agent learn, and return what it monitored."""
    rows = (num_envs, 2)
    arrays: dict[str, Any] = {
        "/masks": np.tile(np.asarray(masks, np.float32), (num_envs, 1)),
        "/rewards": np.ones(rows, np.float32),
        "/terminations": np.zeros(rows, np.float32),
    }
    for slot, array in spec.observations.items():
        arrays[f"/observations/{slot}"] = np.zeros((*rows, *array.shape), array.dtype)
    for slot, array in spec.actions.items():
        key = "/agents/agent/actions" + ("/" + slot if slot else "")
        arrays[key] = np.zeros((*rows, *array.shape), array.dtype)
    agent.memory.store(Chunk(arrays, ChunkMeta(0, 0, 0, 0)))
    agent.told.clear()
    agent.update(Normalizer(), Counters(env_steps=2))
    return dict(agent.told)


@pytest.mark.parametrize("method", [*ROLLOUTS, *REPLAYS])
def test_a_training_without_samples_is_refused_by_every_method(method: str, make_agent: Any, make_spec: Any) -> None:
    if method in ROLLOUTS:
        cls, config = ROLLOUTS[method]
        agent = make_agent(make_spec(), cls=cls, config=config)
    else:
        agent = replay_agent(method)

    agent.join(STOCHASTIC)
    with pytest.raises(ConfigError) as refused:
        agent.join(STOCHASTIC._replace(is_deterministic=True))

    assert str(refused.value).startswith("/explorer/train/deterministic: expected false, ")
    assert "found true; set it to false" in str(refused.value)


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("method", REPLAYS)
def test_a_cycle_without_a_real_transition_takes_no_step_and_the_next_one_does(
    method: str, n_step: int, prioritized: bool
) -> None:
    spec = MADE if method == "dqn" else SPEC
    agent = use(
        replay_agent(method, warm_up=0, batch_size=4, n_step=n_step), capacity=2 * n_step, prioritized=prioritized
    )
    found = []

    for number in range(2 * n_step + 2):
        is_reset = number <= n_step  # so that no real transition is left of what came before
        told = step(agent, spec, masks=(0.0 if is_reset else 1.0, 0.0 if is_reset else 1.0))
        found.append(
            (len(agent.memory) > 0, "update/agent/grad_norm" in told or "update/agent/critic_grad_norm" in told)
        )

    assert found[0] == (False, False)
    assert found[-1] == (True, True)
    assert all(has_any == learns for has_any, learns in found)
    assert agent.steps == agent.updates == sum(learns for _, learns in found)


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_warm_agent_whose_memory_was_dropped_waits_for_a_real_transition(prioritized: bool) -> None:
    agent = use(make_dqn({"warm_up": 0, "batch_size": 4}), capacity=100, prioritized=prioritized)
    step(agent, MADE, masks=(1.0, 1.0))
    state = agent.state_dict()
    resumed = use(make_dqn({"warm_up": 0, "batch_size": 4}), capacity=100, prioritized=prioritized)
    resumed.load_state_dict(state)

    step(resumed, MADE, masks=(1.0, 0.0))

    assert resumed.steps == agent.steps == 1
    step(resumed, MADE, masks=(0.0, 1.0))
    assert resumed.steps == 2


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("method", REPLAYS)
def test_a_memory_in_which_no_environment_has_n_steps_in_a_row_is_refused(method: str, prioritized: bool) -> None:
    fits = use(replay_agent(method, n_step=3), capacity=12, prioritized=prioritized)
    small = use(replay_agent(method, n_step=3), capacity=11, prioritized=prioritized)

    fits.join(STOCHASTIC)
    with pytest.raises(ConfigError) as refused:
        small.join(STOCHASTIC)

    assert str(refused.value) == (
        "/memory/train/capacity: expected at least n_step transitions of each environment, 12, found 11; "
        "raise it, or lower n_step or num_envs"
    )


@pytest.mark.parametrize("method", REPLAYS)
def test_a_warm_up_that_is_longer_than_the_training_is_warned_of_once(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        replay_agent(method, warm_up=1000).join(STOCHASTIC)
        replay_agent(method, warm_up=1001).join(STOCHASTIC)

    assert [record.getMessage() for record in caplog.records] == [
        "/agents/agent/warm_up: expected fewer rows than the training has frames (1000), found 1001: little or nothing "
        "is learnt; lower it, or raise the goal"
    ]


@pytest.mark.parametrize("method", REPLAYS)
def test_a_learning_rate_that_is_zero_at_the_last_update_alone_is_not_warned_of(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    spec = MADE if method == "dqn" else SPEC
    agent = use(replay_agent(method, warm_up=0, batch_size=4, lr_final=0.0, lr_horizon=1), capacity=100)

    with caplog.at_level("WARNING"):
        step(agent, spec, masks=(0.0, 0.0))  # nothing would have been learnt
        step(agent, spec, masks=(1.0, 1.0))
        before = len(caplog.records)
        for _ in range(3):
            step(agent, spec, masks=(1.0, 1.0))

    assert before == 0
    assert [record.getMessage() for record in caplog.records] == [
        "/agents/agent/lr_horizon: the learning rate is 0 from frame 1 on and nothing is learnt any more"
    ]
