"""The explorer's state: what goes on to the same bits, and what begins anew."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from fakes_vec import Counter, Follower, explorer

from digideep.environment.explorer import Explorer
from digideep.errors import EnvironmentFailure, UsageError
from digideep.types import Chunk
from digideep.utility.codec import decode, encode


def started(name: str = "Script-v0", *, actor: Any = None, **fields: Any) -> Explorer:
    made = explorer(name, **fields)
    made.set_actors({"agent": actor or Follower()})
    made.reset()
    return made


def copied(chunk: Chunk) -> dict[str, np.ndarray[Any, Any]]:
    return {key: array.copy() for key, array in chunk.arrays.items()}


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as it comes back from a checkpoint."""
    encoded = encode(state)
    restored = decode(json.loads(json.dumps(encoded.json)), {k: v.copy() for k, v in encoded.arrays.items()})
    assert isinstance(restored, dict)
    return restored


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)


@pytest.mark.parametrize(("saved_with", "resumed_with"), [(0, 0), (2, 0), (0, 2)])
def test_a_resumed_explorer_goes_on_to_the_same_bits(saved_with: int, resumed_with: int) -> None:
    straight = started(num_workers=saved_with, kwargs={"lengths": [3, 1, 6]})
    for _ in range(3):
        straight.update()
    straight.episodes()
    state = through_a_file(straight.state_dict())
    expected = [copied(straight.update()) for _ in range(3)]
    expected_episodes = straight.episodes()
    straight.close()

    resumed = explorer(num_workers=resumed_with, kwargs={"lengths": [3, 1, 6]})
    resumed.load_state_dict(state)
    resumed.set_actors({"agent": Follower()})
    assert resumed.exactness == "exact"
    found = [copied(resumed.update()) for _ in range(3)]
    found_episodes = resumed.episodes()
    resumed.close()

    for one, other in zip(expected, found, strict=True):
        assert_equal(one, other)
    assert found_episodes == expected_episodes


def test_saving_twice_gives_the_same_state() -> None:
    made = started("CartPole-v1", actor=Follower())
    made.set_actors({"agent": made._actors["agent"]})
    first = made.state_dict()
    resumed = explorer("CartPole-v1")
    resumed.load_state_dict(through_a_file(first))
    second = resumed.state_dict()
    made.close()
    resumed.close()

    assert json.dumps(encode(first, inline=True).json) == json.dumps(encode(second, inline=True).json)


def test_the_hidden_state_is_part_of_the_state() -> None:
    straight = started(actor=Counter(), kwargs={"lengths": [9]})
    straight.update()
    state = through_a_file(straight.state_dict())
    expected = copied(straight.update())
    straight.close()

    resumed = explorer(kwargs={"lengths": [9]})
    resumed.load_state_dict(state)
    resumed.set_actors({"agent": Counter()})
    found = copied(resumed.update())
    resumed.close()

    np.testing.assert_array_equal(
        found["/agents/agent/artifacts/count"][:, :4], expected["/agents/agent/artifacts/count"][:, :4]
    )


def test_without_a_state_new_episodes_begin_with_seeds_that_are_always_the_same() -> None:
    made = started("NoState-v0", actor=Follower(kind="box"))
    made.update()
    state = through_a_file(made.state_dict())
    reason = made.exactness
    made.close()

    resumed = []
    for _ in range(2):
        again = explorer("NoState-v0")
        again.load_state_dict(state)
        again.set_actors({"agent": Follower(kind="box")})
        arrays = copied(again.update())
        resumed.append((arrays["/masks"][:, 0].tolist(), again._slab.seeds.tolist()))
        again.close()

    assert reason.startswith("resume starts new episodes: NoState-v0 has no state to save")
    assert resumed[0] == resumed[1]
    assert resumed[0][0] == [0, 0, 0]
    assert resumed[0][1] != state["environments"][0]["seed"]


def test_the_state_before_the_first_reset_says_so() -> None:
    made = explorer()
    state = through_a_file(made.state_dict())
    made.close()

    again = explorer()
    again.load_state_dict(state)
    again.set_actors({"agent": Follower()})
    masks = again.update().arrays["/masks"][:, 0].tolist()
    again.close()

    assert masks == [0, 0, 0]


def test_a_state_of_other_environments_is_refused() -> None:
    made = started()
    state = made.state_dict()
    made.close()

    again = explorer(num_envs=2)
    with pytest.raises(UsageError, match="num_envs: expected 3 as in the checkpoint, found 2"):
        again.load_state_dict(state)
    again.close()


def test_a_failing_get_state_names_environment_and_worker_and_is_the_reason_for_new_episodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = started(num_envs=2)
    failure = Mock(side_effect=[None, EnvironmentFailure("get_state raised KeyError: 'gone'")])
    monkeypatch.setattr("digideep.environment.vec.stepper.environment_state.capture", failure)

    with pytest.raises(EnvironmentFailure, match=r"environment 1 .*worker 0.*get_state raised KeyError"):
        made.state_dict()

    assert made.exactness == "resume starts new episodes: an environment could not give its state"
    made.close()
