"""The tables of what trains nothing: stepping, single operations, start-up, and where the time goes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.contenders import OURS
from benchmarks.settings import SETTINGS
from benchmarks.statistics import Estimate, median_difference, median_ratio
from benchmarks.tables import Figure, Table

__all__ = ["cores_line", "figures_section", "interval", "machine_line", "time_section"]

_PARTS = ("environments", "acting", "rest of a rollout", "learning", "rest of an update", "logs and the rest")
_SAC_PARTS = (
    "environments", "acting", "rest of a rollout", "draw", "targets", "critics", "policy", "Adam and targets' step",
    "rest of an update", "logs and the rest",
)  # fmt: skip


def figures_section(table: Table) -> str:
    """Return the section of B7, B8 or B10."""
    return _stepping(table) if table.id == "B7" else _figures(table)


def time_section(tables: Sequence[Table], *, cores: int) -> str:
    """Return where the time of each benchmark goes, against the limit of its parts; nothing where neither is known."""
    limited = next((table for table in tables if table.id == "limits" and table.cores == cores), None)
    least: dict[str, dict[str, float]] = {}
    for figure in limited.figures if limited is not None else ():
        least.setdefault(figure.group, {})[figure.name] = statistics.median(figure.ours)
    shown = [_time_table(tables, parts, cores=cores, least=least) for parts in (_PARTS, _SAC_PARTS)]
    if not any(shown):
        return ""
    head = [
        f"### Where the time goes, {cores} core{'s'[: cores - 1]}",
        "",
        "Microseconds a frame. The limit is each part alone, by hand, with nothing around it.",
    ]
    return "\n\n".join(["\n".join(head), *(table for table in shown if table)])


def _time_table(
    tables: Sequence[Table], parts: Sequence[str], *, cores: int, least: dict[str, dict[str, float]]
) -> str:
    """Return the rows of the benchmarks whose time is known by these parts, each with its limits, or nothing."""
    lines = []
    for table in tables:
        runs = [run for run in table.runs if run.contender == OURS and set(run.profile) == set(parts)]
        if table.cores != cores or table.id not in SETTINGS or not runs:
            continue
        own = {part: statistics.median(run.profile[part] for run in runs) for part in parts}
        whole = statistics.median(1e6 / run.steps_per_s for run in runs)
        lines.append(_time_row(table.id, own, whole=whole, parts=parts))
        for group, limit in least.items():
            name, _, library = group.partition(" ")
            if name == table.id:
                title = f"{name}, limit in {library}" if library else f"{name}, limit"
                lines.append(_time_row(title, limit, whole=sum(limit.values()), parts=parts))
    head = [f"| | {' | '.join(parts)} | all | steps/s |", "|---" * (len(parts) + 3) + "|"]
    return "\n".join([*head, *lines]) if lines else ""


def _time_row(name: str, taken: dict[str, float], *, whole: float, parts: Sequence[str]) -> str:
    cells = [_shown(taken[part]) if part in taken else "" for part in parts]
    return f"| {name} | {' | '.join(cells)} | {_shown(whole)} | {1e6 / whole:,.0f} |"


def _stepping(table: Table) -> str:
    """Return, for each environment, `auto` against the best way of ours that saves its state, and the best of all."""
    lines = [
        f"### {table.id}: stepping alone, random actions, {cores_line(table)}",
        "",
        "| | `auto`, steps/s | against the best of ours that saves its state | against the best of all |",
        "|---|---|---|---|",
    ]
    for name in dict.fromkeys(figure.name for figure in table.figures):
        figures = [figure for figure in table.figures if figure.name == name]
        savers = [figure for figure in figures if figure.group]
        rate = statistics.median(value for figure in figures for value in figure.ours)
        lines.append(f"| {name} | {rate:,.0f} | {_least(savers)} | {_least(figures)} |")
    return "\n".join([*lines, "", machine_line(table)])


def _least(figures: Sequence[Figure]) -> str:
    """Return the smallest of the ratios and the way it belongs to."""
    if not figures:
        return "none"
    ratios = {figure.against: median_ratio(figure.ours, figure.theirs) for figure in figures}
    way = min(ratios, key=lambda name: ratios[name].value)
    return f"{interval(ratios[way])}: {way}"


def _figures(table: Table) -> str:
    title = {"B8": "single operations", "B10": "start-up"}.get(table.id, "")
    kind = "more" if table.figures[0].compares == "difference" else "times as fast"
    lines = [
        f"### {table.id}: {title}, {cores_line(table)}",
        "",
        f"| | digideep | compared with | | {kind} | 95 % interval |",
        "|---|---|---|---|---|---|",
        *(_figure(figure) for figure in table.figures),
        "",
        machine_line(table),
    ]
    return "\n".join(lines)


def _figure(figure: Figure) -> str:
    mine, other = statistics.median(figure.ours), statistics.median(figure.theirs)
    if figure.compares == "difference":
        estimate = median_difference(figure.ours, figure.theirs)
        shown = f"{estimate.value:+.2f} {figure.unit} | {estimate.low:+.2f} to {estimate.high:+.2f}"
    else:
        pair = (figure.ours, figure.theirs) if figure.compares == "rate" else (figure.theirs, figure.ours)
        estimate = median_ratio(*pair)
        shown = f"{estimate.value:.2f} | {estimate.low:.2f} to {estimate.high:.2f}"
    return (
        f"| {figure.name} | {_shown(mine)} {figure.unit} | {figure.against} | {_shown(other)} {figure.unit} | {shown} |"
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def interval(estimate: Estimate, digits: int = 2) -> str:
    """Return the value and its interval in words."""
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def cores_line(table: Table) -> str:
    """Return on what the table was measured."""
    threads = f"{table.threads} torch thread{'s' if table.threads > 1 else ''}"
    return f"{table.cores} core{'s' if table.cores > 1 else ''}, {threads}"


def machine_line(table: Table) -> str:
    """Return the machine, its load and the date."""
    about = table.machine
    load = " to ".join(str(value) for value in about["load"])
    return f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, load {load}, {about['date']}."
