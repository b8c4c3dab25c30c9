"""Vector environments with one trait each, and explorers that step them; importable as the module `fakes_native`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from fakes_vec import BoxEnv
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.environment.vec.native import NativeVecEnv
from digideep.environment.vec.slab import RESET, RUN
from digideep.spec import ArraySpec
from digideep.testing import CountingEnv, CountingVectorEnv
from digideep.types import ActorOutput, Chunk
from digideep.utility.node import node

Array = np.ndarray[Any, Any]

ALLOWED = ("digideep", "fakes_native")
COUNTING = "digideep.testing:CountingVector-v0"


class FaultyVectorEnv(CountingVectorEnv):
    """Counts, and does something wrong in call `fault_at` of `step`, from the first of this environment on."""

    made = 0

    def __init__(self, num_envs: int = 1, fault: str = "", fault_at: int = 3, **kwargs: Any) -> None:
        super().__init__(num_envs, check_actions=False, **kwargs)
        FaultyVectorEnv.made += 1
        self.fault, self.fault_at, self.calls, self.closed = fault, fault_at, 0, False
        if fault == "init":
            raise ValueError("no such file: world.xml")

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if self.fault == "reset":
            raise ValueError("the world is\nnot there")
        if self.fault == "reset answer":
            return super().reset(seed=seed)[0]
        return super().reset(seed=seed)

    def step(self, actions: Array) -> Any:
        self.calls += 1
        answer = list(super().step(actions))
        if self.calls != self.fault_at:
            return tuple(answer)
        n = self.num_envs
        wrong: dict[str, tuple[int, Any]] = {
            "nan": (0, np.full((n, 2), [1.0, np.nan], np.float32)),
            "inf reward": (1, np.full(n, np.inf)),
            "large reward": (1, np.full(n, 1e300)),
            "shape": (0, np.zeros((n, 3), np.float32)),
            "dtype": (0, np.zeros((n, 2), np.float64)),
            "type": (0, [0.0] * n),
            "rewards": (1, [0.0] * n),
            "flag": (2, np.zeros(n)),
            "flags": (3, np.zeros(n + 1, bool)),
            "info": (4, None),
            "end": (3, np.ones(n, bool)),
        }
        if self.fault == "step":
            raise KeyError("torque")
        if self.fault == "hang":
            time.sleep(60)
        if self.fault in wrong:
            index, value = wrong[self.fault]
            answer[index] = value
        return tuple(answer)

    def close(self, **kwargs: Any) -> None:
        if self.fault == "close":
            raise ValueError("cannot close")


class SameStepVectorEnv(CountingVectorEnv):
    """Begins the next episode in the step that ended the last one, and cannot do otherwise."""

    def __init__(self, num_envs: int = 1, lengths: Sequence[int] = (5,)) -> None:
        super().__init__(num_envs, lengths, autoreset_mode=AutoresetMode.SAME_STEP)


class TurnedVectorEnv(CountingVectorEnv):
    """Begins the next episode in the same step unless it is told otherwise."""

    def __init__(
        self, num_envs: int = 1, autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP, **kwargs: Any
    ) -> None:
        super().__init__(num_envs, autoreset_mode=autoreset_mode, **kwargs)


class StatelessVectorEnv(VectorEnv[Any, Any, Any]):
    """Has no state that anybody could read."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1) -> None:
        self._inside = CountingVectorEnv(num_envs)
        self.num_envs = num_envs
        self.single_observation_space = self._inside.single_observation_space
        self.single_action_space = self._inside.single_action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._inside.reset(seed=seed)

    def step(self, actions: Array) -> Any:
        return self._inside.step(actions)


