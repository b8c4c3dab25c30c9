"""What every agent promises; a new one is added to AGENTS."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from digideep.agent.ppo.agent import PPOAgent, PPOState
from digideep.agent.ppo.config import PPOConfig
from digideep.agent.ppo.losses import PPOBatch
from digideep.errors import CheckpointError
from digideep.memory.config import RingBufferConfig, RollBufferConfig
from digideep.memory.ringbuffer import RingBuffer
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig
from digideep.model.heads import Evaluation
from digideep.spec import ArraySpec, EnvSpec
from digideep.testing.q_agent import QAgent, QState
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
    def value_loss(self, batch: PPOBatch, evaluated: Evaluation) -> torch.Tensor:
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


AGENTS: dict[str, Callable[[], Any]] = {
    "ppo, discrete": ppo(DISCRETE),
    "ppo, box": ppo(BOX, activation="gelu"),
    "ppo, own loss": ppo(DISCRETE, cls=Halved, shared=True),
    "q": q(),
}
OPTIMISER = ["optimiser/step", "optimiser/exp_avg", "optimiser/exp_avg_sq"]
PARTS = {
    PPOState: ["policy", "updates", *OPTIMISER, "generators/actions", "generators/shuffle"],
    QState: [
        "policy", "target", "updates", *OPTIMISER, "lr_steps", "steps_since_copy", "exploration/rows",
        "exploration/noise", "exploration/generator", "replay",
    ],
}  # fmt: skip
EVERY_PART = [(name, part) for name in AGENTS for part in PARTS[QState if name.startswith("q") else PPOState]]


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
    for t in range(ROWS[0] - 1):
        output = actor.act({"observation": slab["/observations/observation"][t]}, masks=slab["/masks"][t])
        slab["/agents/agent/actions"][t] = output.actions[""]
        for name, numbers in output.artifacts.items():
            slab[f"/agents/agent/artifacts/{name}"][t] = numbers
    agent._memory.store(Chunk({k: v.swapaxes(0, 1) for k, v in slab.items()}, ChunkMeta(0, 0, 0, 0)))
    agent.update(Normalizer(), Counters(env_steps=32 * (number + 1)))
    decided = [slab[key] for key in slab if key.startswith("/agents")]
    return [*decided, np.array(actor.policy_version), *agent.policy_state()["policy"].values()]


def copied(agent: Any, make: Callable[[], Any], **replaced: Any) -> Any:
    """Return another agent with the state of `agent`, some parts of it replaced, and a memory that holds the same."""
    other = make()
    other.load_state_dict({**agent.state_dict(), **replaced})
    other._memory.load_state_dict(agent._memory.state_dict())
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
        assert type(leaf) in (int, float, str, bytes, np.ndarray), path
        assert np.array_equal(leaf, before), path
    assert not np.array_equal(agent.state_dict()["optimiser"]["step"], kept["optimiser"]["step"])


def test_loading_does_not_hold_on_to_the_state_it_was_given(make: Callable[[], Any]) -> None:
    agent, other = make(), make()
    cycle(agent, 0)
    state = agent.state_dict()
    other.load_state_dict(state)
    other._memory.load_state_dict(agent._memory.state_dict())
    for _, leaf in leaves(state):
        if isinstance(leaf, np.ndarray):
            leaf[...] = 0

    assert equal(cycle(other, 1), cycle(agent, 1))


@pytest.mark.parametrize(("name", "part"), EVERY_PART)
def test_leaving_any_part_out_of_the_state_would_be_noticed(name: str, part: str) -> None:
    straight, fresh = AGENTS[name](), AGENTS[name]().state_dict()
    for number in range(2):
        cycle(straight, number)
    outer, _, inner = part.partition("/")
    replaced = {**straight.state_dict()[outer], inner: fresh[outer][inner]} if inner else fresh[outer]

    resumed = copied(straight, AGENTS[name], **{outer: replaced})

    assert not all(equal(cycle(resumed, number), cycle(straight, number)) for number in range(2, 5))


def test_every_part_of_the_state_is_named_above(make: Callable[[], Any]) -> None:
    found = make().state_dict()

    fields = next(fields for fields in PARTS if set(fields._fields) == set(found))
    nested = {
        f"{outer}/{inner}" for outer in ("optimiser", "generators", "exploration") for inner in found.get(outer, ())
    }
    assert set(PARTS[fields]) == nested | (set(found) - {"optimiser", "generators", "exploration"})


def test_a_state_with_a_missing_or_surplus_part_is_refused(make: Callable[[], Any]) -> None:
    agent = make()
    state = agent.state_dict()
    without = {key: value for key, value in state.items() if key != "optimiser"}
    lame = {**state, "optimiser": {"step": 1}}

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
    for part in loaded.keys() - {"policy", "target"}:
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

    assert agent.parts == ("policy",)
    assert "value_loss" in agent.loss_names
    assert agent.path.partition(":")[0] in ("fused", "packed", "reference")
    assert agent.act({"observation": np.zeros((2, 3), np.float32)}).artifacts["values"].shape == (2,)
