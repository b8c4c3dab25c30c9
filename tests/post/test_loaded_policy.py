"""How observations go in and actions come out, for every kind of space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from digideep.errors import ShapeError
from digideep.post.policy import LoadedPolicy
from digideep.spec import ArraySpec, EnvSpec, spec_from_plain, spec_to_plain
from digideep.types import ActorOutput

Array = np.ndarray[Any, Any]
BOX = ArraySpec("box", (2,), "float32", (-np.inf,), (np.inf,))


class FakeActor:
    """Checks what it is shown against a specification and answers the sum of each row, or counts its calls."""

    artifacts: Mapping[str, ArraySpec] = {}
    policy_version = statistics_version = 0

    def __init__(self, spec: EnvSpec, *, recurrent: bool = False) -> None:
        self.spec, self.recurrent = spec, recurrent
        self.shown: Mapping[str, Array] = {}

    def initial_state(self, num_envs: int) -> Mapping[str, Array] | None:
        return {"count": np.zeros((num_envs, 1), np.float32)} if self.recurrent else None

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        rows = {len(array) for array in observations.values()}
        assert len(rows) == 1
        n = rows.pop()
        for slot, array in observations.items():
            assert array.shape == (n, *self.spec.observations[slot].shape)
            assert str(array.dtype) == self.spec.observations[slot].dtype
        assert masks is not None and masks.tolist() == [1.0] * n
        self.shown = observations
        assert (hidden_state is None) != self.recurrent
        state = {"count": hidden_state["count"] + 1} if hidden_state is not None else None
        value = state["count"][:, 0] if state is not None else np.zeros(n)
        actions = {
            slot: np.broadcast_to(value.reshape((n,) + (1,) * len(spec.shape)), (n, *spec.shape)).astype(spec.dtype)
            for slot, spec in self.spec.actions.items()
        }
        return ActorOutput(actions, {}, state)


def _policy(
    spec: EnvSpec, *, recurrent: bool = False, critic_only: Sequence[str] = ()
) -> tuple[LoadedPolicy, FakeActor]:
    actor = FakeActor(spec, recurrent=recurrent)
    policy = LoadedPolicy(actor, spec=spec, transform="clip", checkpoint="checkpoint-1", critic_only=critic_only)
    return policy, actor


def test_a_discrete_action_is_an_integer_that_begins_where_the_environment_says() -> None:
    policy, _ = _policy(EnvSpec("E", {"observation": BOX}, {"": ArraySpec("discrete", (), "int64", n=(3,), start=5)}))

    one, many = policy.act([0.0, 1.0]), policy.act(np.zeros((2, 2)))

    assert one == 5 and type(one) is int
    assert many.tolist() == [5, 5]


def test_a_discrete_observation_is_counted_from_zero() -> None:
    spec = EnvSpec("E", {"observation": ArraySpec("discrete", (), "int64", n=(4,), start=10)}, {"": BOX})
    policy, actor = _policy(spec)

    assert policy.act(12).shape == (2,)
    assert actor.shown["observation"].tolist() == [2]
    assert policy.act(np.array([10, 13])).shape == (2, 2)
    assert actor.shown["observation"].tolist() == [0, 3]


def test_nested_spaces_go_in_and_come_out_nested() -> None:
    spec = EnvSpec(
        "E",
        {"arm/0": BOX, "arm/1": BOX, "goal": ArraySpec("box", (), "float32")},
        {"move/x": BOX, "move/y": BOX, "tools/0": BOX, "tools/1": ArraySpec("discrete", (), "int64", n=(2,))},
    )
    policy, actor = _policy(spec)

    action = policy.act({"goal": 3.0, "arm": (np.array([1.0, 2.0]), np.array([3.0, 4.0]))})

    assert actor.shown["arm/1"].tolist() == [[3.0, 4.0]]
    assert actor.shown["goal"].tolist() == [3.0]
    assert action["move"].keys() == {"x", "y"}
    assert isinstance(action["tools"], tuple) and action["tools"][1] == 0
    batch = policy.act({"goal": np.zeros(5), "arm": (np.zeros((5, 2)), np.zeros((5, 2)))})
    assert batch["tools"][1].shape == (5,)
    with pytest.raises(ShapeError, match=r"expected the parts \['arm/0', 'arm/1', 'goal'\], found"):
        policy.act({"goal": 3.0})
    with pytest.raises(ShapeError, match="expected shapes"):
        policy.act({"goal": np.zeros(5), "arm": (np.zeros((4, 2)), np.zeros((5, 2)))})


@pytest.mark.parametrize(
    ("observation", "found"),
    [
        ({"image": np.zeros(2), "mission": "go"}, r"a dict with the parts \['image', 'mission'\]"),
        ("left", "a str"),
        ([[0.0], [0.0, 1.0]], "a list"),
        (None, "a NoneType"),
    ],
)
def test_an_observation_that_is_no_array_is_one_line_with_the_way_out(observation: Any, found: str) -> None:
    policy, _ = _policy(EnvSpec("E", {"observation": BOX}, {"": BOX}))

    with pytest.raises(ShapeError, match=rf"numbers of shape \(2,\) in 'observation', found {found}; .*make_env\(\)"):
        policy.act(observation)


def test_what_only_the_critics_see_may_be_left_out() -> None:
    secret = ArraySpec("discrete", (), "int64", n=(3,), start=4)
    spec = EnvSpec("E", {"secret": secret, "seen": BOX}, {"": BOX})
    policy, actor = _policy(spec, critic_only=["secret"])

    policy.act({"seen": [1.0, 2.0]})
    assert actor.shown["secret"].tolist() == [0]
    policy.act({"seen": np.ones((5, 2))})
    assert actor.shown["secret"].tolist() == [0] * 5
    policy.act({"seen": [1.0, 2.0], "secret": 6})
    assert actor.shown["secret"].tolist() == [2]
    for wrong, found in (
        ({"secret": 4}, r"\['secret'\]"),
        ({"seen": 1.0, "x": 1.0}, r"\['seen', 'x'\]"),
        ([1.0], "a list"),
    ):
        with pytest.raises(ShapeError, match=rf"expected the parts \['secret', 'seen'\], found {found};"):
            policy.act(wrong)


def test_a_recurrent_policy_hands_its_state_back() -> None:
    policy, _ = _policy(EnvSpec("E", {"observation": BOX}, {"": BOX}), recurrent=True)

    first, state = policy.act([0.0, 0.0])
    second, state = policy.act([0.0, 0.0], state)
    batch, batch_state = policy.act(np.zeros((3, 2)))

    assert policy.is_recurrent
    assert (first.tolist(), second.tolist()) == ([1.0, 1.0], [2.0, 2.0])
    assert state["count"].tolist() == [[2.0]]
    assert batch.shape == (3, 2) and batch_state["count"].shape == (3, 1)


def test_a_specification_survives_being_plain_data() -> None:
    spec = EnvSpec(
        "Tug-v0",
        {"b": BOX, "a": ArraySpec("multi_discrete", (2, 2), "int64", n=(2, 3, 4, 5), start=1)},
        {"": ArraySpec("box", (2,), "float32", (-1.0, -2.0), (1.0, 2.0))},
        None,
    )

    plain = spec_to_plain(spec)

    assert spec_from_plain(plain) == spec
    assert list(spec_from_plain(plain).observations) == ["b", "a"]
    assert plain["observations"][0]["low"] == ["-inf"]


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2**62]},
        {"shape": [2**20, 2**20]},
        {"shape": [-1]},
        {"n": [2**40]},
        {"kind": "anything"},
        {"shape": 3},
        {"low": ["x"]},
        {"shape": [1] * 17},
    ],
)
def test_a_specification_that_nobody_wrote_is_refused(change: dict[str, Any]) -> None:
    plain = spec_to_plain(EnvSpec("E", {"observation": BOX}, {"": BOX}))
    plain["observations"][0].update(change)

    with pytest.raises(ShapeError, match="env_spec: expected what spec_to_plain writes"):
        spec_from_plain(plain)
