"""The pages name every knob, option and exit code that the program has."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from digideep import errors
from digideep.params.source import presets
from digideep.pipeline.cli import build_parser

ROOT = Path(__file__).resolve().parents[2]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_knob_of_a_preset_is_explained() -> None:
    knobs = {key for name in presets() for key in importlib.import_module(name).cpanel}
    text = page("docs/parameters.md")

    assert len(knobs) > 50
    assert sorted(key for key in knobs if f"`{key}`" not in text) == []


def test_every_option_is_shown_somewhere() -> None:
    options = {option for action in build_parser()._actions for option in action.option_strings}
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")) + page("README.md")

    assert len(options) > 35
    assert sorted(option for option in options if option.startswith("--") and option not in text) == []


def test_every_exit_code_is_explained() -> None:
    classes = [getattr(errors, name) for name in errors.__all__ if name.endswith(("Error", "Failure"))]
    codes = {0, errors.EXIT_PREEMPTED, *(cls.exit_code for cls in classes)}

    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", page("docs/sessions.md"), re.MULTILINE)}

    assert codes == explained
