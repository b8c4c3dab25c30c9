"""Every report of docs/field_reports.md is covered by tests that exist, or says with which later part it is due."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "field_reports.md").read_text(encoding="utf-8")

_REFERENCE = re.compile(r"[\w.-]+(?:/[\w.-]+)?#\d+")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_LATER = ("due with the engines of many actors", "due with several agents", "due with sweeps")
_NO_NUMBER = {"ml-agents, published runs whose timers cover the last seconds only"}


def table() -> list[list[str]]:
    """Return the cells of every row."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return [row for row in cells if row[0] != "report"]


@functools.cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_report_names_its_source_and_stands_once() -> None:
    references = [_REFERENCE.findall(report) for report, _, _ in table()]

    assert all(found for found, row in zip(references, table(), strict=True) if row[0] not in _NO_NUMBER)
    flat = [reference for found in references for reference in found]
    assert len(flat) == len(set(flat))
    assert len(table()) == 64


def test_each_report_is_covered_by_tests_that_exist_or_due_later() -> None:
    for report, _, shown in table():
        tests = _TEST.findall(shown)

        assert tests or shown in _LATER, report
        for path, name in tests:
            assert (ROOT / path).is_file(), path
            assert name in functions(path), f"{path}::{name}"
