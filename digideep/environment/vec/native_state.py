"""The state of a vector environment as one record of plain data, and back into a fresh one, to the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv

from digideep.environment import state as environment_state
from digideep.environment.state_plain import NotPlainError, pack, unpack
from digideep.errors import CheckpointError, EnvironmentFailure
from digideep.utility.seeding import generator_state, set_generator_state

__all__ = ["capture", "is_cartpole", "mismatch", "obstacle", "restore"]

_CARTPOLE = {"state": "float64", "steps": "int32", "prev_done": "bool"}  # arrays whose last axis is the environment's
_BOUNDS = ("low", "high")


def is_cartpole(env: Any) -> bool:
    """Whether this is Gymnasium's own vector form of CartPole, and no subclass, which may hold more."""
    kind = type(env)
    return (kind.__module__, kind.__name__) == ("gymnasium.envs.classic_control.cartpole", "CartPoleVectorEnv")


def obstacle(env: Any, *, id: str) -> str:
    """Return why the state of a vector environment cannot be saved; empty if it can."""
    if is_cartpole(env) or _speaks(env):
        return ""
    if _is_sync(env):
        return environment_state.obstacle(env.envs[0])
    return f"{id} has no state to save: its vector form {type(env).__name__} has no get_state() and set_state(state)"


def capture(env: Any, *, id: str, made_with: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the state of an environment without `obstacle`; None where it has none just now.

    Raises:
        EnvironmentFailure: its `get_state` returned something that cannot be stored.
    """
    record = {"id": _id(id), "made_with": _texts(made_with), "layers": []}
    if _is_sync(env):
        states = [environment_state.capture(one) for one in env.envs]
        return None if None in states else {**record, "envs": states, "over": env._autoreset_envs.copy()}
    try:
        own = env.get_state() if _speaks(env) else {name: getattr(env, name) for name in (*_CARTPOLE, *_BOUNDS)}
        record["own"] = pack(own, path="get_state()")
    except NotPlainError as error:
        raise EnvironmentFailure(f"{error}; return numbers, strings, arrays, and lists and dicts of these") from None
    rng = getattr(env, "_np_random", None)
    if type(rng) is np.random.Generator:
        record.update(rng=generator_state(rng), seed=env._np_random_seed)
    return record


def mismatch(record: Mapping[str, Any], *, id: str, made_with: Mapping[str, Any]) -> str:
    """Return why a record is not one of this environment: another, or other arguments; empty if it is."""
    if record.get("id") != _id(id):
        return f"expected the state of {_id(id)}, found that of {record.get('id')}"
    if record["made_with"] != _texts(made_with):
        return f"{id} was made with {record['made_with']}, and now with {_texts(made_with)}"
    return ""


def restore(env: Any, record: Mapping[str, Any]) -> None:
    """Put a fresh environment, reset once, where `capture` found another one.

    Raises:
        CheckpointError: the record does not fit.
    """
    if _is_sync(env):
        for one, saved in zip(env.envs, record["envs"], strict=True):
            environment_state.restore(one, saved)
        env._autoreset_envs = np.asarray(record["over"], bool)
        return
    if "rng" in record:
        set_generator_state(env.np_random, record["rng"])
        env._np_random_seed = record["seed"]
    own = unpack(record["own"])
    if _speaks(env):
        env.set_state(own)
        return
    for name, dtype in _CARTPOLE.items():
        expected = np.shape(getattr(env, name))
        found = own.get(name)
        if not isinstance(found, np.ndarray) or found.shape != expected or found.dtype != dtype:
            raise CheckpointError(f"environment state: expected {name} {expected} of {dtype}, found something else")
        setattr(env, name, found)
    for name in _BOUNDS:
        if type(own.get(name)) not in (int, float):
            raise CheckpointError(f"environment state: expected a number as {name}, found something else")
        setattr(env, name, float(own[name]))


def _speaks(env: Any) -> bool:
    # Of its class: a wrapper may hand on what it does not have, and have a state of its own beside it.
    kind = type(env)
    return callable(getattr(kind, "get_state", None)) and callable(getattr(kind, "set_state", None))


def _is_sync(env: Any) -> bool:
    return type(env) is SyncVectorEnv


def _id(id: str) -> str:
    return f"{id} (native)"


def _texts(made_with: Mapping[str, Any]) -> dict[str, str]:
    """Return arguments as text, but for those that no text tells apart."""
    texts = {}
    for name, value in made_with.items():
        try:
            texts[name] = repr(pack(value, path=name))
        except NotPlainError:
            continue
    return texts
