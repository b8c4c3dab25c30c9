"""The page about speed shows what was stored, and nothing that was typed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import BEGIN, END, render
from benchmarks.tables import read_tables

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results.json"


def test_figures_of_the_page_are_those_of_the_stored_runs() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")

    shown = page.split(BEGIN)[1].split(END)[0].strip()

    assert shown == render(read_tables([RESULTS])).strip()
