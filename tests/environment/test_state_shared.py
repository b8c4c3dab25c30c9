"""Attributes that hold the same object, and maps that are drawn when an environment is made."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from digideep.environment.config import EnvConfig
from digideep.environment.examine import state_difference
from digideep.environment.make import make_env
from digideep.environment.state import capture, obstacle, restore
from digideep.errors import CheckpointError
from digideep.testing import ToyEnv
from digideep.utility.codec import decode, encode

Env = gymnasium.Env[Any, Any]


class Summed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows a running sum that three of its attributes hold: alone, in a list, and in a queue of equal arrays."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.total = np.zeros(4)
        self.held = [self.total]
        self.recent = deque([self.total, self.total], maxlen=2)
        self.notes: dict[str, list[int]] = {"a": []}
        self.newest = self.notes["a"]

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**arguments)
        self.total[:] = 0.0
        self.newest.clear()
        return self._added(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return (self._added(observation), *rest)  # type: ignore[return-value]

    def _added(self, observation: Any) -> Any:
        self.total += observation
        self.newest.append(1)
        return self.held[0] + self.recent[1] + len(self.notes["a"])


class Outer(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Holds what the layer beneath it holds."""

    def __init__(self, env: Summed) -> None:
        super().__init__(env)
        self.borrowed = env.total

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.borrowed *= 0.5
        return self.env.step(action)


class Viewing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Holds rows of an array beside the array."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.buffer = np.zeros((2, 4))
        self.row = self.buffer[0]


class Parted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Holds two parts of an array that have nothing in common."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.first, self.second = np.zeros((2, 4))


class Watching(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Holds the memory of the simulator."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.positions = env.unwrapped.data.qpos


def refusal_without_map(state: Any, kwargs: dict[str, Any]) -> str:
    """Return why a state without its map, as former versions saved it, is refused."""
    layers = [*state["layers"][:-1], {**state["layers"][-1]}]
    held = layers[-1]["attributes"]
    layers[-1]["attributes"] = {key: part for key, part in held.items() if key not in ("P", "desc")}
    with pytest.raises(CheckpointError) as caught:
        restore(make_env(EnvConfig("FrozenLake-v1", env_kwargs=kwargs)), {**state, "layers": layers})
    return str(caught.value)


def summed() -> Env:
    return Summed(make_env(EnvConfig("CartPole-v1")))


def outer() -> Env:
    return Outer(Summed(make_env(EnvConfig("CartPole-v1"))))


@pytest.mark.parametrize("make", [summed, outer])
def test_what_attributes_share_they_share_after_a_restore(make: Any) -> None:
    assert state_difference(make) == ""

    saved, fresh = make(), make()
    saved.reset(seed=3)
    saved.step(1)
    restore(fresh, decode(*encode(capture(saved))))
    layer = fresh if type(fresh) is Summed else fresh.env
    assert layer.held[0] is layer.total
    assert layer.recent[0] is layer.recent[1] is layer.total
    assert layer.notes["a"] is layer.newest
    assert type(fresh) is Summed or fresh.borrowed is layer.total


def test_a_view_of_another_attribute_is_a_reason_for_new_episodes() -> None:
    env = Viewing(ToyEnv())

    assert obstacle(env) == (
        "ToyEnv has no state to save: Viewing.row is a view of Viewing.buffer, which it would not be after a restore; "
        "keep a copy, look at it where it is needed, or write get_state() and set_state(state)"
    )
    env.reset(seed=0)
    assert capture(env) is None


def test_parts_of_an_array_that_do_not_overlap_are_none() -> None:
    env = Parted(ToyEnv())
    env.columns = list(np.zeros((5, 4)).T)  # type: ignore[attr-defined]  # they lie between each other

    assert obstacle(env) == ""


def test_many_shared_objects_and_many_parts_of_an_array_take_no_time() -> None:
    env = Parted(ToyEnv())
    env.cells = [[i] for i in range(20_000)]  # type: ignore[attr-defined]
    env.again = list(env.cells)  # type: ignore[attr-defined]
    env.rows = list(np.zeros((20_000, 3)))  # type: ignore[attr-defined]
    env.reset(seed=0)
    start = time.process_time()

    assert capture(env) is not None
    assert time.process_time() - start < 10.0  # a minute where each is compared with each


def test_an_array_from_elsewhere_is_no_view_of_a_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    env = Parted(ToyEnv())
    env.given = np.from_dlpack(torch.zeros(3))  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)

    assert obstacle(env) == ""


def test_a_view_of_a_simulators_memory_is_a_reason_for_new_episodes() -> None:
    pytest.importorskip("mujoco")
    env = Watching(gymnasium.make("InvertedPendulum-v5"))

    assert "Watching.positions is a view of a simulator's memory" in obstacle(env)


@pytest.mark.parametrize("kwargs", [{"map_name": None}, {"map_name": None, "is_slippery": False}])
def test_a_random_map_is_part_of_the_state(kwargs: dict[str, Any]) -> None:
    make = lambda: make_env(EnvConfig("FrozenLake-v1", env_kwargs=kwargs))  # noqa: E731
    saved, fresh = make(), make()
    saved.reset(seed=1)
    restore(fresh, decode(*encode(capture(saved))))

    assert (fresh.unwrapped.desc == saved.unwrapped.desc).all()  # type: ignore[attr-defined]
    assert fresh.unwrapped.P == saved.unwrapped.P  # type: ignore[attr-defined]
    assert refusal_without_map(capture(saved), kwargs) == "environment state: expected a random map in it, found none"
    assert [fresh.step(a % 4)[:4] for a in range(9)] == [saved.step(a % 4)[:4] for a in range(9)]
