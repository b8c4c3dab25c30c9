from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digideep.environment.config import EnvConfig
from digideep.environment.examine import Probe, seed_difference, state_difference, state_obstacle
from digideep.environment.spaces import env_spec
from digideep.errors import EnvironmentFailure, NonFiniteError
from digideep.testing import FaultyEnv, ToyEnv


@pytest.mark.parametrize("part", ["position", "steps", "limit", "difficulty"])
def test_every_part_of_a_state_that_is_left_out_is_noticed(part: str) -> None:
    class Leaky(ToyEnv):
        def step(self, action: Any) -> Any:
            self._difficulty += 0.5
            return super().step(action)

        def set_state(self, state: dict[str, Any]) -> None:
            now = super().get_state()
            super().set_state({**state, part: now[part]})

    assert state_difference(Leaky).startswith("saved after ")


def test_a_second_generator_that_is_left_out_is_noticed() -> None:
    class Noisy(ToyEnv):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            if seed is not None:
                self.rng = np.random.default_rng(seed)
            return super().reset(seed=seed)

        def step(self, action: Any) -> Any:
            self._difficulty = float(self.rng.random())
            return super().step(action)

    assert seed_difference(Noisy) == ""
    assert state_difference(Noisy).startswith("saved after 0 steps, then /0/0: array(")


def test_an_environment_that_asks_the_system_for_noise_is_noticed() -> None:
    difference = seed_difference(lambda: FaultyEnv("urandom"))

    assert difference.startswith("/1/0: array(")


def test_an_environment_that_remembers_former_episodes_is_noticed() -> None:
    class Growing(ToyEnv):
        resets = 0

        def reset(self, **kwargs: Any) -> Any:
            self.resets += 1
            self._difficulty = float(self.resets)
            return super().reset(**kwargs)

    assert seed_difference(Growing).startswith("/0/0: array(")
    assert seed_difference(ToyEnv) == ""


def test_a_configuration_is_asked_whether_its_environment_has_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_obstacle(EnvConfig("CartPole-v1")) == ""

    monkeypatch.setattr("digideep.environment.state._BY_ATTRIBUTES", ())
    assert state_obstacle(EnvConfig("CartPole-v1")).startswith("CartPole-v1 has no state to save: ")


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("nan", NonFiniteError, r"'/observations/observation' is nan at step 3 \(first bad index 1\)"),
        ("inf", NonFiniteError, r"'/observations/observation' is inf at step 3 \(first bad index 2\)"),
        ("reward_nan", NonFiniteError, "'/rewards' is nan at step 3"),
        ("shape", EnvironmentFailure, r"expected shape \(3,\) of float32, found \(4,\)"),
        ("dtype", EnvironmentFailure, "found .3,. of float64"),
        ("type", EnvironmentFailure, "found list of 3"),
        ("info", EnvironmentFailure, "info: expected a dict, found NoneType"),
    ],
)
def test_a_probe_finds_what_breaks_the_declaration(fault: Any, error: type[Exception], message: str) -> None:
    env = FaultyEnv(fault, at=3, continuous=True)
    probe = Probe(env, env_spec(env, id="Faulty-v0"))
    probe.reset(seed=1)
    for _ in range(2):
        probe.step({"": np.zeros((1, 2), np.float32)})

    with pytest.raises(error, match=message):
        probe.step({"": np.zeros((1, 2), np.float32)})
