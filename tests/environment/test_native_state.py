"""The state of vector environments: a run that was saved anywhere goes on with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes_native import ALLOWED, COUNTING, Array, Noisy, copied, env_config, explorer, started

from digideep.environment.explorer import Explorer
from digideep.environment.vec.native import NativeVecEnv
from digideep.testing import CountingActor
from digideep.types import Episode


def go_on(sampler: Explorer, actor: Any, chunks: int) -> tuple[list[dict[str, Array]], list[Episode]]:
    sampler.set_actors({"agent": actor})
    return [copied(sampler.update()) for _ in range(chunks)], sampler.episodes()


def loose() -> CountingActor:
    return CountingActor(strict=False)


def cartpole() -> Explorer:
    return explorer("CartPole-v1", num_envs=4, n_steps=3, env={"max_episode_steps": 12})


def counting() -> Explorer:
    return explorer(COUNTING, n_steps=3, kwargs={"lengths": [1, 2, 5], "ends": "alternate"})


def sync() -> Explorer:
    return explorer("NativeCounting-v0", n_steps=3, kwargs={"lengths": [1, 2, 5], "ends": "alternate"})


@pytest.mark.parametrize(
    ("make", "actor"),
    [(cartpole, lambda: Noisy(noise=0.0)), (counting, loose), (sync, loose)],
    ids=["cartpole", "own state", "single ones inside"],
)
def test_a_run_saved_after_any_chunk_goes_on_with_the_same_bits(
    make: Callable[[], Explorer], actor: Callable[[], Any]
) -> None:
    original = make()
    states, chunks, episodes = [], [], []
    for _ in range(14):
        states.append(original.state_dict())
        found, ended = go_on(original, actor(), 1)
        chunks += found
        episodes.append(ended)
    original.close()
    were_over = [any(env["over"] for env in state.get("environments", ())) for state in states]

    for k in range(1, 10):
        resumed = make()
        resumed.load_state_dict(states[k])
        assert resumed.exactness == "exact"
        for later in range(k, 14):
            found, ended = go_on(resumed, actor(), 1)
            for key, expected in chunks[later].items():
                np.testing.assert_array_equal(found[0][key], expected, err_msg=f"{key}, saved at {k}, chunk {later}")
            assert ended == episodes[later]
        resumed.close()
    assert any(were_over[1:10])  # right after the end of an episode, too


def test_a_state_can_be_saved_twice_and_is_not_changed_by_going_on() -> None:
    sampler = cartpole()
    go_on(sampler, Noisy(noise=0.0), 2)
    state = sampler.state_dict()
    record = state["environments"][0]["environment"]
    before = record["own"]["state"].copy()

    go_on(sampler, Noisy(noise=0.0), 2)
    sampler.close()

    np.testing.assert_array_equal(record["own"]["state"], before)
    assert [env["environment"] for env in state["environments"][1:]] == [None, None, None]


@pytest.mark.parametrize(
    ("saved", "loaded", "why"),
    [
        ("single", "native", "expected the state of CartPole-v1 (native), found that of CartPole-v1"),
        ("native", "single", "expected the state of CartPole-v1, found that of CartPole-v1 (native)"),
    ],
)
def test_the_state_of_another_back_end_begins_new_episodes_and_says_so(saved: str, loaded: str, why: str) -> None:
    first = explorer("CartPole-v1", backend=saved)
    go_on(first, Noisy(noise=0.0), 1)
    state = first.state_dict()
    first.close()
    second = explorer("CartPole-v1", backend=loaded)

    second.load_state_dict(state)
    arrays = go_on(second, Noisy(noise=0.0), 1)[0][0]
    second.close()

    assert second.exactness.startswith("resume starts new episodes: ")
    assert why in second.exactness
    np.testing.assert_array_equal(arrays["/masks"][:, 0], 0.0)


def test_other_arguments_are_not_those_of_the_state() -> None:
    first = explorer("CartPole-v1", kwargs={"sutton_barto_reward": True})
    go_on(first, Noisy(noise=0.0), 1)
    state = first.state_dict()
    first.close()
    second = explorer("CartPole-v1")

    second.load_state_dict(state)
    second.close()

    assert "was made with" in second.exactness


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("steps", np.zeros(2, np.int32), "expected steps (3,) of int32, found something else"),
        ("low", "text", "expected a number as low, found something else"),
    ],
)
def test_a_record_of_another_form_is_refused(name: str, value: Any, told: str) -> None:
    vec = started("CartPole-v1")
    states = vec.states()
    states[0]["environment"]["own"][name] = value

    without = vec.load_states(states)
    vec.close()

    assert set(without) == {0, 1, 2}
    assert told in without[0]


def test_one_without_a_state_says_so_and_resumes_with_new_episodes() -> None:
    first = explorer("NativeStateless-v0")
    go_on(first, CountingActor(), 1)
    state = first.state_dict()
    first.close()
    second = explorer("NativeStateless-v0")

    second.load_state_dict(state)
    second.close()

    told = "its vector form StatelessVectorEnv has no get_state() and set_state(state)"
    assert told in first.exactness and told in second.exactness


def test_a_state_that_cannot_be_stored_is_a_failure_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    vec = NativeVecEnv(env_config(COUNTING), num_envs=2, allowed=ALLOWED)
    vec.attach(1)
    monkeypatch.setattr("digideep.testing.CountingVectorEnv.get_state", lambda self: {"handle": object()})

    with pytest.raises(Exception, match=r"environments 0 to 1 .*: get_state\(\)/handle") as caught:
        vec.states()
    vec.close()

    assert type(caught.value).__name__ == "EnvironmentFailure"
