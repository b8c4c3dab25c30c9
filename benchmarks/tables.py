"""Results on disk: one table for each benchmark and number of cores, in one JSON file."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.result import Result

__all__ = ["Figure", "Table", "machine", "read_tables", "store_table"]

_FORMAT = 1


class Figure(NamedTuple):
    """One figure of a benchmark that trains nothing, measured in turns: ours and what it is compared with.

    `compares` says how: `ratio` is theirs / ours, above 1 where ours takes less; `rate` is ours / theirs, above 1 where
    ours does more; `difference` is ours - theirs. `group` sets apart those of one benchmark.
    """

    name: str
    unit: str
    against: str
    ours: list[float]
    theirs: list[float]
    compares: str = "ratio"
    group: str = ""


class Table(NamedTuple):
    """What one benchmark gave on one number of cores: runs in the order in which they were made, or figures.

    `machine` says where and when, with the load before and after; `setting` what was trained, as it stood then.
    """

    id: str
    cores: int
    threads: int
    machine: dict[str, Any]
    runs: list[Result]
    figures: list[Figure]
    setting: dict[str, Any] | None = None

    def by_contender(self) -> dict[str, list[Result]]:
        """Return the runs of each contender, in the order of their seeds."""
        found: dict[str, list[Result]] = {}
        for run in sorted(self.runs, key=lambda run: run.seed):
            found.setdefault(run.contender, []).append(run)
        return found


def machine() -> dict[str, Any]:
    """Return what is known of this machine at this moment."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": [round(os.getloadavg()[0], 2)],
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def read_tables(paths: Iterable[Path]) -> list[Table]:
    """Return the tables of all files; one of a later file replaces that of an earlier one.

    Raises:
        ValueError: a file holds something else.
    """
    found: dict[tuple[str, int], Table] = {}
    for path in paths:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']}")
            tables = [_table(entry) for entry in content["tables"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: expected results of scripts/bench, found something else ({error})") from error
        found.update({(table.id, table.cores): table for table in tables})
    return sorted(found.values(), key=_order)


def _order(table: Table) -> tuple[int, str, int]:
    """Return the place of a table: B2 before B10, and what has no number last."""
    number = re.match(r"B(\d+)", table.id)
    return int(number[1]) if number else sys.maxsize, table.id, table.cores


def _table(entry: dict[str, Any]) -> Table:
    return Table(
        **{
            **entry,
            "runs": [Result.of(run) for run in entry["runs"]],
            "figures": [Figure(**figure) for figure in entry["figures"]],
        }
    )


def store_table(path: Path, table: Table) -> None:
    """Add a table to a file, in place of one of the same benchmark and number of cores."""
    others = read_tables([path]) if path.exists() else []
    kept = [other for other in others if (other.id, other.cores) != (table.id, table.cores)]
    tables = sorted([*kept, table], key=_order)
    beside = path.with_name(path.name + ".new")
    beside.write_text(_text(tables), encoding="utf-8")
    beside.replace(path)


def _text(tables: list[Table]) -> str:
    """Return JSON with one line a run, so that two files can be compared by eye."""
    parts = []
    for table in tables:
        head = {key: value for key, value in table._asdict().items() if key not in ("runs", "figures")}
        runs = ",\n".join(json.dumps(run._asdict()) for run in table.runs)
        figures = ",\n".join(json.dumps(figure._asdict()) for figure in table.figures)
        parts.append(f'{json.dumps(head)[:-1]}, "runs": [\n{runs}\n], "figures": [\n{figures}\n]}}')
    return f'{{"format": {_FORMAT}, "tables": [\n' + ",\n".join(parts) + "\n]}\n"
