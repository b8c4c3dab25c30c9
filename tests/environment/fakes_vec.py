"""Environments and an actor that say exactly what they are at; importable by workers as the module `fakes_vec`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer, Mode
from digideep.environment.recovery import Supervision
from digideep.errors import CheckpointError, NotReproducibleError
from digideep.spec import ArraySpec
from digideep.types import ActorOutput
from digideep.utility.node import configure, node

Array = np.ndarray[Any, Any]

ALLOWED = ("digideep", "fakes_vec")


class ScriptEnv(gymnasium.Env[Any, Any]):
    """Shows (episode, step, a random number); the reward is 1, or 3 for action 1; lasts `lengths` steps in turn.

    `fault` happens in the step or reset that `fault_at` counts, from the first of this environment on; of steps, in the
    process `only_in` alone where that is not 0.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (3,),
        ends_by: str = "termination",
        fault: str = "",
        fault_at: int = 5,
        mark: str = "",
        stateless: bool = False,
        only_in: int = 0,
    ) -> None:
        self.observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.lengths, self.ends_by, self.mark = list(lengths), ends_by, mark
        self.fault, self.fault_at, self.stateless, self.only_in = fault, fault_at, stateless, only_in
        self.episode, self.step_number, self.total = -1, 0, 0
        self.progress: list[dict[str, Any]] = []
        if fault == "init":
            raise ValueError("no such file: world.xml")
        if fault == "leave init":
            sys.exit(0)
        if fault == "interrupt init":
            raise KeyboardInterrupt

    def get_state(self) -> dict[str, Any]:
        return {"episode": self.episode, "step": self.step_number, "total": self.total}

    def set_state(self, state: Mapping[str, Any]) -> None:
        if self.fault == "elsewhere":
            raise NotReproducibleError("expected to stand where it stood, found it elsewhere")
        if self.fault == "stranger":
            raise CheckpointError("expected the record of an episode, found none")
        if self.fault == "leave set_state":
            sys.exit(0)
        self.episode, self.step_number, self.total = state["episode"], state["step"], state["total"]

    def set_progress(self, progress: dict[str, Any]) -> None:
        self.progress.append(progress)
        if self.fault == "progress":
            raise ValueError("no level 7")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.step_number = 0
        if self.fault == "reset" and self.episode >= self.fault_at:
            raise ValueError("the world is\nnot there")
        if self.fault == "leave reset" and self.episode >= self.fault_at:
            sys.exit(0)
        if self.fault == "interrupt reset" and self.episode >= self.fault_at:
            raise KeyboardInterrupt
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        self.step_number += 1
        self.total += 1
        is_over = self.step_number >= self.lengths[self.episode % len(self.lengths)]
        info = {"metrics": {"height": 0.5 * self.step_number}, "is_success": True} if is_over else {}
        reward = 3.0 if action == 1 else 1.0
        terminated, truncated = is_over and self.ends_by == "termination", is_over and self.ends_by != "termination"
        answer = [self._observation(), reward, terminated, truncated, info]
        if self.fault and self.total == self.fault_at and self.only_in in (0, os.getpid()):
            self._go_wrong(answer)
        return tuple(answer)  # type: ignore[return-value]

    def _observation(self) -> Array:
        return np.array([self.episode, self.step_number, self.np_random.random()], np.float32)

    def _go_wrong(self, answer: list[Any]) -> None:
        wrong: dict[str, tuple[int, Any]] = {
            "nan": (0, np.array([0, np.nan, 0], np.float32)),
            "inf reward": (1, float("inf")),
            "shape": (0, np.zeros(4, np.float32)),
            "dtype": (0, np.zeros(3, np.float64)),
            "type": (0, [0.0, 0.0, 0.0]),
            "reward": (1, np.zeros(1)),
            "no reward": (1, None),
            "flag": (2, "yes"),
            "info": (4, None),
        }
        if self.fault in wrong:
            index, value = wrong[self.fault]
            answer[index] = value
        elif self.fault == "metrics":
            answer[2], answer[4] = True, {"metrics": {"height": "tall"}}
        elif self.fault == "step":
            raise KeyError("torque")
        elif self.fault == "hang":
            if self.mark:
                Path(self.mark).touch()
            time.sleep(60)
        elif self.fault == "leave step":
            sys.exit(0)
        elif self.fault == "interrupt step":
            raise KeyboardInterrupt
        elif self.fault == "exit":
            os._exit(3)
        elif self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault == "child":
            process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            Path(self.mark).write_text(str(process.pid))
        elif self.fault == "print":
            print("x" * 50)
        elif self.fault == "print and die":
            print("torque \u2192 \u221e")
            os._exit(3)

    def close(self) -> None:
        if self.fault == "leave close":
            sys.exit(0)
        if self.fault == "close":
            Path(self.mark).mkdir(exist_ok=True)
            (Path(self.mark) / f"{os.getpid()}-{id(self)}").touch()


