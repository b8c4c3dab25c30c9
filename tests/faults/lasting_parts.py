"""An environment that leaves something running, or raises what few expect; workers import it as `lasting_parts`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

NAME = "lasting_parts:Lasting-v0"


class Leaving(BaseException):
    """An end that no `except Exception` sees."""


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class LastingEnv(gymnasium.Env[Any, Any]):
    """Episodes of four steps, each worth 1.

    Args:
        leaves: `thread`, `process` or `fork`: what the first reset starts and nobody ends.
        raises: `cancelled`, `leaving`, `interrupt` or `mute`: what the third step raises.
        metrics: how many the last info has.
        removes: directory that the third reset removes.
    """

    def __init__(self, leaves: str = "", raises: str = "", metrics: int = 0, removes: str = "") -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._leaves, self._raises, self._metrics, self._steps = leaves, raises, metrics, 0
        self._removes, self._resets = removes, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps, self._resets = 0, self._resets + 1
        if self._resets == 3 and self._removes:
            shutil.rmtree(self._removes, ignore_errors=True)
        leaves, self._leaves = self._leaves, ""
        if leaves == "thread":
            threading.Thread(target=time.sleep, args=(600,), name="lasting").start()
        elif leaves == "process":  # with a child of its own
            code = "import subprocess, sys; subprocess.Popen(['sleep', '600']).wait()"
            subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        elif leaves == "fork" and os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._steps == 3 and self._raises:
            self._raise()
        over = self._steps >= 4
        info = {"metrics": {f"m{i}": 1.0 for i in range(self._metrics)}} if over and self._metrics else {}
        return np.zeros(2, np.float32), 1.0, over, False, info

    def get_state(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def set_state(self, state: dict[str, Any]) -> None:
        self._steps = state["steps"]

    def _raise(self) -> NoReturn:
        kinds = {
            "cancelled": asyncio.CancelledError,
            "leaving": Leaving,
            "interrupt": KeyboardInterrupt,
            "mute": Mute,
            "exit": SystemExit,
        }
        raise kinds[self._raises]()


if "Lasting-v0" not in gymnasium.registry:
    gymnasium.register(id="Lasting-v0", entry_point="lasting_parts:LastingEnv")
