"""The state of an environment as plain data, and back into a fresh one, to the same bits.

Four ways, layer by layer from the outermost wrapper to the environment itself:

- a layer with `get_state()` and `set_state(state)` speaks for itself (and, if nothing is known of what lies beneath it,
  for everything beneath it as well);
- classic control and toy text: every plain attribute and the random generator;
- the wrappers around them, Gymnasium's and the user's: every plain attribute;
- environments that repeat an episode exactly: the episode again (`state_replay.py`).

Everything else has no state, and `obstacle` says why. Copying and pickling are no ways: they lose the state of
simulators without an error. `mismatch` tells beforehand whether a state fits: its attributes are the arguments of the
environment too, and would silently bring former ones back.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as Registration

from digideep.environment.state_plain import NotPlainError, pack, unpack
from digideep.environment.state_replay import ReplayRecorder
from digideep.environment.vec.hang import Hang, let_ctrl_c_out
from digideep.errors import CheckpointError, DigideepError, EnvironmentFailure, one_line
from digideep.utility.node import Config
from digideep.utility.seeding import generator_state, set_generator_state

__all__ = ["StateTree", "capture", "mismatch", "obstacle", "restore"]

StateTree: TypeAlias = dict[str, Any]
Layer: TypeAlias = gymnasium.Env[Any, Any]

_BY_ATTRIBUTES = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")

# What an environment draws with, or computes once from its arguments.
_CONSTANTS = frozenset(
    "screen clock surf window window_surface isopen render_mode metadata spec P initial_state_distrib desc".split()
)
# What every layer has, and what the constructor makes again.
_PLUMBING = frozenset(
    "env spec metadata render_mode _np_random _np_random_seed _action_space _observation_space".split()
    + "_cached_spec _metadata _saved_kwargs".split()
)
# Attributes of Gymnasium's wrappers that are scratch memory, clocks, or checks of the first steps.
_SCRATCH: Mapping[str, frozenset[str]] = {
    "FrameStackObservation": frozenset(["stacked_obs"]),
    "RecordEpisodeStatistics": frozenset(["episode_start_time", "time_queue"]),
    "PassiveEnvChecker": frozenset(
        ["checked_reset", "checked_step", "checked_render", "checked_data_reuse", "close_called", "_previous_data"]
    ),
}
# Functions that Gymnasium's wrappers keep: given to the constructor, so the fresh layer has them.
_FUNCTIONS = frozenset(["func", "_time_preprocess_func", "_append_data_func", "_obs_postprocess_func"])


def capture(env: Layer) -> StateTree | None:
    """Return the state of `env`, wrappers and random generators included; None where `obstacle` says why not.

    Raises:
        EnvironmentFailure: a `get_state` of the environment raised, or returned something that cannot be stored.
    """
    try:
        layers = [_save(layer) for layer in _covered(env)]
    except NotPlainError:
        return None
    state: StateTree = {"id": _id(env), "made_with": _made_with(env), "layers": layers}
    rng = getattr(env.unwrapped, "_np_random", None)
    if type(rng) is np.random.Generator:
        state.update(rng=generator_state(rng), seed=env.unwrapped._np_random_seed)
    return state


def obstacle(env: Layer) -> str:
    """Return why `env` has no state that could be saved, beginning with its id; empty if it has one.

    It may be asked before the first reset: no `get_state` is called.
    """
    try:
        for layer in _covered(env):
            if not _speaks(layer):
                _save(layer)
            elif isinstance(layer, ReplayRecorder) and layer.obstacle:
                raise NotPlainError(layer.obstacle)
    except NotPlainError as error:
        return f"{_id(env)} has no state to save: {error}"
    return ""


def mismatch(env: Layer, state: Mapping[str, Any]) -> str:
    """Return why `state` is not one of `env`: another environment, other arguments, other wrappers; empty if it is."""
    if state["id"] != _id(env):
        return f"expected the state of {_id(env)}, found that of {state['id']}"
    if state["made_with"] != _made_with(env):
        return f"{_id(env)} was made with {state['made_with']}, and now with {_made_with(env)}"
    try:
        names = [type(layer).__name__ for layer in _covered(env)]
    except NotPlainError as error:
        return str(error)
    saved = [layer["name"] for layer in state["layers"]]
    return "" if saved == names else f"{_id(env)}: expected the layers {names}, found {saved}"


def restore(env: Layer, state: Mapping[str, Any]) -> None:
    """Put a fresh `env` where `capture` found another one; it is reset once first, so that every part of it exists.

    Raises:
        CheckpointError: the state belongs to another environment, see `mismatch`, or does not fit this one.
        NotReproducibleError: a replayed episode did not end where it had to.
        EnvironmentFailure: a `reset` or `set_state` of the environment raised.
    """
    _call(env, lambda: env.reset(seed=0), doing="reset")
    reason = mismatch(env, state)
    if reason:
        raise CheckpointError(f"environment state: {reason}")
    if "rng" in state:
        set_generator_state(env.unwrapped.np_random, state["rng"])
        env.unwrapped._np_random_seed = state["seed"]
        if not isinstance(env.unwrapped._np_random_seed, int | None):
            raise CheckpointError("environment state: expected a seed, found something else")
    # From the inside out, so that a layer that speaks for those beneath it has the last word.
    for layer, saved in reversed(list(zip(_covered(env), state["layers"], strict=True))):
        try:
            _load(layer, saved)
        except DigideepError:
            raise
        except Exception as error:
            # The environment's own errors come as EnvironmentFailure: here the record has another form than the layer.
            raise CheckpointError(
                f"environment state: expected what fits {type(layer).__name__} of {_id(env)}, "
                f"found {type(error).__name__}: {one_line(error, limit=200)}"
            ) from error


def _layers(env: Layer) -> Iterator[Layer]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _covered(env: Layer) -> list[Layer]:
    """Return the layers whose states together are the state of `env`, outermost first.

    Raises:
        NotPlainError: one of them has a state that nobody can read.
    """
    covered: list[Layer] = []
    for layer in _layers(env):
        reason = "" if _speaks(layer) else _unreadable(layer)
        if reason:
            speakers = [i for i, outer in enumerate(covered) if _speaks(outer)]
            if not speakers:
                raise NotPlainError(reason)
            return covered[: speakers[-1] + 1]
        covered.append(layer)
        if isinstance(layer, ReplayRecorder):
            break
    return covered


def _speaks(layer: Layer) -> bool:
    return callable(getattr(layer, "get_state", None)) and callable(getattr(layer, "set_state", None))


def _unreadable(layer: Layer) -> str:
    """Return why the attributes of a layer are not its state; empty if they are."""
    name = type(layer).__name__
    if not isinstance(layer, gymnasium.Wrapper):
        known = type(layer).__module__.startswith(_BY_ATTRIBUTES)
        return "" if known else f"{name} has no get_state() and set_state(state)"
    if any(kind.__dict__.get("__slots__") for kind in type(layer).__mro__):
        return f"the wrapper {name} has __slots__, and no get_state() and set_state(state)"
    try:
        _attributes(layer)
    except NotPlainError as error:
        return f"the wrapper {error}, and it has no get_state() and set_state(state)"
    return ""


def _attributes(layer: Layer) -> dict[str, Any]:
    name = type(layer).__name__
    return {key: pack(value, path=f"{name}.{key}") for key, value in _dynamic(layer)}


def _dynamic(layer: Layer) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that may change from step to step."""
    scratch: frozenset[str] = frozenset().union(*(_SCRATCH.get(kind.__name__, ()) for kind in type(layer).__mro__))
    wrapper = isinstance(layer, gymnasium.Wrapper)
    for name, value in vars(layer).items():
        if name in _PLUMBING or name in scratch or isinstance(value, gymnasium.Space | Registration | Config):
            continue
        if wrapper and name in _FUNCTIONS and isinstance(value, types.FunctionType):
            continue
        # Types and dtypes say how a wrapper converts; they hold nothing.
        if isinstance(value, type | np.dtype):
            continue
        if not wrapper and (name in _CONSTANTS or name.endswith(("_img", "_imgs"))):
            continue
        yield name, value