class BoxEnv(gymnasium.Env[Any, Any]):
    """Takes a box; shows the float64 action it was given."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-10, 10, (2,), np.float64)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.asarray(action, np.float64), 0.25, False, False, {}


class NoStateEnv(BoxEnv):
    """Holds what no file can."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = object()


class DrawingEnv(gymnasium.Env[Any, Any]):
    """Shows what it draws from the global generators; a quiet one draws nothing."""

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._seen(), 1.0, False, False, {}

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: Any) -> None:
        pass

    def _seen(self) -> Any:
        return np.zeros(2, np.float32) if self.quiet else np.array([np.random.rand(), random.random()], np.float32)


class TracedEnv(ScriptEnv):
    """Tells at the end of each episode how many bytes the process that steps it has allocated since it was made."""

    def __init__(self, lengths: Sequence[int] = (3,)) -> None:
        tracemalloc.start()
        super().__init__(lengths)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated:
            info = {"metrics": {"bytes": tracemalloc.get_traced_memory()[0]}}
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        tracemalloc.stop()
        super().close()


class Follower:
    """An actor that checks that every observation is the next one of its episode, and cycles through the actions.

    It draws nothing: what it does depends on the observation, so that every way to step it gives the same.
    """

    def __init__(self, *, kind: str = "script") -> None:
        self.artifacts: Mapping[str, ArraySpec] = {
            "log_probs": ArraySpec("box", (), "float32"),
            "values": ArraySpec("box", (), "float32"),
        }
        self.policy_version = 3
        self.statistics_version = 4
        self.kind = kind
        self.last: Array | None = None
        self.calls: list[bool] = []

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        shown = observations["observation"]
        self.calls.append(deterministic)
        if self.kind == "box":
            actions: Array = np.full((len(shown), 2), 4.0, np.float32)
        elif generators is not None and not deterministic:
            actions = np.array([rng.integers(0, 2) for rng in generators])
        else:
            actions = (shown[:, 0] + shown[:, 1]).astype(np.int64) % 2
            self._follow(shown, masks)
        values = shown[:, 1].astype(np.float32)
        return ActorOutput({"": actions}, {"log_probs": -values, "values": values})

    def _follow(self, shown: Array, masks: Array | None) -> None:
        if self.last is not None and masks is not None and self.last.shape == shown.shape:
            for before, now, mask in zip(self.last, shown, masks, strict=True):
                expected = (before[0], before[1] + 1) if mask else (before[0] + 1, 0)
                assert (now[0], now[1]) == expected, (before, now, mask)
        self.last = shown.copy()


class Counter:
    """A recurrent actor: its hidden state counts the steps since the mask was 0."""

    def __init__(self) -> None:
        self.artifacts: Mapping[str, ArraySpec] = {"count": ArraySpec("box", (), "float32")}
        self.policy_version = 0
        self.statistics_version = 0

    def initial_state(self, num_envs: int) -> Mapping[str, Array]:
        return {"steps": np.zeros(num_envs, np.float32)}

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        assert hidden_state is not None and masks is not None
        steps = hidden_state["steps"] * masks
        actions = np.zeros(len(masks), np.int64)
        return ActorOutput({"": actions}, {"count": steps}, {"steps": steps + 1})


_MADE = {"Script": ScriptEnv, "Box": BoxEnv, "NoState": NoStateEnv, "Traced": TracedEnv, "Drawing": DrawingEnv}
for _name, _class in _MADE.items():
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(f"{_name}-v0", entry_point=f"fakes_vec:{_class.__name__}")


def explorer(
    name: str = "Script-v0",
    *,
    mode: Mode = "train",
    seed: int = 1,
    monitor_dir: Path | None = None,
    env: Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    supervision: Supervision | None = None,
    **fields: Any,
) -> Explorer:
    """Return an explorer of one of these environments, or of any other."""
    module = "fakes_vec" if name.removesuffix("-v0") in _MADE else None
    about = node(EnvConfig, model_name=name, from_module=module, env_kwargs=dict(kwargs or {}), **(env or {}))
    ends = {"n_steps": 4} if mode == "train" else {"n_episodes": 3}
    tree = node(ExplorerConfig, env=about, **{**ends, "num_envs": 3, "step_timeout_s": 20.0, **fields})
    config = configure(tree, where="explorer", expected=ExplorerConfig)
    return Explorer(config, mode=mode, seed=seed, monitor_dir=monitor_dir, allowed=ALLOWED, supervision=supervision)
