"""An environment that fails in every way and every call, and an actor for it; workers import it as `failing_parts`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer, Mode
from digideep.environment.recovery import Supervision
from digideep.spec import ArraySpec
from digideep.types import ActorOutput
from digideep.utility.node import configure, node
from digideep.utility.seeding import generator_state, set_generator_state

Array = np.ndarray[Any, Any]

ALLOWED = ("digideep", "failing_parts")
NAME = "failing_parts:Failing-v0"


class FailingEnv(gymnasium.Env[Any, Any]):
    """Shows (episode, step, a random number) of this object; episodes last `length` steps, each worth 1.

    Args:
        call: in which call it fails: `init`, `reset`, `step`, `state`, `close`; `again`: in a step, and whenever it is
            made after that.
        fault: what happens then; see `_fail`.
        at: step of the episode at which a step fails, number of the episode in which another call does.
        rate: chance of each step to fail, drawn from the environment's own generator; instead of `at`.
        once: path of a file that is made when it happens and that keeps it from happening again, in any process.
        length: of an episode.
        mark: path of a file for what a test wants to know.
        ballast: bytes that are in its state for nothing.
    """

    def __init__(
        self,
        call: str = "step",
        fault: str = "",
        at: int = 3,
        rate: float = 0.0,
        once: str = "",
        length: int = 5,
        mark: str = "",
        ballast: int = 0,
    ) -> None:
        self.observation_space = spaces.Dict({"a": spaces.Box(-1e6, 1e6, (3,), np.float32), "b": spaces.Discrete(3)})
        self.action_space = spaces.Discrete(2)
        self.call, self.fault, self.at, self.rate, self.once = call, fault, at, rate, once
        self.length, self.mark, self.ballast = length, mark, np.zeros(ballast, np.uint8)
        self.episode, self.step_number = -1, 0
        self._perhaps("init", self.at)
        if call == "again" and Path(mark).exists():
            raise ValueError("there is only one of these")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.step_number = self.episode + 1, 0
        self._perhaps("reset", self.episode)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        if not 0 <= action < 2:
            raise AssertionError(f"an action that does not exist reached step: {action}")
        self.step_number += 1
        is_over = self.step_number >= self.length
        info = {"metrics": {"height": 1.0}} if is_over else {}
        answer = [self._observation(), 1.0, is_over, False, info]
        unlucky = self.rate > 0 and self.np_random.random() < self.rate
        if self.call == "again" and self.step_number == self.at:
            Path(self.mark).touch()
            raise KeyError("torque")
        self._perhaps("step", self.at if unlucky else -1 if self.rate else self.step_number, answer)
        return tuple(answer)  # type: ignore[return-value]

    def get_state(self) -> dict[str, Any]:
        self._perhaps("state", self.at)
        own = {"episode": self.episode, "step": self.step_number, "rng": generator_state(self.np_random)}
        return {**own, "ballast": self.ballast} if self.ballast.size else own

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.episode, self.step_number = state["episode"], state["step"]
        set_generator_state(self.np_random, state["rng"])

    def close(self) -> None:
        self._perhaps("close", self.at)

    def _observation(self) -> dict[str, Any]:
        shown = np.array([self.episode, self.step_number, self.np_random.random()], np.float32)
        return {"a": shown, "b": self.step_number % 3}

    def _perhaps(self, call: str, moment: int, answer: list[Any] | None = None) -> None:
        if call != self.call or moment != self.at or not self.fault:
            return
        if self.once:
            try:
                Path(self.once).touch(exist_ok=False)
            except FileExistsError:
                return
        self._fail([] if answer is None else answer)

    def _fail(self, answer: list[Any]) -> None:
        fault = self.fault
        if fault == "raise":
            raise KeyError("torque")
        if fault in ("kill", "segv"):
            os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSEGV)
        elif fault == "exit":
            os._exit(3)
        elif fault == "hang":
            time.sleep(600)
        elif fault == "swallow":
            self._swallow()
        elif fault == "child":
            process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path(self.mark).write_text(str(process.pid))
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "litter":
            subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        elif fault == "print":
            for i in range(20_000):
                print("out", i)
                print("err", i, file=sys.stderr)
        else:
            self._spoil(answer)

    @staticmethod
    def _swallow() -> None:
        """Hang, and let nobody out of it."""
        while True:
            try:
                time.sleep(600)
            except BaseException:  # what this environment must not do is what is to be survived
                continue

    def _spoil(self, answer: list[Any]) -> None:
        seen = answer[0]["a"]
        wrong: dict[str, tuple[int, Any]] = {
            "nan": (0, {**answer[0], "a": np.where([False, True, False], np.nan, seen).astype(np.float32)}),
            "inf": (0, {**answer[0], "a": np.where([False, False, True], np.inf, seen).astype(np.float32)}),
            "nan reward": (1, float("nan")),
            "inf reward": (1, float("-inf")),
            "huge reward": (1, 1e300),
            "shape": (0, {**answer[0], "a": np.zeros(4, np.float32)}),
            "dtype": (0, {**answer[0], "a": np.zeros(3, np.float64)}),
            "type": (0, {**answer[0], "a": [0.0, 0.0, 0.0]}),
            "space": (0, {**answer[0], "b": 3}),
            "keys": (0, {"a": seen}),
            "reward": (1, np.ones(2)),
            "text reward": (1, "much"),
            "flag": (2, 1.5),
            "truncated": (3, None),
            "info": (4, [("metrics", {})]),
            "metrics": (4, {"metrics": {"height": "tall"}}),
        }
        index, value = wrong[self.fault]
        answer[index] = value
        if self.fault == "metrics":
            answer[2] = True


class Steady:
    """An actor that draws nothing: what it does depends on the step of the episode alone.

    Args:
        before: called with the number of the call before it acts.
    """

    def __init__(self, before: Any = None) -> None:
        scalar = ArraySpec("box", (), "float32")
        self.artifacts: Mapping[str, ArraySpec] = {"log_probs": scalar, "values": scalar}
        self.policy_version = self.statistics_version = 0
        self.calls = 0
        self.before = before

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
        if self.before is not None:
            self.before(self.calls)
        self.calls += 1
        shown = observations["a"]
        zeros = np.zeros(len(shown), np.float32)
        return ActorOutput({"": np.nan_to_num(shown[:, 1]).astype(np.int64) % 2}, {"log_probs": zeros, "values": zeros})


if "Failing-v0" not in gymnasium.registry:
    gymnasium.register("Failing-v0", entry_point="failing_parts:FailingEnv")


def explorer(
    *,
    mode: Mode = "train",
    actor: Any = None,
    supervision: Supervision | None = None,
    monitor_dir: Path | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Explorer:
    """Return an explorer of failing environments, three unless `num_envs` says otherwise, with an actor."""
    about = node(EnvConfig, model_name=NAME, env_kwargs=dict(kwargs or {}))
    ends = {"n_steps": 8} if mode == "train" else {"n_episodes": 4}
    tree = node(ExplorerConfig, env=about, **{**ends, "num_envs": 3, "step_timeout_s": 20.0, **fields})
    config = configure(tree, where="explorer", expected=ExplorerConfig)
    made = Explorer(
        config, mode=mode, seed=1, allowed=ALLOWED, supervision=supervision, monitor_dir=monitor_dir, seed_label=None
    )
    made.set_actors({"agent": Steady() if actor is None else actor})
    return made


def copied(chunk: Any) -> dict[str, Array]:
    """Return copies of the arrays of a chunk."""
    return {key: array.copy() for key, array in chunk.arrays.items()}
