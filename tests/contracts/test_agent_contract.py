"""What every agent promises; a new one is added to AGENTS."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from continuous_agents import CONTINUOUS, CONTINUOUS_PARTS, IDLE

from digideep.agent.a2c.agent import A2CAgent
from digideep.agent.a2c.config import A2CConfig
from digideep.agent.dqn.agent import DQNAgent
from digideep.agent.dqn.config import DQNConfig
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig, RecurrentPPOConfig
from digideep.agent.ppo.recurrent import RecurrentPPOAgent
from digideep.agent.rollout.batches import RolloutBatch
from digideep.errors import CheckpointError
from digideep.memory.config import PrioritizedBufferConfig, RingBufferConfig, RollBufferConfig
from digideep.memory.prioritized import PrioritizedBuffer
from digideep.memory.ringbuffer import RingBuffer
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig, QNetworkConfig, RNNConfig
from digideep.model.heads import Evaluation
from digideep.spec import ArraySpec, EnvSpec
from digideep.testing.q_agent import QAgent
from digideep.testing.q_config import QConfig
from digideep.types import Chunk, ChunkMeta, Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

Array = np.ndarray[Any, Any]

ROWS = (9, 4)  # T + 1, N
OBSERVATION = {"observation": ArraySpec("box", (3,), "float32")}
DISCRETE = EnvSpec("Made-v0", OBSERVATION, {"": ArraySpec("discrete", (), "int64", n=(3,))})
BOX = EnvSpec("Made-v0", OBSERVATION, {"": ArraySpec("box", (2,), "float32", low=(-1.0,), high=(1.0,))})


class Halved(PPOAgent):
    def value_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        return 0.5 * super().value_loss(batch, evaluated)


def ppo(spec: EnvSpec, *, cls: type[PPOAgent] = PPOAgent, **fields: Any) -> Callable[[], Any]:
    network = {"hidden_sizes": [8], **fields}

    def make() -> PPOAgent:
        config = PPOConfig(model=node(MLPConfig, **network), minibatch_size=8, lr=0.01, lr_final=0.0, lr_horizon=500)
        memory = RollBuffer(RollBufferConfig(), name="train")
        return cls(
            config, name="agent", spec=spec, memory=memory, device="cpu", seed=3, monitor=lambda name, value: None
        )

    return make


def a2c(spec: EnvSpec, **fields: Any) -> Callable[[], Any]:
    def make() -> A2CAgent:
        model = node(MLPConfig, hidden_sizes=[8])
        config = A2CConfig(model=model, lr=0.01, lr_final=0.0, lr_horizon=500, **fields)
        memory = RollBuffer(RollBufferConfig(), name="train")
        return A2CAgent(
            config, name="agent", spec=spec, memory=memory, device="cpu", seed=3, monitor=lambda name, value: None
        )

    return make


def recurrent(spec: EnvSpec, **network: Any) -> Callable[[], Any]:
    def make() -> RecurrentPPOAgent:
        model = node(RNNConfig, hidden_sizes=[8], units=8, **network)
        schedule = {"lr": 0.01, "lr_final": 0.0, "lr_horizon": 500}
        config = RecurrentPPOConfig(model=model, minibatch_size=8, sequence_length=4, **schedule)
        memory = RollBuffer(RollBufferConfig(), name="train")
        return RecurrentPPOAgent(
            config, name="agent", spec=spec, memory=memory, device="cpu", seed=3, monitor=lambda name, value: None
        )

    return make


def q() -> Callable[[], Any]:
    def make() -> QAgent:
        schedules = {"lr": 0.01, "lr_final": 0.0, "lr_horizon": 30, "epsilon_horizon": 200, "noise_scale": 0.2}
        config = QConfig(
            model=node(MLPConfig, hidden_sizes=[8]), n_step=2, n_updates=3, batch_size=8, target_interval=4,
            **schedules,
        )  # fmt: skip
        memory = RingBuffer(RingBufferConfig(capacity=60), name="train")
        return QAgent(
            config, name="agent", spec=DISCRETE, memory=memory, device="cpu", seed=3, monitor=lambda name, value: None
        )

    return make


def dqn(**network: Any) -> Callable[[], Any]:
    def make() -> DQNAgent:
        model = node(QNetworkConfig, hidden_sizes=[8], noisy=True, **network)
        schedule = {"lr": 0.01, "lr_final": 0.0, "lr_horizon": 500, "warm_up": 32}
        config = DQNConfig(model=model, n_step=2, n_updates=3, batch_size=8, target_interval=4, **schedule)
        memory = PrioritizedBuffer(PrioritizedBufferConfig(capacity=60), name="train")
        return DQNAgent(
            config, name="agent", spec=DISCRETE, memory=memory, device="cpu", seed=3, monitor=lambda name, value: None
        )

    return make


AGENTS: dict[str, Callable[[], Any]] = {
    "ppo, discrete": ppo(DISCRETE),
    "ppo, box": ppo(BOX, activation="gelu"),
    "ppo, own loss": ppo(DISCRETE, cls=Halved, shared=True),
    "ppo, gru": recurrent(DISCRETE, cell="gru"),
    "ppo, lstm in torch": recurrent(BOX, cell="lstm", activation="gelu"),
    "a2c, discrete": a2c(DISCRETE),
    "a2c, box": a2c(BOX, normalize_advantage=True),
    "a2c with adam": a2c(DISCRETE, optimizer="adam"),
    "q": q(),
    "dqn": dqn(dueling=True),
    "dqn, in torch": dqn(activation="gelu"),
    **CONTINUOUS,
}
OPTIMISER = ["optimiser/step", "optimiser/exp_avg", "optimiser/exp_avg_sq"]
PARTS = {
    "ppo": ["policy", "updates", *OPTIMISER, "generators/actions", "generators/shuffle"],
    "a2c": ["policy", "updates", "optimiser/square_avg", "generators/actions"],
    "a2c with adam": ["policy", "updates", *OPTIMISER, "generators/actions"],
    "q": [
        "policy", "target", "updates", *OPTIMISER, "lr_steps", "steps_since_copy", "exploration/rows",
        "exploration/noise", "exploration/generator", "replay",
    ],
    "dqn": [
        "policy", "targets/policy", "updates", "steps", "optimisers/policy/step", "optimisers/policy/exp_avg",
        "optimisers/policy/exp_avg_sq", "exploration/rows", "exploration/generator", "generators/replay",
        "generators/noise",
    ],
    **CONTINUOUS_PARTS,
}  # fmt: skip
"""What a state is made of, by method: the name of an agent up to its first comma."""


def parts_of(name: str) -> list[str]:
    return PARTS[name.partition(",")[0]]


OPTIMISERS = ("optimiser", "optimisers")
DEPTHS = {"optimisers": 2, **dict.fromkeys(("optimiser", "generators", "exploration", "targets"), 1)}
"""How many levels of names a part of the state has below its own."""


def named_parts(state: Mapping[str, Any]) -> list[str]:
    """Return the paths of what a state is made of; what is None there is not needed."""
    found: list[str] = []
    for key, value in state.items():
        parts = [(key, value)]
        for _ in range(DEPTHS.get(key, 0)):
            parts = [(f"{path}/{name}", inner) for path, part in parts for name, inner in part.items()]
        found += [path for path, part in parts if part is not None]
    return found


def replaced_at(path: str, state: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state with what another one has at a path."""
    outer, _, inner = path.partition("/")
    return {**state, outer: replaced_at(inner, state[outer], other[outer]) if inner else other[outer]}


