"""Attributes of environments as plain data, and back: exact types only, everything else is refused with its path."""

from __future__ import annotations

import random
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from types import MappingProxyType
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.wrappers.utils import RunningMeanStd
from numpy.lib.array_utils import byte_bounds

from digideep.errors import CheckpointError, DigideepError
from digideep.utility.node import Config
from digideep.utility.seeding import generator_state, set_generator_state

__all__ = ["Labels", "NotPlainError", "attributes", "pack", "set_attributes", "shared_objects", "unpack"]

Labels: TypeAlias = Mapping[int, int]
"""Numbers of objects that several places hold, by the `id` of the object."""

# What an environment draws with, or computes once from its arguments.
_CONSTANTS = frozenset("screen clock surf window window_surface isopen render_mode metadata spec".split())
_MAP = frozenset("P initial_state_distrib desc".split())
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
_SHARED = "~shared"
_TAGS = ("~deque", "~generator", "~legacy", "~python", "~moments", "~chars", "~text", _SHARED)
_VIEW = (
    "{path} is a view of {owner}, which it would not be after a restore; keep a copy, look at it where it is needed, "
    "or write get_state() and set_state(state)"
)
_WORK = 1000  # candidates to be tried, after which arrays count as overlapping
_LEVELS = 40  # a checkpoint holds 64, of which the layers above this state take some


class NotPlainError(DigideepError):
    """A value cannot be saved to the same bits; the message gives its path."""


def pack(value: Any, *, path: str, labels: Labels = MappingProxyType({})) -> Any:
    """Return `value` as plain data that later changes do not touch.

    Beside None, numbers, strings, bytes, arrays, lists, tuples and dictionaries it takes queues, random generators of
    numpy and python, and Gymnasium's running moments. What has one of the `labels` comes back as one object from each
    place that holds it.

    Raises:
        NotPlainError: something else is in it, a subclass of these included, since it would come back as another type.
    """
    packed = _pack_plain(value, path=path, labels=labels)
    return {_SHARED: (labels[id(value)], packed)} if id(value) in labels else packed


def _pack_plain(value: Any, *, path: str, labels: Labels) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes):
        return value
    if kind is np.ndarray:
        return _pack_array(value, path=path)
    if kind is np.str_:
        return {"~text": str(value)}
    if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        return value
    if path.count("/") > _LEVELS:
        raise NotPlainError(f"{path[:40]}...: more than {_LEVELS} nested levels (or a list that holds itself)")
    if kind in (list, tuple):
        return kind(pack(element, path=f"{path}/{i}", labels=labels) for i, element in enumerate(value))
    if kind is dict:
        if any(tag in value for tag in _TAGS):
            raise NotPlainError(f"{path}: the keys {', '.join(_TAGS)} are taken")
        return {
            _key(key, path=path): pack(element, path=f"{path}/{key}", labels=labels) for key, element in value.items()
        }
    return _pack_object(value, path=path, labels=labels)


