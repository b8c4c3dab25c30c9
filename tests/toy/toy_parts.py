"""What the toy parameters name: a runner that does something at a chosen moment, and environments with one trait."""

from __future__ import annotations

import json
import os
import random
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from digideep.pipeline.config import RunnerConfig

if TYPE_CHECKING:
    from digideep.pipeline.runner import Runner

MOMENTS = "TOY_MOMENTS"
"""Environment variable: JSON of {moment: [signal names]}. A moment is `cycle 3` (after cycles 1 and 2, before the work
of the third), `learnt 3` (the third is done, but for the look at the signals), `test 2`, `save 4`, `on_epoch 1`."""


@dataclass(frozen=True)
class ActingRunnerConfig(RunnerConfig):
    """A runner that sends signals to itself when `TOY_MOMENTS` says so."""

    builds: ClassVar[str] = "toy_runner:ActingRunner"


def act(moment: str) -> None:
    """Send the signals of a moment to this process, each of them once."""
    moments = json.loads(os.environ.get(MOMENTS, "{}"))
    names = moments.pop(moment, [])
    os.environ[MOMENTS] = json.dumps(moments)
    for name in names:
        os.kill(os.getpid(), signal.Signals[name])


def on_epoch(runner: Runner) -> None:
    """Write down the epochs that were seen."""
    with open(runner.session.paths.root / "customs.txt", "a") as file:
        file.write(f"{runner.epoch} {runner.frame} {runner.state.pending}\n")
    act(f"on_epoch {runner.epoch}")


def draw(runner: Runner) -> None:
    """Draw from every global generator, as code of users does, and monitor what came."""
    import torch

    drawn = random.random() + np.random.random() + float(torch.rand(()))
    runner.session.monitor.monitor("toy/drawn", drawn)


class StatelessEnv(gymnasium.Env[Any, Any]):
    """An environment of which nothing can be saved: its state lies in a generator function."""

    def __init__(self, length: int = 7) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._length = length
        self._going: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._going = self._walk()
        return next(self._going), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Walk on."""
        try:
            return next(self._going), 1.0, False, False, {}
        except StopIteration:
            return np.zeros(2, np.float32), 1.0, True, False, {}

    def _walk(self) -> Any:
        for _ in range(self._length):
            yield self.np_random.uniform(-1, 1, 2).astype(np.float32)


class RecordingEnv(gymnasium.Env[Any, Any]):
    """Episodes of four steps whose reward is `bonus`; says which progress it was told, and where it was closed.

    Args:
        bonus: reward of each step.
        closed: path of a file that gets a line with the process when the environment is closed.
    """

    def __init__(self, bonus: float = 1.0, closed: str | None = None) -> None:
        self.observation_space = spaces.Box(-10.0, 1e9, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._bonus, self._closed = bonus, closed
        self._steps, self._epoch, self._frame, self._fraction = 0, -1, -1, 0.0

    def set_progress(self, progress: dict[str, Any]) -> None:
        """Remember how far the run has come."""
        self._epoch, self._frame, self._fraction = progress["epoch"], progress["frame"], progress["fraction"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Go on; the last info has everything that can be told."""
        self._steps += 1
        over = self._steps >= 4
        info: dict[str, Any] = {}
        if over:
            told = {"epoch": self._epoch, "frame": self._frame, "fraction": self._fraction}
            info = {"metrics": told, "is_success": self._epoch >= 0, "colour": 3, "unheard": 5.0}
        return np.array([self._steps, 0], np.float32), self._bonus, over, False, info

    def get_state(self) -> dict[str, Any]:
        """Return everything."""
        return {"steps": self._steps, "told": [self._epoch, self._frame, self._fraction]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go where `get_state` was called."""
        self._steps = state["steps"]
        self._epoch, self._frame, self._fraction = state["told"]

    def close(self) -> None:
        """Say so."""
        if self._closed:
            with open(self._closed, "a") as file:
                file.write(f"{os.getpid()}\n")


class ForgetfulEnv(RecordingEnv):
    """A RecordingEnv whose state lacks what it was told, as that of an environment that others wrote may."""

    def get_state(self) -> dict[str, Any]:
        """Return the steps alone."""
        return {"steps": self._steps}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go where `get_state` was called."""
        self._steps = state["steps"]


for _name in ("ToyStateless", "ToyRecording", "ToyForgetful"):
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(id=f"{_name}-v0", entry_point=f"{__name__}:{_name.removeprefix('Toy')}Env")
