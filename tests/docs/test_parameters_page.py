"""The tables of docs/parameters.md say of each knob what the program says of it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from digideep.params.describe import Knob, knobs_of
from digideep.params.loading import load_params
from digideep.params.replay import MEMORY
from digideep.params.source import presets
from digideep.pipeline.options import SessionOptions
from digideep.utility.node import TYPE, configuration_class
from digideep.utility.tree import get

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parameters.md"
HEADER = "| Knob | Type | Default | Unit | Meaning |"


class Row(NamedTuple):
    """What a table says of a knob; `defaults` are those of the methods, as JSON has them."""

    knob: str
    type: str
    defaults: set[str]
    unit: str
    meaning: str


class Known(NamedTuple):
    """What the program says of a knob in one preset, and what its configuration class has without one."""

    preset: str
    knob: Knob
    default: Any


def rows(text: str) -> Iterator[Row]:
    """Yield every row of the tables of knobs."""
    inside = False
    for line in text.splitlines():
        inside = line == HEADER or (inside and line.startswith("|"))
        if inside and line.startswith("| `"):
            name, kind, default, unit, meaning = (cell.strip() for cell in line.strip("|").split("|"))
            yield Row(name.strip("`"), kind, set(re.findall(r"`([^`]*)`", default)), unit, meaning)


@pytest.fixture(scope="module")
def known() -> dict[str, list[Known]]:
    """Every knob of every preset by name."""
    found: dict[str, list[Known]] = {}
    for preset in presets():
        loaded = load_params(SessionOptions(params=preset))
        for knob in knobs_of(loaded):
            default = default_at(loaded.base, knob.path) if knob.path else MEMORY.get(knob.name)
            found.setdefault(knob.name, []).append(Known(preset, knob, default))
    return found


def default_at(params: Mapping[str, Any], path: str) -> Any:
    """Return the default of the configuration class's field at a path, MISSING where there is none."""
    parent, _, key = path.rpartition("/")
    holder = get(params, parent, where="") if parent else params
    fields = dataclasses.fields(configuration_class(holder, where=parent)) if TYPE in holder else ()
    return next((field.default for field in fields if field.name == key), dataclasses.MISSING)


def test_every_knob_of_every_preset_has_a_meaning(known: dict[str, list[Known]]) -> None:
    assert [f"{one.preset}: {name}" for name, many in known.items() for one in many if not one.knob.meaning] == []


def test_type_and_unit_of_each_row_are_those_of_the_program(known: dict[str, list[Known]]) -> None:
    told = list(rows(PAGE.read_text(encoding="utf-8")))

    wrong = [
        f"{one.preset}: {row.knob}: {one.knob.type}, {one.knob.unit}"
        for row in told
        for one in known[row.knob]
        if (row.type, row.unit) != (one.knob.type, one.knob.unit) or not row.meaning
    ]

    assert len(told) > 35
    assert len({row.knob for row in told}) == len(told)
    assert wrong == []


def test_the_defaults_of_each_row_are_those_of_the_configuration_classes(known: dict[str, list[Known]]) -> None:
    told = {row.knob: row.defaults for row in rows(PAGE.read_text(encoding="utf-8"))}

    expected = {name: {json.dumps(one.default) for one in known[name]} for name in told}

    assert told == expected
