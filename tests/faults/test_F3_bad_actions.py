"""An action that is not finite, or that does not exist, never reaches `env.step`."""

from __future__ import annotations

import contextlib
from typing import Any

import gymnasium
import numpy as np
import pytest
from failing_parts import Steady, explorer
from gymnasium import spaces

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.errors import NonFiniteError
from digideep.types import ActorOutput
from digideep.utility.node import configure, node


class Choosy(gymnasium.Env[Any, Any]):
    """Takes two boxes, two choices and bits, and raises AssertionError for anything outside of them."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"a": spaces.Box(-1e6, 1e6, (2,), np.float32)})
        self.action_space = spaces.Dict(
            {
                "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "choice": spaces.Discrete(3, start=5),
                "choices": spaces.MultiDiscrete([2, 4]),
                "bits": spaces.MultiBinary(3),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return {"a": np.zeros(2, np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise AssertionError(f"an action outside of the space reached step: {action}")
        return {"a": np.zeros(2, np.float32)}, 0.0, False, False, {}


if "Choosy-v0" not in gymnasium.registry:
    gymnasium.register("Choosy-v0", entry_point=Choosy)

BAD = {
    "box": (np.nan, np.inf, -np.inf),
    "choice": (-1, 3),
    "choices": (-1, 4),
    "bits": (-1, 2),
}


class Poisoned(Steady):
    """Acts well for three steps, and then with one bad value in one place."""

    def __init__(self, slot: str, value: float) -> None:
        super().__init__()
        self.slot, self.value = slot, value

    def act(self, observations: Any, *rest: Any, **options: Any) -> ActorOutput:
        n = len(observations["a"])
        actions: dict[str, Any] = {
            "box": np.full((n, 2), 0.9, np.float32),
            "choice": np.full(n, 2),
            "choices": np.ones((n, 2), np.int64),
            "bits": np.ones((n, 3), np.int8),
        }
        if self.calls >= 3:
            actions[self.slot].reshape(n, -1)[-1, -1] = self.value
        self.calls += 1
        zeros = np.zeros(n, np.float32)
        return ActorOutput(actions, {"log_probs": zeros, "values": zeros})


@pytest.mark.parametrize("mode", ["train", "test"])
@pytest.mark.parametrize(("slot", "value"), [(slot, value) for slot, values in BAD.items() for value in values])
def test_F3_a_bad_action_never_reaches_the_environment(slot: str, value: float, mode: Any) -> None:
    ends = {"n_steps": 8} if mode == "train" else {"n_episodes": 2}
    tree = node(ExplorerConfig, env=node(EnvConfig, model_name="Choosy-v0"), num_envs=2, **ends)
    made = Explorer(configure(tree, where="explorer", expected=ExplorerConfig), mode=mode, seed=1)
    made.set_actors({"agent": Poisoned(slot, value)})

    with contextlib.closing(made), pytest.raises(NonFiniteError) as raised:
        made.update() if mode == "train" else made.evaluate()

    assert f"in /agents/agent/actions/{slot} of environment " in str(raised.value)
    assert "nothing was done with it" in str(raised.value)
    assert made._vec.tick == (3 if mode == "train" else 2)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_F3_a_choice_that_does_not_exist_reaches_no_worker(num_workers: int) -> None:
    class Beyond(Steady):
        def act(self, observations: Any, *rest: Any, **options: Any) -> ActorOutput:
            output = super().act(observations, *rest, **options)
            return output._replace(actions={"": output.actions[""] + 2})

    made = explorer(num_workers=num_workers, actor=Beyond())

    with contextlib.closing(made), pytest.raises(NonFiniteError, match="expected one of 0 to 1 in"):
        made.update()
    assert made._vec.tick == 0
