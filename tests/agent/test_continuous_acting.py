"""Actors of methods with real actions: warm start, noise, bounds, spaces, and what only critics may see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Ended
from made_agents import METHODS, SPEC, UNIT, fill, made, updated

from digideep.errors import CheckpointError, ConfigError, NonFiniteError, SpaceError, UsageError
from digideep.spec import ArraySpec
from digideep.types import Counters
from digideep.utility.statistics import Normalizer

EVERY = pytest.mark.parametrize("method", METHODS)


def seen(rows: int, *, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sizes = {"seen": 3, "goal": 2}
    return {slot: rng.standard_normal((rows, size)).astype(np.float32) for slot, size in sizes.items()}


@EVERY
def test_the_first_rows_are_acted_at_random_without_learning_and_not_again_after_a_resume(method: str) -> None:
    agent = made(method, warm_up=12)
    fill(agent)
    before = agent.state_dict()

    first = agent.actor(Normalizer()).act(seen(6)).actions[""]
    updated(agent, 1)

    same = agent.state_dict()
    assert all(np.array_equal(array, before["policy"][name]) for name, array in same["policy"].items())
    assert (same["updates"], same["steps"], same["exploration"]["rows"]) == (0, 0, 6)
    assert not {"update/agent/value_loss", "update/agent/grad_norm"} & agent.told.keys()
    assert "update/agent/lr" in agent.told
    best = agent.act(seen(6), deterministic=True).actions[""]
    assert np.abs(first - best).max() > 0.1 and np.abs(first).max() <= 1.0
    agent.actor(Normalizer()).act(seen(6))
    updated(agent, 1)
    assert agent.state_dict()["updates"] == 1

    resumed = made(method, warm_up=12, seed=99)
    resumed.load_state_dict(agent.state_dict())

    assert resumed.exploration.is_warm
    for other in (agent, resumed):
        other.drew = other.actor(Normalizer()).act(seen(6), masks=np.ones(6, np.float32)).actions[""]
    np.testing.assert_array_equal(resumed.drew, agent.drew)


@pytest.mark.parametrize("method", ["ddpg", "td3"])
def test_a_deterministic_policy_acts_with_noise_in_training_only(method: str) -> None:
    agent = made(method, noise="normal", noise_scale=0.1)
    best = agent.act(seen(500), deterministic=True).actions[""]

    tried = agent.act(seen(500)).actions[""]
    played = agent.actor(Normalizer()).act(seen(500), generators=[np.random.default_rng(0)] * 500).actions[""]

    assert (tried - best).std() == pytest.approx(0.1, rel=0.1)
    np.testing.assert_array_equal(played, best)


@EVERY
def test_the_best_action_is_tanh_of_what_the_policy_gives_first(method: str) -> None:
    agent = made(method)

    best = agent.act(seen(7), deterministic=True).actions[""]

    with torch.no_grad():
        outputs = agent.networks.policy({slot: torch.from_numpy(array) for slot, array in seen(7).items()})
    np.testing.assert_allclose(best, np.tanh(outputs.numpy()[:, :2]), rtol=1e-5, atol=1e-6)


@EVERY
def test_actors_do_not_change_with_later_updates(method: str) -> None:
    agent = made(method)
    fill(agent)
    actor = agent.actor(Normalizer())
    before = actor.act(seen(3), deterministic=True).actions[""]

    updated(agent, 4)

    np.testing.assert_array_equal(actor.act(seen(3), deterministic=True).actions[""], before)
    assert np.abs(agent.act(seen(3), deterministic=True).actions[""] - before).max() > 0.0
    assert (actor.policy_version, agent.actor(Normalizer()).policy_version) == (0, 4)


@EVERY
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_what_only_critics_see_does_not_reach_the_policy(method: str, activation: str) -> None:
    agent = made(method, model={"critic_observations": ["goal"], "activation": activation})
    fill(agent)
    updated(agent, 3)
    one = seen(5)
    other = {**one, "goal": one["goal"] + 7.0}

    tensors = {slot: torch.from_numpy(array).requires_grad_() for slot, array in one.items()}
    agent.networks.policy(tensors).sum().backward()

    assert tensors["goal"].grad is None or not tensors["goal"].grad.any()
    assert tensors["seen"].grad is not None and tensors["seen"].grad.any()
    actions = [agent.act(observations, deterministic=True).actions[""] for observations in (one, other)]
    np.testing.assert_array_equal(actions[0], actions[1])
    values = [
        agent.networks.critics({k: torch.from_numpy(v) for k, v in o.items()}, torch.from_numpy(actions[0])).detach()
        for o in (one, other)
    ]
    assert (values[0] - values[1]).abs().max() > 1e-3


@EVERY
def test_a_slot_that_is_not_there_is_named_with_those_that_are(method: str) -> None:
    with pytest.raises(ConfigError, match=r"critic_observations: expected some of \['goal', 'seen'\], found 'sean'"):
        made(method, model={"critic_observations": ["sean"]})


REFUSED = {
    "discrete": (ArraySpec("discrete", (), "int64", n=(3,)), "found discrete of shape"),
    "multi_discrete": (ArraySpec("multi_discrete", (2,), "int64", n=(3, 2)), "found multi_discrete of shape"),
    "multi_binary": (ArraySpec("multi_binary", (2,), "int8"), "found multi_binary of shape"),
    "a box of integers": (ArraySpec("box", (2,), "int16", **UNIT), "box of shape .* and dtype int16"),
    "a box with other bounds": (
        ArraySpec("box", (2,), "float32", low=(-1.0, -2.0), high=(1.0,)),
        "expected a box within .* for .*, found one from -2 to 1; set /env/action_transform to rescale",
    ),
    "a box without bounds": (ArraySpec("box", (2,), "float32"), "from -inf to inf; use another method, such as PPO"),
    "an empty box": (ArraySpec("box", (0,), "float32", **UNIT), "found box of shape"),
}


@EVERY
@pytest.mark.parametrize("kind", REFUSED)
def test_other_actions_than_boxes_of_real_numbers_are_refused_by_name(method: str, kind: str) -> None:
    spec, message = REFUSED[kind]
    box = ArraySpec("box", (2,), "float32", **UNIT)
    name = {"sac_value": "SAC"}.get(method, method.upper())

    with pytest.raises(SpaceError, match=message) as found:
        made(method, spec=SPEC._replace(actions={"arm": box, "grip": spec}))

    assert str(found.value).startswith("action space: slot 'grip': expected a box ")
    assert f" for {name}, found " in str(found.value)


@EVERY
def test_several_boxes_are_one_vector_and_come_apart_in_their_own_shapes_and_types(method: str) -> None:
    actions = {
        "arm/0": ArraySpec("box", (2, 1), "float64", **UNIT),
        "arm/1": ArraySpec("box", (), "float32", **UNIT),
        "grip": ArraySpec("box", (3,), "float32", **UNIT),
    }
    agent = made(method, spec=SPEC._replace(actions=actions))
    fill(agent)
    updated(agent, 2)

    found = agent.act(seen(4)).actions

    assert agent.vector.size == 6
    assert {slot: (a.shape, a.dtype.name) for slot, a in found.items()} == {
        "arm/0": ((4, 2, 1), "float64"), "arm/1": ((4,), "float32"), "grip": ((4, 3), "float32"),
    }  # fmt: skip
    joined = agent.vector.join(found)
    again = agent.vector.split(joined)
    assert all(np.array_equal(again[slot], array) for slot, array in found.items())


@EVERY
def test_a_policy_that_has_diverged_is_an_error_and_not_an_action(method: str) -> None:
    agent = made(method)
    with torch.no_grad():
        agent.networks.policy.towers.head.bias[0, 0, 1] = torch.nan

    with pytest.raises(NonFiniteError, match="agents/agent: expected finite policy outputs, found nan in row 0"):
        agent.act(seen(2))


def test_noise_that_wanders_does_not_act_in_groups_which_is_said_before_anything_is_trained(
    command: Callable[..., Ended], tmp_path: Path
) -> None:
    argv = ["--params", "digideep.testing.toy_ddpg", "--session-path", str(tmp_path), "--set"]
    groups = ["/explorer/train/act_groups=2", "num_workers=0", "number_epochs=1", "test_win_size=1"]

    refused = command(*argv, *groups, expect=2).err.splitlines()[-1]

    assert refused.startswith(
        "digideep: error: /explorer/train/act_groups: expected 1, since the noise of agent 'agent'"
    )
    assert list(tmp_path.iterdir()) == []
    command(*argv, *groups, "noise=normal")


@EVERY
def test_a_loss_that_is_not_finite_moves_nothing_and_hands_over_its_batch(method: str) -> None:
    agent = made(method)
    fill(agent)
    updated(agent, 2)
    agent.memory._blocks.ring.arrays["/rewards"][...] = np.inf
    before = agent.state_dict()

    with pytest.raises(NonFiniteError, match=r"expected a finite loss, found .* in the part 'critic' of upd") as caught:
        agent.update(Normalizer(), Counters())

    crash = caught.value.crash_batch  # type: ignore[attr-defined]
    after = agent.state_dict()
    if method != "sac_value":  # whose value network has taken its step before
        assert all(np.array_equal(array, before["policy"][name]) for name, array in after["policy"].items())
    assert after["optimisers"]["critic"]["step"] == before["optimisers"]["critic"]["step"]
    assert crash.meta["part"] == "critic" and not np.isfinite(crash.arrays["/batch/targets"]).all()
    batch = agent.batch_of(crash.arrays)
    with np.errstate(all="ignore"):
        again = agent.gradients(batch, "critic").losses.tolist()
    np.testing.assert_array_equal(again, list(crash.meta["figures"].values()))
    with pytest.raises(UsageError, match=r"crash batch: expected an array '/batch/targets', found none"):
        agent.batch_of({k: v for k, v in crash.arrays.items() if k != "/batch/targets"})


@EVERY
def test_a_state_of_another_shape_is_refused(method: str) -> None:
    agent = made(method)
    state = agent.state_dict()

    for broken in (
        {key: value for key, value in state.items() if key != "targets"},
        {**state, "targets": {}},
        {**state, "optimisers": {"policy": state["optimisers"]["policy"]}},
        {**state, "exploration": {"rows": 1}},
    ):
        with pytest.raises(CheckpointError, match=r"agents.agent.*: expected the parts"):
            agent.load_state_dict(broken)


@EVERY
def test_a_policy_alone_is_taken_over_for_the_targets_too(method: str) -> None:
    agent, other = made(method), made(method, seed=5)
    fill(agent)
    updated(agent, 3)

    other.load_policy_state(agent.policy_state())

    state = other.state_dict()
    for part, arrays in state["targets"].items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, agent.state_dict()["policy"][f"{part}.{name}"])
    assert state["updates"] == 0
