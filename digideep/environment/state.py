"""The state of an environment as plain data, and back into a fresh one, to the same bits.

Five ways, layer by layer from the outermost wrapper to the environment itself:

- a layer with `get_state()` and `set_state(state)` speaks for itself (and, if nothing is known of what lies beneath it,
  for everything beneath it as well);
- classic control and toy text: every plain attribute and the random generator;
- the wrappers around them, Gymnasium's and the user's: every plain attribute;
- MuJoCo and dm_control: the state of the simulator (`state_simulators.py`);
- environments that repeat an episode exactly: what they hold where that can be written down, else the episode again
  (`state_replay.py`).

Everything else has no state, and `obstacle` says why. Copying and pickling are no ways: they lose the state of
simulators without an error. `mismatch` tells beforehand whether a state fits: its attributes are the arguments of the
environment too, and would silently bring former ones back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np

from digideep.environment.state_plain import (
    Labels,
    NotPlainError,
    attributes,
    pack,
    set_attributes,
    shared_objects,
    unpack,
)
from digideep.environment.state_replay import ReplayRecorder
from digideep.environment.state_simulators import adapter_of
from digideep.environment.vec.hang import Hang, let_ctrl_c_out
from digideep.errors import CheckpointError, DigideepError, EnvironmentFailure, one_line
from digideep.utility.seeding import generator_state, set_generator_state

__all__ = ["StateTree", "capture", "mismatch", "obstacle", "restore"]

StateTree: TypeAlias = dict[str, Any]
Layer: TypeAlias = gymnasium.Env[Any, Any]

_BY_ATTRIBUTES = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
# What gives these a state, by their module.
_INSTEAD = {"ale_py.": "with AtariPreprocessingConfig as first of /env/wrappers it is a game that has a state"}


def capture(env: Layer) -> StateTree | None:
    """Return the state of `env`, wrappers and random generators included; None where `obstacle` says why not.

    Raises:
        EnvironmentFailure: a `get_state` of the environment raised, or returned something that cannot be stored.
    """
    try:
        covered = _covered(env)
        labels = _labels(covered)
        layers = [_save(layer, labels) for layer in covered]
    except NotPlainError:
        return None
    state: StateTree = {"id": _id(env), "made_with": _made_with(env), "layers": layers}
    rng = getattr(env.unwrapped, "_np_random", None)
    # That of dm_control draws from another one, which is in the state of its layer.
    if type(rng) is np.random.Generator and env.unwrapped.np_random is rng:
        state.update(rng=generator_state(rng), seed=env.unwrapped._np_random_seed)
    return state


def obstacle(env: Layer) -> str:
    """Return why `env` has no state that could be saved, beginning with its id; empty if it has one.

    It may be asked before the first reset: no `get_state` is called.
    """
    try:
        covered = _covered(env)
        labels = _labels(covered)
        for layer in covered:
            if not _speaks(layer):
                _save(layer, labels)
            elif isinstance(layer, ReplayRecorder) and (reason := layer.obstacle):
                raise NotPlainError(reason)
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
    known: dict[int, Any] = {}
    for layer, saved in reversed(list(zip(_covered(env), state["layers"], strict=True))):
        try:
            _load(layer, saved, known)
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
        return _unknown(layer)
    if any(kind.__dict__.get("__slots__") for kind in type(layer).__mro__):
        return f"the wrapper {name} has __slots__, and no get_state() and set_state(state)"
    try:
        attributes(layer)
    except NotPlainError as error:
        return f"the wrapper {error}, and it has no get_state() and set_state(state)"
    return ""


def _unknown(layer: Layer) -> str:
    module = type(layer).__module__
    if module.startswith(_BY_ATTRIBUTES):
        return ""
    adapter = adapter_of(layer)
    if adapter is not None:
        return adapter.obstacle(layer)
    told = next((f"; {instead}" for known, instead in _INSTEAD.items() if module.startswith(known)), "")
    return f"{type(layer).__name__} has no get_state() and set_state(state){told}"


def _labels(layers: Sequence[Layer]) -> Labels:
    """Return labels for what attributes share, of the layers whose attributes are their state."""
    return shared_objects(layer for layer in layers if not _speaks(layer) and adapter_of(layer) is None)


def _save(layer: Layer, labels: Labels) -> dict[str, Any]:
    saved: dict[str, Any] = {"name": type(layer).__name__, "spaces": _space_generators(layer)}
    adapter = adapter_of(layer)
    if adapter is not None:
        return {**saved, "simulator": adapter.get_state(layer)}
    if _speaks(layer):
        own = _call(layer, lambda: layer.get_state(), doing="get_state")  # type: ignore[attr-defined]
        try:
            return {**saved, "own": pack(own, path="get_state()")}
        except NotPlainError as error:
            raise EnvironmentFailure(
                f"environment {_id(layer)}: {error}; return numbers, strings, arrays, and lists and dicts of these"
            ) from None
    return {**saved, "attributes": attributes(layer, labels=labels)}


def _load(layer: Layer, saved: Mapping[str, Any], known: dict[int, Any]) -> None:
    for name, states in saved["spaces"].items():
        for part, state in zip(_drawing_parts(getattr(layer, name)), states, strict=True):
            if state is not None:
                set_generator_state(part.np_random, state)
    if "own" in saved:
        own = unpack(saved["own"])
        _call(layer, lambda: layer.set_state(own), doing="set_state")  # type: ignore[attr-defined]
        return
    adapter = adapter_of(layer)
    if adapter is not None:
        adapter.set_state(layer, saved["simulator"])
        return
    set_attributes(layer, saved["attributes"], known=known)


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
