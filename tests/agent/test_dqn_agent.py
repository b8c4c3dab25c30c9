"""What DQN does beyond the contract of agents: warm-up, exploration, targets, priorities, noise, refusals."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from dqn_agents import MADE, make_dqn

from digideep.agent.dqn.policy import epsilon_greedy
from digideep.errors import ConfigError, NonFiniteError, SpaceError
from digideep.model.config import MLPConfig
from digideep.spec import ArraySpec
from digideep.types import Chunk, ChunkMeta, Counters
from digideep.utility.node import node
from digideep.utility.seeding import generator
from digideep.utility.statistics import Normalizer

Array = np.ndarray[Any, Any]

STEPS, ENVS = 8, 4
CHUNK = STEPS * ENVS


def observations(rng: np.random.Generator, *rows: int) -> dict[str, Array]:
    return {"seen": rng.standard_normal((*rows, 3)).astype(np.float32), "kind": rng.integers(4, size=rows)}


def cycle(agent: Any, number: int) -> list[Array]:
    """Act on made-up observations, learn from the memory, and return everything that was decided."""
    rng = np.random.default_rng(number)
    rows = (STEPS + 1, ENVS)
    seen = observations(rng, *rows)
    slab: dict[str, Array] = {
        **{f"/observations/{slot}": array for slot, array in seen.items()},
        "/rewards": rng.standard_normal(rows).astype(np.float32),
        "/terminations": (rng.random(rows) < 0.1).astype(np.float32),
        "/masks": (rng.random(rows) < 0.9).astype(np.float32),
        "/agents/agent/actions": np.zeros(rows, np.int64),
    }
    actor = agent.actor(Normalizer())
    for t in range(STEPS):
        output = actor.act({slot: array[t] for slot, array in seen.items()}, masks=slab["/masks"][t])
        slab["/agents/agent/actions"][t] = output.actions[""]
    agent._memory.store(Chunk({k: v.swapaxes(0, 1) for k, v in slab.items()}, ChunkMeta(0, 0, 0, 0)))
    agent.told.clear()
    agent.update(Normalizer(), Counters(env_steps=CHUNK * (number + 1)))
    return [slab["/agents/agent/actions"], *agent.policy_state()["policy"].values()]


def equal(one: list[Array], other: list[Array]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def copied(agent: Any, other: Any) -> Any:
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    other._memory.load_state_dict(copy.deepcopy(agent._memory.state_dict()))
    return other


def test_the_warm_up_is_acted_at_random_without_learning_and_comes_once() -> None:
    options = {"warm_up": 2 * CHUNK, "epsilon_horizon": 100, "batch_size": 8}
    agent, resumed = make_dqn(options), make_dqn(options)
    before = list(agent.policy_state()["policy"].values())

    cycle(agent, 0)

    assert agent.told == {"update/agent/epsilon": 1.0, "update/agent/lr": 1e-3}
    assert equal(list(agent.policy_state()["policy"].values()), before)
    cycle(agent, 1)
    assert not equal(list(agent.policy_state()["policy"].values()), before)
    copied(agent, resumed)
    assert resumed.exploration.rows == 2 * CHUNK
    assert equal(cycle(resumed, 2), cycle(agent, 2))
    assert resumed.told["update/agent/epsilon"] == pytest.approx(1.0 - 0.95 * 0.32)


def test_a_warm_up_and_a_learning_rate_that_has_reached_zero_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    agent = make_dqn({"warm_up": 2 * CHUNK, "batch_size": 8, "lr_final": 0.0, "lr_horizon": 4 * CHUNK})

    with caplog.at_level("INFO"):
        for number in range(5):
            cycle(agent, number)

    assert [(record.levelname, record.getMessage().removeprefix("/agents/agent/")) for record in caplog.records] == [
        ("INFO", "warm_up: the first 64 rows are acted at random, and nothing is learnt before they are over"),
        ("WARNING", "lr_horizon: the learning rate is 0 from frame 128 on and nothing is learnt any more"),
    ]


def test_the_share_of_random_actions_falls_over_its_part_of_the_horizon() -> None:
    fields = {"epsilon": 0.8, "epsilon_final": 0.1, "epsilon_horizon": 12 * CHUNK, "epsilon_fraction": 0.25}
    agent = make_dqn({"warm_up": CHUNK, "batch_size": 4, **fields})
    seen = []

    for number in range(5):
        cycle(agent, number)
        seen.append(agent.told["update/agent/epsilon"])

    np.testing.assert_allclose(seen, [0.8, 0.8 - 0.7 / 3, 0.8 - 1.4 / 3, 0.1, 0.1])


def test_one_number_decides_whether_an_action_is_random_and_which() -> None:
    draws = np.array([0.0, 0.1, 0.19, 0.2, 0.7])

    found = epsilon_greedy(draws, np.array([9, 9, 9, 9, 9]), epsilon=0.2, count=4)

    assert found.tolist() == [0, 2, 3, 9, 9]
    assert epsilon_greedy(np.array([0.0, np.nextafter(1, 0)]), None, epsilon=1.0, count=3).tolist() == [0, 2]
    assert epsilon_greedy(np.array([0.5, 1e-31]), np.array([9, 9]), epsilon=1e-30, count=4).tolist() == [9, 0]
    many = epsilon_greedy(np.random.default_rng(1).random(40_000), np.full(40_000, 3), epsilon=0.5, count=4)
    np.testing.assert_allclose(np.bincount(many) / 40_000, [0.125, 0.125, 0.125, 0.625], atol=0.01)


def test_exploring_takes_the_best_action_in_its_share_of_rows() -> None:
    agent = make_dqn({"warm_up": 0, "epsilon": 0.3, "epsilon_final": 0.3})
    seen = observations(np.random.default_rng(1), 6000)
    actor = agent.actor(Normalizer())

    found, best = actor.act(seen).actions[""], actor.act(seen, deterministic=True).actions[""]

    assert (found == best).mean() == pytest.approx(0.7 + 0.3 / 3, abs=0.03)
    assert best.tolist() == actor.values(seen).argmax(axis=1).tolist()
    assert agent.exploration.rows == 6000


@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_the_target_network_moves_at_its_interval_only(tau: float) -> None:
    agent = make_dqn({"warm_up": 0, "target_interval": 5, "tau": tau, "n_updates": 3, "batch_size": 8})
    target = agent.targets["policy"].state_dict()
    seen = []

    for number in range(5):
        before = {name: value.clone() for name, value in target.items()}
        cycle(agent, number)
        seen.append((agent.steps, not all(torch.equal(value, before[name]) for name, value in target.items())))

    assert seen == [(3, False), (6, True), (9, False), (12, True), (15, True)]
    own = agent.network.state_dict()
    is_copy = all(torch.equal(value, own[name]) for name, value in target.items())
    assert is_copy == (tau == 1.0)  # the fifteenth step was the last one and a move


def test_priorities_are_the_errors_raised_to_the_exponent_of_the_schedule() -> None:
    fields = {"priority_alpha": 0.8, "priority_alpha_final": 0.4, "priority_horizon": 4 * CHUNK}
    agent = make_dqn({"warm_up": 0, "batch_size": 8, "priority_epsilon": 0.01, **fields}, prioritized=True)
    cycle(agent, 0)
    errors, drawn, told = [], [], []
    gradients, draw, tell = agent.gradients, agent.replay.draw, agent.replay.update_priorities
    agent.gradients = lambda *args: errors.append(gradients(*args)) or errors[-1]
    agent.replay.draw = lambda *args, **named: drawn.append((draw(*args, **named), named)) or drawn[-1][0]
    agent.replay.update_priorities = lambda *args: told.append(args[1]) or tell(*args)

    cycle(agent, 1)

    ((transitions, named),) = drawn
    assert named == {"beta": pytest.approx(0.4 + 0.6 / 2)}
    expected = (np.abs(errors[0].priorities) + 0.01) ** 0.6
    np.testing.assert_allclose(told[0], expected, rtol=1e-6)
    assert transitions.importance.max() == 1.0 and transitions.importance.min() < 1.0
    leaves = agent._memory._tree.leaves[transitions.indices % agent._memory._blocks.ring.flat_size]
    last = {index: i for i, index in enumerate(transitions.indices.tolist())}
    for index, leaf in zip(transitions.indices.tolist(), leaves, strict=True):
        assert leaf == pytest.approx(expected[last[index]])


def test_what_surprises_more_is_drawn_more_often() -> None:
    fields = {"warm_up": 0, "batch_size": 256, "n_updates": 4, "priority_alpha": 1.0, "lr": 0.0}
    agent = make_dqn(fields, prioritized=True)
    for number in range(3):
        cycle(agent, number)
    transitions = agent.replay.draw(256, Normalizer(), beta=1.0)

    errors = np.abs(agent.gradients(agent.make_batch(transitions)).priorities)

    # With exponent 1 the weights undo what priorities do to draws: they give the mean over the whole memory.
    weights = transitions.importance / transitions.importance.sum()
    assert errors.mean() > 1.2 * errors.dot(weights)


def test_noise_is_another_at_each_step_and_for_each_environment_but_not_in_a_test() -> None:
    agent = make_dqn({"warm_up": 0, "noisy": True, "noisy_deviation": 5.0})
    same = {slot: np.repeat(array, 300, axis=0) for slot, array in observations(np.random.default_rng(1), 1).items()}
    actor = agent.actor(Normalizer())

    first, second = actor.act(same).actions[""], actor.act(same).actions[""]
    tested = actor.act(same, deterministic=True).actions[""]

    assert len(set(first.tolist())) == 3
    assert (first != second).any()
    assert len(set(tested.tolist())) == 1
    assert "update/agent/epsilon" not in agent.told


def test_noise_learns_with_new_numbers_at_each_gradient_step() -> None:
    agent = make_dqn({"warm_up": 0, "noisy": True, "batch_size": 8})
    cycle(agent, 0)
    transitions = agent.replay.draw(8, Normalizer())
    expected = generator(3, "agents", "agent", "noise").standard_normal((2, 3, agent.noise_size), dtype=np.float32)

    noise = agent.make_batch(transitions).noise

    np.testing.assert_array_equal(noise, expected[1, 0])
    assert agent.state_dict()["generators"].keys() == {"replay", "noise"}


@pytest.mark.parametrize("options", [{"epsilon_final": 0.5}, {"noisy": True, "noisy_deviation": 5.0, "dueling": True}])
def test_sampled_evaluation_draws_from_the_generators_it_is_given(options: dict[str, Any]) -> None:
    agent = make_dqn({"hidden_sizes": [64, 64], **options})
    actor, seen = agent.actor(Normalizer()), observations(np.random.default_rng(1), 64)
    rows = agent.exploration.rows

    def draw(chosen: slice) -> Array:
        generators = [np.random.default_rng(i) for i in range(64)[chosen]]
        return actor.act({slot: array[chosen] for slot, array in seen.items()}, generators=generators).actions[""]

    whole = draw(slice(None))

    np.testing.assert_array_equal(draw(slice(5, 9)), whole[5:9])
    assert (whole != actor.act(seen, deterministic=True).actions[""]).any()
    assert agent.exploration.rows == rows


@pytest.mark.parametrize(
    ("actions", "found"),
    [
        ({"": ArraySpec("box", (2,), "float32")}, r"box of shape \(2,\)"),
        ({"": ArraySpec("multi_discrete", (2,), "int64", n=(3, 2))}, r"multi_discrete of shape \(2,\)"),
        ({"": ArraySpec("multi_binary", (3,), "int8")}, r"multi_binary of shape \(3,\)"),
        (
            {"arm": MADE.actions[""], "leg": MADE.actions[""]},
            r"discrete of shape \(\) in 'arm', discrete of shape \(\) in 'leg'",
        ),
        ({}, "none"),
    ],
)
def test_other_actions_than_one_choice_are_refused_by_name(actions: dict[str, ArraySpec], found: str) -> None:
    with pytest.raises(SpaceError, match=f"^action space: expected one discrete action for DQN, found {found}"):
        make_dqn(spec=MADE._replace(actions=actions))


def test_one_choice_may_have_a_name() -> None:
    agent = make_dqn(spec=MADE._replace(actions={"gear": MADE.actions[""]}))

    output = agent.act(observations(np.random.default_rng(1), 2))

    assert output.actions["gear"].shape == (2,)


def test_a_network_of_another_method_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"/agents/agent/model: expected forward to return floats \(3, 3\).*tuple"):
        make_dqn({"model": node(MLPConfig)})


@pytest.mark.parametrize("options", [{}, {"noisy": True, "dueling": True}])
def test_a_loss_that_is_not_finite_moves_nothing_and_hands_over_a_batch_that_gives_it_again(
    options: dict[str, Any],
) -> None:
    agent = make_dqn({"warm_up": 0, "batch_size": 8, **options})
    cycle(agent, 0)
    agent._memory._blocks.ring.arrays["/rewards"][...] = np.inf
    before = agent.state_dict()

    with pytest.raises(NonFiniteError, match=r"agents/agent: expected a finite loss, found value_loss inf") as caught:
        agent.update(Normalizer(), Counters())

    assert equal(list(agent.state_dict()["policy"].values()), list(before["policy"].values()))
    assert agent.state_dict()["optimisers"]["policy"]["step"] == before["optimisers"]["policy"]["step"]
    crash = caught.value.crash_batch  # type: ignore[attr-defined]
    assert crash.meta["agent"] == "agent" and crash.meta["part"] == "policy"
    with np.errstate(over="ignore", invalid="ignore"):
        again = agent.gradients(agent.batch_of(crash.arrays), "policy").losses.tolist()
    assert dict(zip(agent.figures_of("policy"), again, strict=True)) == crash.meta["figures"]


def test_a_policy_alone_is_taken_over_for_the_target_too() -> None:
    agent, other = make_dqn({"warm_up": 0, "batch_size": 8}), make_dqn({"warm_up": 0})
    cycle(agent, 0)

    other.load_policy_state(agent.policy_state())

    state = other.state_dict()
    for weights in (state["policy"], state["targets"]["policy"]):
        assert equal(list(weights.values()), list(agent.policy_state()["policy"].values()))
    assert state["optimisers"]["policy"]["step"] == 0 and state["exploration"]["rows"] == 0
