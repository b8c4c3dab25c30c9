"""Ways to step environments with random actions: digideep's back ends, and what Gymnasium, ale-py and EnvPool offer."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.recovery import Supervision
from digideep.environment.vec.backend import open_environments
from digideep.environment.vec.base import VecEnv
from digideep.environment.vec.choose import make_vec_env
from digideep.environment.vec.restart import RestartBudget
from digideep.environment.vec.ways import HERE, Trial, Way
from digideep.environment.wrappers.config import AtariPreprocessingConfig, FrameStackConfig
from digideep.utility.node import node

__all__ = ["ENVIRONMENTS", "OURS", "Stepped", "Stepping", "auto", "ours", "peers"]

_ROWS = 16


def _config(name: str) -> EnvConfig:
    if not name.startswith("ALE/"):
        return EnvConfig(model_name=name)
    return EnvConfig(model_name=name, wrappers=(node(AtariPreprocessingConfig), node(FrameStackConfig, n=4)))


OURS = "digideep"
ENVIRONMENTS = ("CartPole-v1", "Pendulum-v1", "HalfCheetah-v5", "ALE/Pong-v5")


class Stepping(Protocol):
    """Environments that are stepped."""

    saves_state: bool

    def time(self, steps: int) -> float:
        """Return the seconds of a step of all environments, over `steps` of them."""

    def close(self) -> None:
        """Close them."""


class Stepped(NamedTuple):
    """A way to step environments, by name; `make` gives fresh ones."""

    name: str
    make: Callable[[], Stepping]


class _Ours:
    def __init__(self, vec: VecEnv) -> None:
        self._vec = vec
        self._trial = Trial(vec)
        self.time = self._trial.time
        self.saves_state = not vec.obstacle

    def close(self) -> None:
        self._vec.close()


class _Peer:
    saves_state = False

    def __init__(self, envs: Any, *, num_envs: int) -> None:
        self._envs = envs
        space = envs.single_action_space if hasattr(envs, "single_action_space") else envs.action_space
        space.seed(0)
        drawn = [np.stack([np.asarray(space.sample()) for _ in range(num_envs)]) for _ in range(_ROWS)]
        self._actions = [row.astype(np.int32) if row.dtype.kind == "i" else row for row in drawn]
        self._t = 0
        envs.reset()
        self.time(1)

    def time(self, steps: int) -> float:
        """Return the seconds of a step."""
        envs, actions = self._envs, self._actions
        start = perf_counter()
        for _ in range(steps):
            envs.step(actions[self._t])
            self._t = (self._t + 1) % _ROWS
        return (perf_counter() - start) / steps

    def close(self) -> None:
        """Close them."""
        self._envs.close()


def auto(name: str, num_envs: int) -> tuple[Stepping, str]:
    """Return environments as `num_workers=auto` and `backend=auto` choose them, and what that is."""
    config = ExplorerConfig(num_envs=num_envs, num_workers="auto", n_steps=_ROWS)
    opened = open_environments(config, _config(name), mode="train", supervision=Supervision(RestartBudget()))
    return _Ours(opened.vec), opened.backend if opened.backend != "single" else str(opened.way)


def ours(name: str, num_envs: int, *, cores: int) -> list[Stepped]:
    """Return digideep's own ways: single environments however they are stepped, and vector environments."""
    counts = sorted({count for count in (2, cores) if count <= num_envs})
    ways = [HERE, *(Way(count) for count in counts if count > 1)]
    ways += [Way(count - 1, True) for count in counts if 1 < count]
    config = _config(name)

    def single(way: Way) -> Stepping:
        return _Ours(make_vec_env(config, num_envs=num_envs, **way._asdict()))

    def vector(backend: Any) -> Stepping:
        asked = ExplorerConfig(num_envs=num_envs, n_steps=_ROWS, backend=backend)
        return _Ours(open_environments(asked, config, mode="train", supervision=Supervision(RestartBudget())).vec)

    found = [Stepped(f"{OURS}: {way}", partial(single, way)) for way in ways]
    return [*found, *(Stepped(f"{OURS}: {kind}", partial(vector, kind)) for kind in ("native", "envpool"))]


def peers(name: str, num_envs: int, *, cores: int) -> list[Stepped]:
    """Return the ways of others; whoever is not installed raises when it is made."""
    is_game = name.startswith("ALE/")

    def one() -> gymnasium.Env[Any, Any]:
        return _game(name) if is_game else gymnasium.make(name, disable_env_checker=True)

    def vector(kind: str) -> Stepping:
        classes: dict[str, Any] = {"sync": gymnasium.vector.SyncVectorEnv, "async": gymnasium.vector.AsyncVectorEnv}
        return _Peer(classes[kind]([one] * num_envs), num_envs=num_envs)

    def entry_point() -> Stepping:
        return _Peer(gymnasium.make_vec(name, num_envs, "vector_entry_point"), num_envs=num_envs)

    def ale(threads: int) -> Stepping:
        from ale_py.vector_env import AtariVectorEnv

        options = {"use_fire_reset": False, "reward_clipping": False}
        return _Peer(AtariVectorEnv("pong", num_envs, num_threads=threads, **options), num_envs=num_envs)

    def envpool(threads: int) -> Stepping:
        import envpool

        task = "Pong-v5" if is_game else name
        return _Peer(envpool.make_gymnasium(task, num_envs=num_envs, num_threads=threads), num_envs=num_envs)

    def threaded(label: str, make: Callable[[int], Stepping]) -> list[Stepped]:
        counts = sorted({1, min(cores, num_envs)})
        return [Stepped(f"{label}, {count} thread{'s' * (count > 1)}", partial(make, count)) for count in counts]

    found = [Stepped("SyncVectorEnv", partial(vector, "sync")), Stepped("AsyncVectorEnv", partial(vector, "async"))]
    found += threaded("AtariVectorEnv", ale) if is_game else [Stepped("vector_entry_point", entry_point)]
    return found + threaded("EnvPool", envpool)


def _game(name: str) -> gymnasium.Env[Any, Any]:
    """Return one game with Gymnasium's own wrappers."""
    import ale_py
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    with contextlib.suppress(gymnasium.error.Error), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gymnasium.register_envs(ale_py)
    game = gymnasium.make(name, frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    return FrameStackObservation(AtariPreprocessing(game), 4)
