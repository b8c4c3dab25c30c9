"""The training episodes of a session, from its monitor files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

__all__ = ["Row", "read_rows"]


class Row(NamedTuple):
    """One episode: seconds at its end, return and length."""

    at: float
    return_: float
    length: int


def read_rows(directory: Path) -> list[Row]:
    """Return the episodes of all monitor files of a directory, in the order of their ends."""
    rows = []
    for path in sorted(directory.glob("*.monitor.csv")):
        with open(path, encoding="utf-8", newline="") as file:
            file.readline()  # what the file says of itself
            rows += [Row(float(row["t"]), float(row["r"]), int(row["l"])) for row in csv.DictReader(file)]
    return sorted(rows, key=lambda row: row.at)
