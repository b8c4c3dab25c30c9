"""The picture of docs/performance.md: how many times faster, and learning curves. Needs matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import OURS
from benchmarks.report import better_reference, setting_of, speed_ratio
from benchmarks.result import POINTS, Result
from benchmarks.settings import LEARNING
from benchmarks.statistics import mean_interval
from benchmarks.tables import Table

__all__ = ["draw"]

_COLOURS = ("#1f6f8b", "#99582a")


def draw(tables: Sequence[Table], path: Path) -> None:
    """Write the picture: on the left the ratio for each benchmark, on the right the curves of B0, or else of B1.

    Raises:
        ValueError: no table trains with both digideep and the peer that every benchmark has.
    """
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "digideep"  # the same results are the same bytes
    from matplotlib import pyplot

    comparable = [table for table in tables if OURS in table.by_contender() and better_reference(table) is not None]
    if not comparable:
        raise ValueError("plot: expected a table with digideep and Stable-Baselines3, found none")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    _ratios(left, [table for table in comparable if table.id not in LEARNING] or comparable)
    _curves(right, next((table for table in comparable if table.id == "B0"), comparable[0]))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _ratios(axes: Any, tables: Sequence[Table]) -> None:
    rows = list(reversed(tables))
    for index, table in enumerate(rows):
        runs = table.by_contender()
        ratio = speed_ratio(runs[OURS], runs[better_reference(table) or OURS])
        errors = [[ratio.value - ratio.low], [ratio.high - ratio.value]]
        axes.barh(index, ratio.value, color=_COLOURS[0 if table.cores == 1 else 1], xerr=errors, height=0.7)
        axes.annotate(f"{ratio.value:.1f}", (ratio.high, index), (4, 0), textcoords="offset points", va="center")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{table.id}, {table.cores} core{'s'[: table.cores - 1]}" for table in rows])
    axes.set_xlabel("steps a second / those of Stable-Baselines3 (better row)")
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def _curves(axes: Any, table: Table) -> None:
    runs = table.by_contender()
    for name, colour in zip((OURS, better_reference(table) or OURS), _COLOURS, strict=True):
        points = [_point(runs[name], index) for index in range(POINTS)]
        drawn = [point for point in points if point is not None]
        frames, values, lows, highs = zip(*drawn, strict=True)
        axes.plot(frames, values, color=colour, label=name)
        axes.fill_between(frames, lows, highs, color=colour, alpha=0.2, linewidth=0)
    axes.set_title(f"{table.id}: {setting_of(table).title}", fontsize="medium")
    axes.set_xlabel("frames (thousands)")
    axes.set_ylabel("mean return, 95 % interval")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _point(runs: Sequence[Result], index: int) -> tuple[float, float, float, float] | None:
    values = [value for run in runs if (value := run.curve[index]) is not None]
    if not values:
        return None
    frames = statistics.median(run.frames for run in runs) * (index + 1) / POINTS / 1000
    mean = mean_interval(values)
    return frames, mean.value, mean.low, mean.high