def memory_of(agent: Any) -> Any:
    return agent.replay.memory if hasattr(agent, "replay") else agent._memory


EVERY_PART = [(name, part) for name in AGENTS for part in parts_of(name)]


@pytest.fixture(params=AGENTS)
def make(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return AGENTS[request.param]


def cycle(agent: Any, number: int) -> list[Array]:
    """Act on made-up observations, learn from them, and return everything that was decided."""
    rng = np.random.default_rng(number)
    action = agent.spec.actions[""]
    slab = {
        "/observations/observation": rng.standard_normal((*ROWS, 3)).astype(np.float32),
        "/rewards": rng.standard_normal(ROWS).astype(np.float32),
        "/terminations": (rng.random(ROWS) < 0.1).astype(np.float32),
        "/masks": (rng.random(ROWS) < 0.9).astype(np.float32),
        "/agents/agent/actions": np.zeros((*ROWS, *action.shape), action.dtype),
    }
    actor = agent.actor(Normalizer())
    slab |= {f"/agents/agent/artifacts/{name}": np.zeros(ROWS, np.float32) for name in actor.artifacts}
    first = actor.initial_state(ROWS[1])
    memory = {key: f"/agents/agent/hidden_state/{key}" for key in first or {}}
    slab |= {path: np.zeros((ROWS[0], *first[key].shape), np.float32) for key, path in memory.items()}
    for t in range(ROWS[0] - 1):
        state = {key: slab[path][t] for key, path in memory.items()} or None
        output = actor.act({"observation": slab["/observations/observation"][t]}, state, slab["/masks"][t])
        for key, path in memory.items():
            slab[path][t + 1] = output.hidden_state[key]
        slab["/agents/agent/actions"][t] = output.actions[""]
        for name, numbers in output.artifacts.items():
            slab[f"/agents/agent/artifacts/{name}"][t] = numbers
    memory_of(agent).store(Chunk({k: v.swapaxes(0, 1) for k, v in slab.items()}, ChunkMeta(0, 0, 0, 0)))
    agent.update(Normalizer(), Counters(env_steps=32 * (number + 1)))
    decided = [slab[key] for key in slab if key.startswith("/agents")]
    return [*decided, np.array(actor.policy_version), *agent.policy_state()["policy"].values()]


def copied(agent: Any, make: Callable[[], Any], *, state: Mapping[str, Any] | None = None) -> Any:
    """Return another agent with the state of `agent`, or `state`, and a memory that holds the same."""
    other = make()
    other.load_state_dict(agent.state_dict() if state is None else state)
    memory_of(other).load_state_dict(memory_of(agent).state_dict())
    return other


def equal(one: list[Array], other: list[Array]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        return [leaf for key, value in tree.items() for leaf in leaves(value, f"{path}/{key}")]
    return [(path, tree)]


def test_a_loaded_agent_behaves_as_the_saved_one_from_the_next_call_on(make: Callable[[], Any]) -> None:
    straight = make()
    for number in range(2):
        cycle(straight, number)

    resumed = copied(straight, make)

    for number in range(2, 5):
        assert equal(cycle(resumed, number), cycle(straight, number))


def test_saving_and_loading_in_every_cycle_changes_nothing(make: Callable[[], Any]) -> None:
    straight, other = make(), make()
    for number in range(3):
        expected = cycle(straight, number)
        fresh = copied(other, make)

        assert equal(cycle(fresh, number), expected)
        other = fresh


def test_a_state_holds_plain_data_that_later_updates_do_not_touch(make: Callable[[], Any]) -> None:
    agent = make()
    cycle(agent, 0)
    state = agent.state_dict()
    kept = copy.deepcopy(state)

    cycle(agent, 1)

    for (path, leaf), (_, before) in zip(leaves(state), leaves(kept), strict=True):
        assert type(leaf) in (int, float, str, bytes, np.ndarray, type(None)), path
        assert np.array_equal(leaf, before), path
    (optimiser,) = (part for part in OPTIMISERS if part in kept)
    moments = zip(leaves(agent.state_dict()[optimiser]), leaves(kept[optimiser]), strict=True)
    assert not all(np.array_equal(leaf, before) for (_, leaf), (_, before) in moments)


def test_loading_does_not_hold_on_to_the_state_it_was_given(make: Callable[[], Any]) -> None:
    agent, other = make(), make()
    cycle(agent, 0)
    state = agent.state_dict()
    other.load_state_dict(state)
    memory_of(other).load_state_dict(memory_of(agent).state_dict())
    for _, leaf in leaves(state):
        if isinstance(leaf, np.ndarray):
            leaf[...] = 0

    assert equal(cycle(other, 1), cycle(agent, 1))


@pytest.mark.parametrize(("name", "part"), EVERY_PART)
def test_leaving_any_part_out_of_the_state_would_be_noticed(name: str, part: str) -> None:
    straight, fresh = AGENTS[name](), AGENTS[name]().state_dict()
    for number in range(2):
        cycle(straight, number)

    resumed = copied(straight, AGENTS[name], state=replaced_at(part, straight.state_dict(), fresh))

    assert not all(equal(cycle(resumed, number), cycle(straight, number)) for number in range(2, 5))


@pytest.mark.parametrize("name", AGENTS)
def test_every_part_of_the_state_is_named_above(name: str) -> None:
    idle = IDLE if name in CONTINUOUS else set()
    agent = AGENTS[name]()

    cycle(agent, 0)  # what is drawn with a memory of its own is there then

    assert set(parts_of(name)) - idle == set(named_parts(agent.state_dict())) - idle


def test_a_state_with_a_missing_or_surplus_part_is_refused(make: Callable[[], Any]) -> None:
    agent = make()
    state = agent.state_dict()
    (optimiser,) = (part for part in OPTIMISERS if part in state)
    without = {key: value for key, value in state.items() if key != optimiser}
    lame = {**state, optimiser: {"step": 1}}

    for broken in (without, {**state, "colour": 1}, lame):
        with pytest.raises(CheckpointError, match=r"agents.agent.*: expected the parts"):
            agent.load_state_dict(broken)


def test_a_policy_alone_can_be_taken_over_without_optimiser_and_generators(make: Callable[[], Any]) -> None:
    agent, other = make(), make()
    cycle(agent, 0)
    untouched = other.state_dict()

    other.load_policy_state(agent.state_dict())

    loaded = other.state_dict()
    assert equal(list(loaded["policy"].values()), list(agent.state_dict()["policy"].values()))
    for part in loaded.keys() - {"policy", "target", "targets"}:
        for (path, leaf), (_, before) in zip(leaves(loaded[part]), leaves(untouched[part]), strict=True):
            assert np.array_equal(leaf, before), path


def test_published_parameters_are_a_copy_with_their_version(make: Callable[[], Any]) -> None:
    agent = make()
    version, flat = agent.publish()
    before = flat.clone()

    cycle(agent, 0)

    assert torch.equal(flat, before)
    assert (version, agent.publish()[0]) == (0, 1)
    assert not torch.equal(agent.publish()[1], before)


def test_acting_for_evaluation_does_not_depend_on_other_rows_and_draws_nothing_from_the_agent(
    make: Callable[[], Any],
) -> None:
    agent = make()
    cycle(agent, 0)
    before = leaves(agent.state_dict())
    observations = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    actor = agent.actor(Normalizer())

    def draw(rows: slice) -> Array:
        generators = [np.random.default_rng(seed) for seed in range(5)][rows]
        return np.array(actor.act({"observation": observations[rows]}, generators=generators).actions[""])

    whole, part = draw(slice(0, 5)), draw(slice(2, 4))
    actor.act({"observation": observations}, deterministic=True)

    np.testing.assert_array_equal(part, whole[2:4])
    for (path, leaf), (_, old) in zip(leaves(agent.state_dict()), before, strict=True):
        assert np.array_equal(leaf, old), path


def test_agents_say_their_parts_losses_and_path(make: Callable[[], Any]) -> None:
    agent = make()

    assert agent.parts[-1] == "policy"
    assert "value_loss" in {figure for part in agent.parts for figure in agent.figures_of(part)}
    assert agent.loss_names == agent.figures_of(agent.parts[0])
    assert agent.path.partition(":")[0] in ("fused", "packed", "reference")
    output = agent.act({"observation": np.zeros((2, 3), np.float32)})
    assert set(output.artifacts) == set(agent.actor(Normalizer()).artifacts)
    assert all(numbers.shape == (2,) for numbers in output.artifacts.values())
