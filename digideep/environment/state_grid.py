"""Grid worlds of minigrid written down: what stands in each cell, what is carried, and the plain attributes.

Environments that keep references to what stands in the grid, as those with obstacles that move or with rooms do, cannot
be written down so: what they remember would be other things than those in the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from digideep.environment.state_plain import NotPlainError, attributes, pack, set_attributes, unpack
from digideep.environment.state_simulators import Adapter
from digideep.errors import CheckpointError

__all__ = ["GRID"]

_HANDLED = frozenset("grid carrying actions window render_size screen_size _ezpickle_args _ezpickle_kwargs".split())
_MODULE = "minigrid.core.world_object"
_KINDS = frozenset("Wall Floor Door Key Ball Box Goal Lava".split())
_COMMON = ("color", "init_pos", "cur_pos")
_OWN: Mapping[str, tuple[str, ...]] = {"Door": ("is_open", "is_locked")}
_DEPTH = 8  # boxes in boxes


def _get(env: Any) -> dict[str, Any]:
    """Return a grid world as plain data.

    Raises:
        NotPlainError: something else than the grid refers to what stands in it, or a thing is of another kind.
    """
    saved = attributes(env, without=_HANDLED)
    things: dict[str, int] = {}
    kinds: list[Any] = []
    cells: list[int] = []
    seen: set[int] = set()
    for thing in [*env.grid.grid, env.carrying]:
        if thing is None:
            cells.append(-1)
            continue
        if id(thing) in seen:
            raise NotPlainError("grid: one thing stands in two cells")
        seen.add(id(thing))
        written = _written(thing)
        place = things.setdefault(repr(written), len(kinds))
        if place == len(kinds):
            kinds.append(written)
        cells.append(place)
    return {"attributes": saved, "size": (env.grid.width, env.grid.height), "kinds": kinds, "cells": cells}


def _set(env: Any, saved: Mapping[str, Any]) -> None:
    kinds, cells, (width, height) = saved["kinds"], saved["cells"], saved["size"]
    if len(cells) != width * height + 1:
        raise CheckpointError(f"environment state: expected {width * height + 1} cells, found {len(cells)}")
    set_attributes(env, saved["attributes"], without=_HANDLED)
    things = [None if place < 0 else _made(kinds[place]) for place in cells]
    env.carrying = things.pop()
    env.grid = type(env.grid)(width, height)
    env.grid.grid = things


def _written(thing: Any, *, depth: int = 0) -> dict[str, Any]:
    """Return one thing of the grid as plain data, what it contains included."""
    kind = type(thing).__name__
    if type(thing).__module__ != _MODULE or kind not in _KINDS or depth > _DEPTH:
        raise NotPlainError(f"grid: a {type(thing).__module__}.{kind} is not plain data")
    names = (*_COMMON, *_OWN.get(kind, ()))
    inner = thing.contains
    if vars(thing).keys() - {*names, "type", "contains"}:
        raise NotPlainError(f"grid: a {kind} has more attributes than are known")
    return {
        "kind": kind,
        "contains": None if inner is None else _written(inner, depth=depth + 1),
        **{name: pack(getattr(thing, name), path=name) for name in names},
    }


def _made(saved: Mapping[str, Any], *, depth: int = 0) -> Any:
    """Return a thing that is as `_written` found it."""
    from minigrid.core import world_object

    kind = saved["kind"]
    if kind not in _KINDS or depth > _DEPTH:
        raise CheckpointError(f"environment state: expected a thing of the grid, found {str(kind)[:40]!r}")
    made = getattr(world_object, kind)
    thing = made() if kind in ("Goal", "Lava") else made(saved["color"])
    inner = saved["contains"]
    thing.contains = None if inner is None else _made(inner, depth=depth + 1)
    for name in (*_COMMON, *_OWN.get(kind, ())):
        setattr(thing, name, unpack(saved[name]))
    return thing


GRID = Adapter(_get, _set)
"""How grid worlds of minigrid are written down."""