def _save(layer: Layer) -> dict[str, Any]:
    saved: dict[str, Any] = {"name": type(layer).__name__, "spaces": _space_generators(layer)}
    if isinstance(layer, ReplayRecorder) and layer.obstacle:
        raise NotPlainError(layer.obstacle)
    if _speaks(layer):
        own = _call(layer, lambda: layer.get_state(), doing="get_state")  # type: ignore[attr-defined]
        try:
            return {**saved, "own": pack(own, path="get_state()")}
        except NotPlainError as error:
            raise EnvironmentFailure(
                f"environment {_id(layer)}: {error}; return numbers, strings, arrays, and lists and dicts of these"
            ) from None
    return {**saved, "attributes": _attributes(layer)}


def _load(layer: Layer, saved: Mapping[str, Any]) -> None:
    for name, states in saved["spaces"].items():
        for part, state in zip(_drawing_parts(getattr(layer, name)), states, strict=True):
            if state is not None:
                set_generator_state(part.np_random, state)
    if "own" in saved:
        own = unpack(saved["own"])
        _call(layer, lambda: layer.set_state(own), doing="set_state")  # type: ignore[attr-defined]
        return
    attributes = saved["attributes"]
    for name, _ in list(_dynamic(layer)):
        if name not in attributes:
            delattr(layer, name)
    for name, value in attributes.items():
        setattr(layer, name, unpack(value, into=getattr(layer, name, None)))


def _space_generators(layer: Layer) -> dict[str, list[Any]]:
    """Return the generators of spaces that somebody has sampled from, as wrappers with random actions do."""
    drawn: dict[str, list[Any]] = {}
    for name, value in vars(layer).items():
        if isinstance(value, gymnasium.Space):
            generators = [part._np_random for part in _drawing_parts(value)]
            if any(rng is not None for rng in generators):
                drawn[name] = [None if rng is None else generator_state(rng) for rng in generators]
    return drawn


def _drawing_parts(space: gymnasium.Space[Any]) -> list[gymnasium.Space[Any]]:
    inner = getattr(space, "spaces", ())
    parts = inner.values() if isinstance(inner, Mapping) else inner
    return [space, *(leaf for part in parts for leaf in _drawing_parts(part))]


def _call(layer: Layer, function: Callable[[], Any], *, doing: str) -> Any:
    try:
        return function()
    except (DigideepError, Hang):
        raise
    except BaseException as error:
        let_ctrl_c_out(error)
        raise EnvironmentFailure(
            f"environment {_id(layer)}: {doing} raised {type(error).__name__}: {one_line(error, limit=500)}"
        ) from error


def _id(env: Layer) -> str:
    spec = env.unwrapped.spec
    return spec.id if spec is not None else type(env.unwrapped).__name__


def _made_with(env: Layer) -> dict[str, str]:
    """Return the arguments of an environment as text, but for those of the registration that no text tells apart."""
    spec = env.unwrapped.spec
    made: dict[str, str] = {}
    for name, value in (spec.kwargs if spec is not None else {}).items():
        try:
            if name != "render_mode":
                made[name] = repr(pack(value, path=name))
        except NotPlainError:
            continue
    limits = [layer._max_episode_steps for layer in _layers(env) if isinstance(layer, gymnasium.wrappers.TimeLimit)]
    return {**made, "max_episode_steps": repr(limits)}
