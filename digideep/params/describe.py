"""What presets there are, and what each knob of one is: as a table for people, as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from digideep.model.config import QNetworkConfig
from digideep.params.loading import LoadedParams, load_params
from digideep.params.overrides import field_at
from digideep.params.source import presets
from digideep.pipeline.options import SessionOptions
from digideep.utility.node import Config, Field, configuration_class
from digideep.utility.tree import get, has
from digideep.utility.values import annotation_of, type_name

__all__ = ["Knob", "describe", "describe_text", "knobs_of", "list_presets"]

_VALUE_WIDTH = 40
_NODES = {"/engine": "node of the engine: how sampling and learning are scheduled"}
_OF_CRITICS = ("critic_hidden_sizes", "critic_observations")
_FEEDS = {"prioritized": "whether transitions with large errors are drawn more often"}  # knobs without a field


class Knob(NamedTuple):
    """One key of a control panel; `path` is empty where it only feeds other values."""

    name: str
    value: Any
    type: str
    unit: str
    meaning: str
    path: str


def list_presets(*, as_json: bool) -> str:
    """Return the presets with the first line of what they say about themselves."""
    found = presets()
    if as_json:
        return json.dumps([{"name": name, "meaning": meaning} for name, meaning in found.items()], indent=2)
    return _table(list(found.items()))


def describe(options: SessionOptions, *, as_json: bool) -> str:
    """Return what `--params NAME --describe` prints, with the changes that the options make.

    Raises:
        UsageError: as `load_params`.
    """
    return describe_text(load_params(options), as_json=as_json)


def describe_text(loaded: LoadedParams, *, as_json: bool) -> str:
    """Return every knob with value, type, unit and meaning."""
    knobs = knobs_of(loaded)
    if as_json:
        return json.dumps([knob._asdict() for knob in knobs], indent=2)
    rows = [("knob", "value", "type", "unit", "meaning")]
    rows += [(knob.name, _short(knob.value), knob.type, knob.unit, knob.meaning) for knob in knobs]
    return _table(rows)


def knobs_of(loaded: LoadedParams) -> list[Knob]:
    """Return every knob of loaded parameters, in the order of their control panel, then what was changed by path alone.

    The value is the one that a training has: that of a change by path, where one reaches the knob's place.
    """
    knobs = [_knob(key, value, loaded) for key, value in loaded.cpanel.items()]
    shown = {knob.path for knob in knobs}
    paths = dict.fromkeys(entry["path"] for entry in loaded.entries if entry["path"] not in shown)
    return knobs + [_knob(path, get(loaded.params, path, where=path), loaded, path=path) for path in paths]


def _knob(key: str, value: Any, loaded: LoadedParams, *, path: str | None = None) -> Knob:
    path = loaded.knobs.get(key, "") if path is None else path
    tree = loaded.params if path and has(loaded.params, path) else loaded.base  # a changed type may lack the field
    field = field_at(tree, path, allowed=loaded.allowed) if path else None
    if path and has(loaded.base, path) and (found := get(tree, path, where=key)) != get(loaded.base, path, where=key):
        value = found
    if field is not None and key in _OF_CRITICS and _has_action_values(tree, path, loaded):
        field = field._replace(doc=f"none: the network of action values has no critic; {json.dumps(value)} alone")
    if field is None:  # a whole node, or a knob that only feeds others
        field = Field(annotation_of(value), _NODES.get(path) or _FEEDS.get(key, ""), "", {})
    return Knob(key, value, type_name(field.annotation), field.unit, field.doc, path)


def _has_action_values(tree: Mapping[str, Any], path: str, loaded: LoadedParams) -> bool:
    """Whether the node around a path is a network of action values, which is value function and policy in one."""
    parent = path.rpartition("/")[0]
    cls: type[Config] = configuration_class(get(tree, parent, where=path), where=parent, allowed=loaded.allowed)
    return issubclass(cls, QNetworkConfig)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _VALUE_WIDTH else text[: _VALUE_WIDTH - 3] + "..."


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