class NestedEnv(gymnasium.Env[Any, Any]):
    """Shows what it was given: a Dict of a box, an integer from 3 on and a pair; takes a Tuple of two kinds."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "box": spaces.Box(-9, 9, (2,), np.float64),
                "level": spaces.Discrete(4, start=3),
                "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0, 255, (2, 2), np.uint8))),
            }
        )
        self.action_space = spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-2, 2, (2,), np.float32)))
        self.steps = 0

    def get_state(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._shown(np.zeros(2), 3), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._shown(action[1], int(action[0]) + 2), 0.5, self.steps == 3, False, {"is_success": True}

    def _shown(self, box: Any, level: int) -> dict[str, Any]:
        bits = np.array([self.steps % 2, 1], np.int8)
        return {
            "box": np.asarray(box, np.float64),
            "level": np.int64(level),
            "pair": (bits, np.full((2, 2), self.steps, np.uint8)),
        }


def without_fault(fault: str = "", fault_at: int = 3, **kwargs: Any) -> CountingEnv:
    """Return the single form of a FaultyVectorEnv, which does nothing wrong."""
    return CountingEnv(**kwargs)


def sync_counting(num_envs: int = 1, **kwargs: Any) -> SyncVectorEnv:
    """Return CountingEnvs as Gymnasium steps them one after the other."""
    return SyncVectorEnv([lambda: CountingEnv(**kwargs)] * num_envs)


def sync_box(num_envs: int = 1) -> SyncVectorEnv:
    """Return environments that show the action they were given."""
    return SyncVectorEnv([BoxEnv] * num_envs)


def sync_nested(num_envs: int = 1) -> SyncVectorEnv:
    """Return environments of nested spaces."""
    return SyncVectorEnv([NestedEnv] * num_envs)


_ENTRIES = {
    "Faulty": ("fakes_native:without_fault", "FaultyVectorEnv"),
    "SameStep": ("digideep.testing.environments:CountingEnv", "SameStepVectorEnv"),
    "Turned": ("digideep.testing.environments:CountingEnv", "TurnedVectorEnv"),
    "Stateless": ("digideep.testing.environments:CountingEnv", "StatelessVectorEnv"),
    "Counting": ("digideep.testing.environments:CountingEnv", "sync_counting"),
    "Box": ("fakes_vec:BoxEnv", "sync_box"),
    "Nested": ("fakes_native:NestedEnv", "sync_nested"),
}
for _name, (_single, _vector) in _ENTRIES.items():
    if f"Native{_name}-v0" not in gymnasium.registry:
        gymnasium.register(f"Native{_name}-v0", entry_point=_single, vector_entry_point=f"fakes_native:{_vector}")


def env_config(name: str, *, kwargs: Mapping[str, Any] | None = None, **fields: Any) -> EnvConfig:
    """Return the configuration of one of these environments, or of any other."""
    module = "fakes_native" if name.startswith("Native") else None
    return EnvConfig(model_name=name, from_module=module, env_kwargs=dict(kwargs or {}), **fields)


def started(name: str, *, num_envs: int = 3, n_steps: int = 4, seed: int = 7, **options: Any) -> NativeVecEnv:
    """Return a vector environment in which an episode has begun everywhere."""
    kwargs = {key: options.pop(key) for key in ("step_timeout_s", "forgiven") if key in options}
    vec = NativeVecEnv(env_config(name, **options), num_envs=num_envs, allowed=ALLOWED, **kwargs)
    slab = vec.attach(n_steps)
    slab.next_seeds.fill(seed)
    slab.modes.fill(RESET)
    vec.reset(n_steps)
    slab.modes.fill(RUN)
    return vec


def explorer(
    name: str = COUNTING,
    *,
    kwargs: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | None = None,
    seed: int = 3,
    **fields: Any,
) -> Explorer:
    """Return a training explorer."""
    module = "fakes_native" if name.startswith("Native") else None
    about = node(EnvConfig, model_name=name, from_module=module, env_kwargs=dict(kwargs or {}), **(env or {}))
    config = ExplorerConfig(env=about, **{"num_envs": 3, "n_steps": 6, "backend": "native", **fields})
    return Explorer(config, mode="train", seed=seed, allowed=ALLOWED)


class Noisy:
    """Acts from what it sees, and at random now and then; the same environments and seed give the same actions.

    Args:
        noise: probability of a random action.
        seed: of those.
    """

    def __init__(self, *, noise: float, seed: int = 0) -> None:
        self.artifacts: Mapping[str, ArraySpec] = {}
        self.policy_version = self.statistics_version = 0
        self._noise, self._rng = noise, np.random.default_rng(seed)

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observations: Mapping[str, Array], *_: Any, **__: Any) -> ActorOutput:
        shown = observations["observation"]
        good = (shown[:, 2] + 0.5 * shown[:, 3] > 0).astype(np.int64)
        is_random = self._rng.random(len(shown)) < self._noise
        return ActorOutput({"": np.where(is_random, self._rng.integers(0, 2, len(shown)), good)}, {})


def copied(chunk: Chunk) -> dict[str, Array]:
    """Return what a chunk says, without the fields of its last row that mean nothing."""
    last = {"/rewards", "/terminations"}
    return {
        key: (array[:, :-1] if key in last or key.startswith("/agents") else array).copy()
        for key, array in chunk.arrays.items()
    }
