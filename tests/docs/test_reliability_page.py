"""docs/reliability.md states every promise that has tests, and every mutant with the test that it turns red."""

from __future__ import annotations

import re
from pathlib import Path

from mutants import MUTANTS
from promises import PROMISES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    """Return the cells of the rows of all tables below a heading, without their headers."""
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:2] == "| "]
    return [row for row in cells if row[0] not in ("id", "mutant")]


def test_every_promise_is_stated_once_and_no_other() -> None:
    stated = [name for ids, _ in rows("Promises") for name in ids.split(", ")]

    assert sorted(stated) == sorted(PROMISES)


def test_every_mutant_stands_there_with_its_test() -> None:
    stated = {name: re.findall(r"`([\w/.]+?)(?:::(test_\w+))?`", shown)[0] for name, _, shown in rows("Mutants")}

    assert stated == {
        name: (path, function.partition("[")[0])
        for name, mutant in MUTANTS.items()
        for path, _, function in [mutant.test.partition("::")]
    }
