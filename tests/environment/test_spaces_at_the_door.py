"""What an environment gets and gives through a vector environment, for every kind of space, nested as deep as it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import Ended
from gymnasium import spaces

from digideep.environment.check import main as check
from digideep.environment.config import EnvConfig
from digideep.environment.spaces import sample_action
from digideep.environment.vec.serial import SerialVecEnv
from digideep.environment.vec.slab import RESET
from digideep.utility.seeding import generator

DEEP = spaces.Dict(
    {
        "arm": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.Box(-5, 5, (2,), np.int16))),
        "body": spaces.Dict(
            {
                "bits": spaces.MultiBinary([2, 2]),
                "gears": spaces.MultiDiscrete([2, 4], start=[3, 3]),
                "switch": spaces.Box(0, 1, (2,), np.bool_),
            }
        ),
        "wheel": spaces.Box(-2.0, 2.0, (), np.float64),
    }
)
KINDS = {
    "discrete from -2": spaces.Discrete(4, start=-2),
    "box of integers": spaces.Box(-3, 3, (4,), np.int8),
    "box of doubles": spaces.Box(-1.0, np.array([1.0, 2.0]), (2,), np.float64),
    "multi discrete": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi binary": spaces.MultiBinary(5),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Tuple((spaces.MultiBinary(2), spaces.Discrete(3, start=1))))),
    "deep": DEEP,
}


class Echo(gymnasium.Env[Any, Any]):
    """Shows the action that it got."""

    taken: list[Any]

    def __init__(self, kind: str) -> None:
        self.observation_space = self.action_space = KINDS[kind]
        self.taken = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(0)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        return action if type(action) is not int else np.int64(action), 0.0, False, False, {}


@pytest.fixture(autouse=True)
def registered() -> Any:
    gymnasium.register("Echo-v0", Echo)
    yield
    del gymnasium.registry["Echo-v0"]


def form(value: Any) -> Any:
    """Return the structure, types and shapes of an action, its numbers left out."""
    if isinstance(value, Mapping):
        return {key: form(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(form(part) for part in value)
    return (str(value.dtype), value.shape) if isinstance(value, np.ndarray) else "integer"


def form_of(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: form_of(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(form_of(part) for part in space.spaces)
    return "integer" if isinstance(space, spaces.Discrete) else (str(np.dtype(space.dtype)), space.shape)


@pytest.mark.parametrize("kind", KINDS)
def test_actions_arrive_in_the_environments_own_structure_and_type_and_come_back_as_observations(kind: str) -> None:
    vec = SerialVecEnv(EnvConfig("Echo-v0", env_kwargs={"kind": kind}), num_envs=2)
    slab, rng = vec.attach(30), generator(0)
    slab.modes[:] = RESET
    vec.reset(0)
    slab.modes[:] = 0
    single = {"": "observation"}
    for t in range(30):
        for slot, raw in slab.actions.items():
            both = [sample_action(vec.spec.actions, rng)[slot] for _ in range(2)]
            raw[t] = np.concatenate(both)
        vec.step(t)
    taken = [env.unwrapped.taken for env in vec._stepper._envs]
    shown = {slot: slab.observations[single.get(slot, slot)][1:] for slot in slab.actions}
    vec.close()

    for action in (action for actions in taken for action in actions):
        assert form(action) == form_of(KINDS[kind])
        assert KINDS[kind].contains(action)
    for slot, spec in vec.spec.actions.items():
        if spec.kind != "box":
            assert shown[slot].tolist() == slab.actions[slot][:30].tolist(), slot


REFUSED = """
import gymnasium
from gymnasium import spaces

KINDS = {
    "Text": spaces.Text(5),
    "Graph": spaces.Graph(spaces.Discrete(2), None),
    "Sequence": spaces.Sequence(spaces.Discrete(2)),
    "OneOf": spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
}

class Odd(gymnasium.Env):
    observation_space = action_space = spaces.Discrete(2)
    def __init__(self, kind, part):
        odd = spaces.Dict({"plain": spaces.Discrete(2), "odd": KINDS[kind]})
        setattr(self, f"{part}_space", odd)

gymnasium.register("Odd-v0", Odd)
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "odd_spaces.py").write_text(REFUSED)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("odd_spaces", None)
    gymnasium.registry.pop("Odd-v0", None)


@pytest.mark.parametrize("part", ["observation", "action"])
@pytest.mark.parametrize("kind", ["Text", "Graph", "Sequence", "OneOf"])
def test_spaces_that_are_no_numbers_are_refused_by_name_and_place(
    kind: str, part: str, odd: None, capsys: pytest.CaptureFixture[str]
) -> None:
    code = check(["--model", "odd_spaces:Odd-v0", "--env-kwargs", f'{{"kind": "{kind}", "part": "{part}"}}'])

    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"digideep: error: odd_spaces:Odd-v0: {part} space: expected Box, Discrete, MultiDiscrete,")
    assert f"found {kind}(" in err
    assert err.endswith(" in 'odd'; leave it out, or turn it into numbers, by a wrapper in /env/wrappers\n")


def test_a_training_refuses_them_before_there_is_a_session(
    digideep: Callable[..., Ended], tmp_path: Path, odd: None
) -> None:
    sessions = tmp_path / "sessions"

    ended = digideep(
        "--params", "digideep.params.cartpole_ppo", "--session-path", str(sessions), "--set",
        "model_name=odd_spaces:Odd-v0", 'env_kwargs={"kind": "Graph", "part": "observation"}', expect=2,
    )  # fmt: skip

    assert "observation space: expected Box" in ended.err.splitlines()[-1]
    assert not sessions.exists() or list(sessions.iterdir()) == []
