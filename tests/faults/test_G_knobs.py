"""G: every knob with a value it cannot have, or misspelt by a letter: one line that names knob and fix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cold import FORM, Cold

from digideep.errors import UsageError, one_line
from digideep.params.describe import Knob, knobs_of
from digideep.params.loading import load_params
from digideep.params.overrides import field_at
from digideep.pipeline.cli import parse
from digideep.pipeline.options import SessionOptions
from digideep.utility.node import Field

PRESET = "digideep.params.pendulum_ppo"
BASE = load_params(SessionOptions(params=PRESET))
KNOBS = {knob.name: knob for knob in knobs_of(BASE)}

# One value of each type that JSON has; each knob is given those that are not of its own.
SAMPLES: dict[str, Any] = {
    "integer": 3, "number": 0.5, "boolean": True, "string": "x", "null": None, "list": [1, "a"], "mapping": {"a": 1},
}  # fmt: skip


def _wrong(knob: Knob) -> Iterator[tuple[Any, str]]:
    """Yield values that a knob cannot have, and why."""
    for name, value in SAMPLES.items():
        fits = (
            name in knob.type
            or (name == "integer" and "number" in knob.type)
            or (name == "list" and "list" in knob.type)
        )
        if not fits:
            yield value, "type"
    if "list of integer" in knob.type:
        yield from (
            ([1.5], "type"),
            ([True], "type"),
            ([None], "type"),
            (["a"], "type"),
            ([0], "range"),
            ([-1], "range"),
        )
    if "one of" in knob.type:
        yield "none of them", "type"
    field = field_at(BASE.base, knob.path) if knob.path else None
    if isinstance(field, Field) and "list" not in knob.type:
        for limit, step in (("low", -1), ("high", 1), ("above", 0)):
            if (edge := field.limits.get(limit)) is not None:
                beyond = edge + step * max(1, abs(edge))  # to 1e30, 1 is nothing
                yield type(knob.value or 0)(beyond), "range"
    if knob.type.startswith("integer"):
        yield 2**63, "size"


def _told(*argv: str) -> str:
    """Return the line with which parameters are refused, an empty string where they are taken."""
    try:
        request = parse(["--params", PRESET, *argv])
        assert isinstance(request, SessionOptions)
        load_params(request)
    except UsageError as error:
        return f"digideep: error: {one_line(error)}\n"
    return ""


@pytest.mark.parametrize("name", KNOBS)
def test_G_a_value_that_a_knob_cannot_have_is_refused_with_its_name(name: str) -> None:
    wrong: list[str] = []
    for value, why in _wrong(KNOBS[name]):
        line = _told("--cpanel", json.dumps({name: value}))
        if not FORM.fullmatch(line) or name not in line:
            wrong.append(f"{name}={value!r} ({why}): {line!r}")

    assert wrong == []


def test_G_numbers_that_are_none_are_refused_behind_set() -> None:
    numeric = [name for name, knob in KNOBS.items() if knob.type.startswith(("integer", "number"))]
    wrong: list[str] = []
    for index, name in enumerate(numeric):
        value = ("nan", ".nan", ".inf", "-.inf", "1e999", "1_000", "\u0663", "1,5", "0b1", "--1", "1 2")[index % 11]
        line = _told("--set", f"{name}={value}")
        if not FORM.fullmatch(line) or name not in line:
            wrong.append(f"{name}={value}: {line!r}")

    assert len(numeric) > 30
    assert wrong == []


def test_G_a_knob_misspelt_by_a_letter_gets_the_nearest_one() -> None:
    wrong: list[str] = []
    for index, name in enumerate(KNOBS):
        middle = len(name) // 2
        swapped = name[:middle] + name[middle : middle + 2][::-1] + name[middle + 2 :]
        ways = [
            name[:-1] or "x",
            f"{name}s",
            name[:middle] + name[middle + 1 :],
            swapped,
            name.upper(),
            name.replace("_", "-"),
        ]
        spelt = [way for way in ways if way and way not in KNOBS]
        way = spelt[index % len(spelt)]
        option = ["--set", f"{way}=1"] if index % 2 else ["--cpanel", json.dumps({way: 1})]
        line = _told(*option)
        if f"the unknown key '{way}'; did you mean '{name}'?" not in line and len(name) > 2:
            wrong.append(f"{way} for {name}: {line}")

    assert wrong == []


def test_G_a_path_misspelt_by_a_letter_gets_the_nearest_one() -> None:
    paths = sorted({knob.path for knob in KNOBS.values() if knob.path})
    wrong: list[str] = []
    for index, path in enumerate(paths):
        place = 2 + index % (len(path) - 3)
        way = path[:place] + path[place + 1 :]
        line = _told("--set", f"{way}=1") if index % 2 else _told("--repeal", json.dumps({way: 1}))
        if not FORM.fullmatch(line) or "did you mean '/" not in line:
            wrong.append(f"{way}: {line}")

    assert len(paths) > 40
    assert wrong == []


COMBINATIONS = [
    (["number_epochs=3", "total_frames=100"], "number_epochs, total_frames"),
    (["number_epochs=0", "total_frames=0"], "number_epochs, total_frames"),
    (["clip_param_final=0.1", "seed=1", "seed=2"], "seed"),
    (["seed=1", "/runner/seed=2"], "seed"),
    (["num_workers=2.0"], "num_workers"),
    (["num_workers=car"], "num_workers"),
    (['engine={"type": "digideep.environment.config:EnvConfig"}'], "engine"),
    (['engine={"type": "none"}'], "engine"),
    (["engine=serial"], "engine"),
    (["/agents/agent=3"], "/agents/agent"),
    (["/agents/agent/type=digideep.model.config:MLPConfig"], "/agents/agent"),
    (["/agents/agent/memory=trian"], "did you mean 'train'?"),
    (["/env={}"], "/env"),
    (["/memory=3"], "/memory"),
    (["on_epoch=nothing"], "on_epoch"),
    (["on_epoch=os:none_at_all"], "on_epoch"),
    (["on_epoch=os:sep"], "on_epoch"),
]


@pytest.mark.parametrize(("sets", "word"), COMBINATIONS)
def test_G_values_that_do_not_go_together_are_refused(sets: list[str], word: str) -> None:
    line = _told("--set", *sets)

    assert FORM.fullmatch(line), line
    assert word in line


BEYOND = {
    "digideep.params.classic_a2c": ["lr=1e39", "lr_final=1e308", "entropy_coef=1e31", "optimizer_eps=1e39"],
    "digideep.params.classic_ddpg": ["last_bound=1e39", "last_bound=3e38", "noise_scale=1e308"],
    "digideep.params.classic_dqn": ["noisy_deviation=1e7", "priority_epsilon=1e39", "adam_eps=1e39"],
    "digideep.params.classic_td3": ["critic_weight_decay=1e39", "target_noise=1e39", "target_noise_bound=1e39"],
    "digideep.params.pendulum_ppo": ["clip_param=1e39", "value_clip=1e39", "max_grad_norm=1e39"],
    "digideep.params.sacv2_params": ["target_entropy=1e39", "target_entropy=-1e39", "temperature=1e39"],
    "digideep.params.sac_params": ["reward_scale=1e39", "critic_lr=1e39"],
}


@pytest.mark.parametrize(("preset", "knob"), [(preset, knob) for preset in BEYOND for knob in BEYOND[preset]])
def test_G_a_number_beyond_what_float32_computes_with_is_refused_at_once(preset: str, knob: str) -> None:
    request = parse(["--params", preset, "--set", knob])
    assert isinstance(request, SessionOptions)

    name, _, value = knob.partition("=")
    with pytest.raises(UsageError, match=rf"{name}: expected a finite number .*found {re.escape(str(float(value)))};"):
        load_params(request)


@pytest.mark.parametrize("knob", ["lr=x", "lrr=1", "seed=1.5", "hidden_sizes=[0]", "number_epochs=3"])
def test_G_the_program_refuses_a_knob_without_torch_and_leaves_nothing(cold: Cold, tmp_path: Path, knob: str) -> None:
    assert cold.complaints("main", "--params", PRESET, "--set", knob, cwd=tmp_path) == []