def unpack(value: Any, *, into: Any = None, known: dict[int, Any] | None = None) -> Any:
    """Return what `pack` was given; a generator comes back inside `into`, where that is one of its kind.

    Args:
        value: packed.
        into: what stood in its place.
        known: objects by label, to which those that come back for the first time are added.
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list | tuple):
        return type(value)(unpack(element, known=known) for element in value)
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        tag, content = next(iter(value.items()))
        if tag in _TAGS:
            return _unpack_object(str(tag), content, into=into, known={} if known is None else known)
    inner = into if isinstance(into, dict) else {}
    return {key: unpack(element, into=inner.get(key), known=known) for key, element in value.items()}


def shared_objects(layers: Iterable[gymnasium.Env[Any, Any]]) -> dict[int, int]:
    """Return labels for what several attributes of layers hold, which after a restore they have to share as well.

    Raises:
        NotPlainError: two arrays are not one but have memory in common, or one has that of a simulator, which would be
            lost.
    """
    found = _Found()
    for layer in layers:
        for name, value in _dynamic(layer):
            found.add(value, path=f"{type(layer).__name__}.{name}")
    found.check_overlaps()
    several = [key for key, count in found.counts.items() if count > 1]
    return {key: label for label, key in enumerate(several)}


class _Found:
    """Objects that can change, found in attributes, and how often each was."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._arrays: dict[int, list[tuple[str, np.ndarray[Any, Any]]]] = {}  # by the owner of their memory

    def add(self, value: Any, *, path: str) -> None:
        kind = type(value)
        if kind in (np.ndarray, list, dict, deque):
            self.counts[id(value)] = self.counts.get(id(value), 0) + 1
            if self.counts[id(value)] > 1:
                return
        if kind is np.ndarray:
            owner = value
            while type(owner.base) is np.ndarray:
                owner = owner.base
            if type(owner.base).__name__ == "PyCapsule" and "mujoco" in sys.modules:
                raise NotPlainError(_VIEW.format(path=path, owner="a simulator's memory"))
            self._arrays.setdefault(id(owner), []).append((path, value))
        elif kind is dict:
            for key, element in value.items():
                self.add(element, path=f"{path}/{key}")
        elif kind in (list, tuple, deque):
            for i, element in enumerate(value):
                self.add(element, path=f"{path}/{i}")

    def check_overlaps(self) -> None:
        for arrays in self._arrays.values():
            if len(arrays) == 1:
                continue
            reaching: list[tuple[int, str, np.ndarray[Any, Any]]] = []  # those that end behind where the next begins
            spans = [(*byte_bounds(array), i) for i, (_, array) in enumerate(arrays)]
            for low, high, i in sorted(spans):
                path, array = arrays[i]
                reaching = [part for part in reaching if part[0] > low]
                for _, other, part in reaching:
                    if _overlap(array, part):
                        raise NotPlainError(_VIEW.format(path=max(path, other), owner=min(path, other)))
                reaching.append((high, path, array))


