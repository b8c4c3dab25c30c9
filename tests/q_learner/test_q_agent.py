"""What the Q-learner does beyond the contract of agents: warm-up, exploration, noise, target network, refusals."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from digideep.errors import CheckpointError, ConfigError, NonFiniteError, SpaceError
from digideep.memory.config import RingBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.model.config import MLPConfig
from digideep.spec import ArraySpec, EnvSpec
from digideep.testing.q_agent import QAgent
from digideep.testing.q_config import QConfig
from digideep.types import Chunk, ChunkMeta, Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

Array = np.ndarray[Any, Any]

STEPS, ENVS = 8, 4
OBSERVATION = {"observation": ArraySpec("box", (3,), "float32")}
SPEC = EnvSpec("Made-v0", OBSERVATION, {"": ArraySpec("discrete", (), "int64", n=(3,))})
FIELDS: dict[str, Any] = {
    "n_step": 2,
    "n_updates": 3,
    "batch_size": 8,
    "target_interval": 4,
    "lr": 0.01,
    "lr_final": 0.0,
    "lr_horizon": 30,
    "warm_up": 40,
    "epsilon_horizon": 100,
    "noise_scale": 0.2,
}


def made(**fields: Any) -> QAgent:
    config = QConfig(**{"model": node(MLPConfig, hidden_sizes=[8]), **FIELDS, **fields})
    memory = RingBuffer(RingBufferConfig(capacity=60), name="train")
    metrics: dict[str, float] = {}
    agent = QAgent(config, name="agent", spec=SPEC, memory=memory, device="cpu", seed=3, monitor=metrics.__setitem__)
    agent.told = metrics  # type: ignore[attr-defined]
    return agent


def cycle(agent: QAgent, number: int) -> list[Array]:
    """Act on made-up observations, learn from the memory, and return everything that was decided."""
    rng = np.random.default_rng(number)
    rows = (STEPS + 1, ENVS)
    slab = {
        "/observations/observation": rng.standard_normal((*rows, 3)).astype(np.float32),
        "/rewards": rng.standard_normal(rows).astype(np.float32),
        "/terminations": (rng.random(rows) < 0.1).astype(np.float32),
        "/masks": (rng.random(rows) < 0.9).astype(np.float32),
        "/agents/agent/actions": np.zeros(rows, np.int64),
        "/agents/agent/artifacts/values": np.zeros(rows, np.float32),
    }
    actor = agent.actor(Normalizer())
    for t in range(STEPS):
        output = actor.act({"observation": slab["/observations/observation"][t]}, masks=slab["/masks"][t])
        slab["/agents/agent/actions"][t] = output.actions[""]
        slab["/agents/agent/artifacts/values"][t] = output.artifacts["values"]
    agent._memory.store(Chunk({k: v.swapaxes(0, 1) for k, v in slab.items()}, ChunkMeta(0, 0, 0, 0)))  # type: ignore[attr-defined]
    agent.update(Normalizer(), Counters())
    decided = [slab[key] for key in slab if key.startswith("/agents")]
    return [*decided, np.array(actor.policy_version), *agent.policy_state()["policy"].values()]


def save(agent: QAgent) -> tuple[Any, Any]:
    memory: Any = agent._memory
    return copy.deepcopy(agent.state_dict()), copy.deepcopy(memory.state_dict())


def load(agent: QAgent, saved: tuple[Any, Any]) -> None:
    memory: Any = agent._memory
    agent.load_state_dict(saved[0])
    memory.load_state_dict(saved[1])


def equal(one: list[Array], other: list[Array]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        return [leaf for key, value in tree.items() for leaf in leaves(value, f"{path}/{key}")]
    return [(path, tree)]


@pytest.mark.parametrize("cycles", [1, 2, 4])  # inside the warm-up, right after it, and later
def test_a_loaded_q_learner_behaves_as_the_saved_one(cycles: int) -> None:
    straight, resumed = made(), made()
    for number in range(cycles):
        cycle(straight, number)

    load(resumed, save(straight))

    for number in range(cycles, cycles + 4):
        assert equal(cycle(resumed, number), cycle(straight, number))


def test_a_q_state_with_a_missing_or_surplus_part_is_refused() -> None:
    agent = made()
    state = agent.state_dict()

    for broken in (
        {key: value for key, value in state.items() if key != "target"},
        {**state, "colour": 1},
        {**state, "optimiser": {"step": 1}},
        {**state, "exploration": {"rows": 1}},
    ):
        with pytest.raises(CheckpointError, match=r"agents.agent.*: expected the parts"):
            agent.load_state_dict(broken)


def test_the_warm_up_is_acted_at_random_without_learning_and_comes_once() -> None:
    agent, resumed = made(warm_up=2 * STEPS * ENVS), made(warm_up=2 * STEPS * ENVS)
    before = agent.policy_state()["policy"]

    cycle(agent, 0)

    assert agent.told == {"update/agent/epsilon": 1.0, "update/agent/lr": 0.01}  # type: ignore[attr-defined]
    assert equal(list(agent.policy_state()["policy"].values()), list(before.values()))
    cycle(agent, 1)
    assert not equal(list(agent.policy_state()["policy"].values()), list(before.values()))
    load(resumed, save(agent))
    assert resumed.state_dict()["exploration"]["rows"] == 2 * STEPS * ENVS
    cycle(resumed, 2)
    assert resumed.told["update/agent/epsilon"] < 1.0  # type: ignore[attr-defined]


def test_exploration_falls_with_the_rows_acted_on_and_not_below_its_end() -> None:
    agent = made(warm_up=0, epsilon=0.8, epsilon_final=0.1, epsilon_horizon=3 * STEPS * ENVS)
    seen = []

    for number in range(5):
        cycle(agent, number)
        seen.append(agent.told["update/agent/epsilon"])  # type: ignore[attr-defined]

    np.testing.assert_allclose(seen, [0.8 - 0.7 / 3, 0.8 - 1.4 / 3, 0.1, 0.1, 0.1])


def test_noise_remembers_and_begins_anew_with_an_episode() -> None:
    agent = made(noise_rate=0.0, noise_scale=0.1)
    actor = agent.actor(Normalizer())
    observations = {"observation": np.zeros((2, 3), np.float32)}

    noises = []
    for _ in range(3):
        actor.act(observations, masks=np.ones(2, np.float32))
        noises.append(agent.state_dict()["exploration"]["noise"])
    actor.act(observations, masks=np.array([0.0, 1.0], np.float32))
    after = agent.state_dict()["exploration"]["noise"]

    # Without a rate nothing is lost: each step adds to what there was, but for the environment that began anew.
    assert np.abs(noises[2] - noises[1]).max() < 0.5
    assert np.abs(after[0]).max() < 0.5
    agent.load_state_dict(
        {**agent.state_dict(), "exploration": {**agent.state_dict()["exploration"], "noise": noises[0] + 100.0}}
    )
    actor.act(observations, masks=np.array([0.0, 1.0], np.float32))
    began, went_on = agent.state_dict()["exploration"]["noise"]
    assert np.abs(began).max() < 1.0 and (went_on > 99.0).all()


def test_the_target_network_follows_at_its_interval_only() -> None:
    agent = made(warm_up=0, target_interval=5, n_updates=3)

    def behind() -> bool:
        state = agent.state_dict()
        return not equal(list(state["policy"].values()), list(state["target"].values()))

    seen = []
    for number in range(5):
        cycle(agent, number)
        seen.append((agent.state_dict()["steps_since_copy"], behind()))

    assert seen == [(3, True), (1, True), (4, True), (2, True), (0, False)]


def test_a_policy_alone_is_taken_over_for_the_target_too() -> None:
    agent, other = made(warm_up=0), made(warm_up=0)
    cycle(agent, 0)

    other.load_policy_state(agent.policy_state())

    state = other.state_dict()
    for part in ("policy", "target"):
        assert equal(list(state[part].values()), list(agent.policy_state()["policy"].values()))
    assert state["optimiser"]["step"] == 0 and state["exploration"]["rows"] == 0


def test_other_actions_than_one_choice_are_refused_early() -> None:
    spec = SPEC._replace(actions={"arm": ArraySpec("box", (2,), "float32")})
    memory = RingBuffer(RingBufferConfig(), name="train")

    with pytest.raises(SpaceError, match="action space: expected one discrete action, found 'arm' box"):
        QAgent(
            QConfig(model=node(MLPConfig)), name="agent", spec=spec, memory=memory, device="cpu", seed=1,
            monitor=lambda name, value: None,
        )  # fmt: skip
    with pytest.raises(ConfigError, match="QConfig/lr_horizon: expected steps above 0"):
        QConfig(lr_final=0.0)


def test_a_loss_that_is_not_finite_moves_nothing_and_hands_over_its_batch() -> None:
    agent = made(warm_up=0)
    cycle(agent, 0)
    poison: Any = agent._memory
    poison._blocks.ring.arrays["/rewards"][...] = np.inf
    before = agent.state_dict()

    with pytest.raises(
        NonFiniteError, match=r"agents/agent: expected a finite loss, found value_loss \w+.* in update 1"
    ) as caught:
        agent.update(Normalizer(), Counters())

    assert equal(list(agent.state_dict()["policy"].values()), list(before["policy"].values()))
    assert agent.state_dict()["optimiser"]["step"] == before["optimiser"]["step"]
    crash = caught.value.crash_batch  # type: ignore[attr-defined]
    assert crash.arrays["/batch/targets"].shape == (8,) and not np.isfinite(crash.arrays["/batch/targets"]).all()
    assert crash.meta["agent"] == "agent" and crash.meta["node"]["n_step"] == 2