def _overlap(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    try:
        return np.shares_memory(one, other, max_work=_WORK)  # type: ignore[arg-type]  # any number of them
    except np.exceptions.TooHardError:
        return True


def attributes(
    layer: gymnasium.Env[Any, Any], *, without: Set[str] = frozenset(), labels: Labels = MappingProxyType({})
) -> dict[str, Any]:
    """Return the attributes of a layer that may change from step to step, as plain data; those in `without` left out.

    Raises:
        NotPlainError: one of them is no plain data.
    """
    name = type(layer).__name__
    return {
        key: pack(value, path=f"{name}.{key}", labels=labels) for key, value in _dynamic(layer) if key not in without
    }


def set_attributes(
    layer: gymnasium.Env[Any, Any],
    saved: Mapping[str, Any],
    *,
    without: Set[str] = frozenset(),
    known: dict[int, Any] | None = None,
) -> None:
    """Give a layer the attributes that `attributes` returned, and take from it what it has beside them.

    Objects that it shares with layers before it come from `known`, those that it is the first to have are added there.
    """
    known = {} if known is None else known
    if _has_random_map(layer) and not saved.keys() >= _MAP:
        raise CheckpointError("environment state: expected a random map in it, found none")
    for name, _ in list(_dynamic(layer)):
        if name not in saved and name not in without:
            delattr(layer, name)
    for name, value in saved.items():
        setattr(layer, name, unpack(value, into=getattr(layer, name, None), known=known))


def _dynamic(layer: gymnasium.Env[Any, Any]) -> Iterator[tuple[str, Any]]:
    scratch: frozenset[str] = frozenset().union(*(_SCRATCH.get(kind.__name__, ()) for kind in type(layer).__mro__))
    wrapper = isinstance(layer, gymnasium.Wrapper)
    constants = _CONSTANTS if _has_random_map(layer) else _CONSTANTS | _MAP
    for name, value in vars(layer).items():
        if name in _PLUMBING or name in scratch or isinstance(value, gymnasium.Space | Registration | Config):
            continue
        if wrapper and name in _FUNCTIONS and isinstance(value, types.FunctionType):
            continue
        # Types and dtypes say how a wrapper converts; they hold nothing.
        if isinstance(value, type | np.dtype):
            continue
        if not wrapper and (name in constants or name.endswith(("_img", "_imgs"))):
            continue
        yield name, value


def _has_random_map(layer: gymnasium.Env[Any, Any]) -> bool:
    """Whether it is a frozen lake that drew its map when it was made, which no argument tells."""
    made_with = getattr(layer.spec, "kwargs", {}) if type(layer).__name__ == "FrozenLakeEnv" else {}
    return "map_name" in made_with and made_with["map_name"] is None and made_with.get("desc") is None


def _key(key: Any, *, path: str) -> Any:
    plain = type(key) in (str, int, float, bool, bytes) or (
        type(key) is tuple and all(type(part) in (str, int, float, bool) for part in key)
    )
    if not plain:
        raise NotPlainError(f"{path}: a key is a {type(key).__name__}, which is not plain data")
    return key


def _pack_array(value: np.ndarray[Any, Any], *, path: str) -> Any:
    if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8 and value.dtype.isnative:
        return value.copy()
    if value.dtype.kind in "SU":
        return {"~chars": (value.dtype.str, value.shape, value.tobytes())}
    raise NotPlainError(f"{path}: an array of {value.dtype} is not plain data")


def _pack_object(value: Any, *, path: str, labels: Labels) -> Any:
    kind = type(value)
    if kind is deque:
        elements = [pack(element, path=f"{path}/{i}", labels=labels) for i, element in enumerate(value)]
        return {"~deque": (value.maxlen, elements)}
    if kind is np.random.Generator:
        return {"~generator": generator_state(value)}
    if kind is np.random.RandomState:
        name, words, *rest = value.get_state()
        return {"~legacy": (str(name), np.array(words), *(part for part in rest))}
    if kind is random.Random:
        return {"~python": value.getstate()}
    if kind is RunningMeanStd:
        return {"~moments": [pack(part, path=path) for part in (value.mean, value.var, value.count)]}
    raise NotPlainError(f"{path}: a {kind.__module__}.{kind.__qualname__} is not plain data")


def _unpack_object(tag: str, content: Any, *, into: Any, known: dict[int, Any]) -> Any:
    if tag == _SHARED:
        label, packed = content
        if label not in known:
            known[label] = unpack(packed, into=into, known=known)
        return known[label]
    if tag == "~text":
        return np.str_(content)
    if tag == "~chars":
        dtype, shape, data = content
        return np.frombuffer(data, dtype=dtype).reshape(shape).copy()
    if tag == "~deque":
        return deque((unpack(element, known=known) for element in content[1]), maxlen=content[0])
    if tag == "~moments":
        moments = RunningMeanStd()  # type: ignore[no-untyped-call]
        moments.mean, moments.var, moments.count = (unpack(part) for part in content)
        return moments
    return _unpack_generator(tag, content, into=into)


def _unpack_generator(tag: str, content: Any, *, into: Any) -> Any:
    if tag == "~legacy":
        legacy = into if type(into) is np.random.RandomState else np.random.RandomState()
        legacy.set_state(tuple(content))
        return legacy
    if tag == "~python":
        python = into if type(into) is random.Random else random.Random()
        python.setstate(tuple(content))
        return python
    rng = into if type(into) is np.random.Generator else np.random.Generator(_bit_generator(content))
    set_generator_state(rng, content)
    return rng


def _bit_generator(state: Mapping[str, Any]) -> np.random.BitGenerator:
    known: dict[str, type[np.random.BitGenerator]] = {
        kind.__name__: kind
        for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
    }
    name = str(state.get("bit_generator"))
    if name not in known:
        raise CheckpointError(f"environment state: expected one of numpy's bit generators, found {name!r}")
    return known[name]()
