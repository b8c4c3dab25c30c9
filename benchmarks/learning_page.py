"""The tables of docs/results.md, rendered from the stored trainings so that no figure there is typed by hand."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.installing import ROOT
from benchmarks.learning import WINDOW, Learned
from benchmarks.learning_runs import RUNS, LearningRun
from benchmarks.report import fill_page
from benchmarks.statistics import Estimate, mean_interval

__all__ = ["PAGE", "render_learned", "sparkline", "write_page"]

PAGE = ROOT / "docs" / "results.md"
"""The page."""

_LEVELS = "▁▂▃▄▅▆▇█"


def write_page(learned: Sequence[Learned], page: Path = PAGE) -> None:
    """Put the tables into the page, between its marks."""
    fill_page(page, render_learned(learned))


def render_learned(learned: Sequence[Learned]) -> str:
    """Return a summary and one section for each run that has trainings, in Markdown."""
    by_name = {run.name: [one for one in learned if one.name == run.name] for run in RUNS}
    made = [run for run in RUNS if by_name[run.name]]
    missing = [f"`{run.name}`" for run in RUNS if len(by_name[run.name]) < len(run.seeds)]
    parts = []
    if made:
        parts.append(_summary(made, by_name))
    if missing:
        parts.append(f"Not measured yet with all seeds: {', '.join(missing)}.")
    parts += [_section(run, by_name[run.name]) for run in made]
    return "\n\n".join(parts) + "\n"


def sparkline(values: Iterable[float | None], *, low: float, high: float) -> str:
    """Return one character a value, from the lowest block at `low` to the highest at `high`; a blank for None."""
    span = high - low or 1.0
    top = len(_LEVELS) - 1
    return "".join(" " if value is None else _LEVELS[round(top * (value - low) / span)] for value in values)


def _figure(run: LearningRun, one: Learned) -> float | None:
    return one.test_return if run.measure == "test" else one.rise


def _mean(run: LearningRun, learned: Sequence[Learned]) -> Estimate | None:
    figures = [figure for one in learned if (figure := _figure(run, one)) is not None]
    return mean_interval(figures) if figures else None


def _summary(made: Sequence[LearningRun], by_name: dict[str, list[Learned]]) -> str:
    lines = [
        "| | preset | frames | time | seeds | final return | goal | reached | published |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in made:
        learned = by_name[run.name]
        mean = _mean(run, learned)
        frames = statistics.median(one.frames for one in learned)
        wall = statistics.median(one.wall_s for one in learned)
        published = "; ".join(f"[{one.value}]({one.link})" for one in run.published) or "none known"
        lines.append(
            f"| {run.title} | `{run.name}` | {frames:,.0f} | {_time(wall)} | {len(learned)} | {_told(run, mean)} "
            f"| {_goal(run)} | {_verdict(run, mean)} | {published} |"
        )
    return "\n".join(lines)


def _goal(run: LearningRun) -> str:
    if run.goal is None:
        return "none"
    if run.measure == "rise":
        return f"a rise of at least {run.goal:g}"
    return f"below {run.goal:g}" if run.fails else f"at least {run.goal:g}"


def _told(run: LearningRun, mean: Estimate | None) -> str:
    if mean is None:
        return "none"
    digits = 0 if max(abs(mean.low), abs(mean.high)) >= 1000 else 1
    sign = "+" if run.measure == "rise" else ""
    return f"{mean.value:{sign}.{digits}f} ({mean.low:{sign}.{digits}f} to {mean.high:{sign}.{digits}f})"


def _verdict(run: LearningRun, mean: Estimate | None) -> str:
    if run.goal is None:
        return ""
    if mean is None:
        return "no"
    return "yes" if (mean.value < run.goal if run.fails else mean.value >= run.goal) else "no"


def _section(run: LearningRun, learned: Sequence[Learned]) -> str:
    known = [value for one in learned for value in one.curve if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    lines = [f"### {run.title}", "", f"`{run.command(learned[0].seed)}`"]
    if len(learned) > 1:
        others = ", ".join(str(one.seed) for one in learned[1:])
        lines[-1] += f", and with {others} instead of {learned[0].seed}."
    lines += ["", run.note] if run.note else []
    lines += [
        "",
        f"| seed | frames | time | last test | last {WINDOW} training episodes | "
        + ("first and last tenth | " if run.measure == "rise" else "")
        + f"training returns, {low:.4g} to {high:.4g} |",
        "|---" * (6 + (run.measure == "rise")) + "|",
    ]
    for one in learned:
        cells = [str(one.seed), f"{one.frames:,}", _time(one.wall_s), _test(one), _number(one.train_return)]
        cells += [f"{_number(one.first_tenth)}, {_number(one.last_tenth)}"] if run.measure == "rise" else []
        lines.append(f"| {' | '.join(cells)} | `{sparkline(one.curve, low=low, high=high)}` |")
    told = [f"{one.value} ([{one.of}]({one.link}))" for one in run.published]
    lines += ["", f"Published: {'; '.join(told)}." if told else "No published value is known."]
    ends = sorted({one.reason for one in learned})
    lines += ["", f"Ended by: {'; '.join(ends)}. Resume: {'; '.join(sorted({one.exactness for one in learned}))}."]
    lines += ["", _machine_line(learned)]
    return "\n".join(lines)


def _test(one: Learned) -> str:
    return "none" if one.test_return is None else f"{_number(one.test_return)} of {one.test_episodes} episodes"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _machine_line(learned: Sequence[Learned]) -> str:
    about = [one.machine for one in learned]
    loads = [load for one in about for load in one["load"]]
    versions = ", ".join(sorted({one.version for one in learned}))
    dates = sorted({one["date"] for one in about})
    used = " and ".join(str(number) for number in sorted({one["used"] for one in about}))
    return (
        f"digideep {versions}, {about[0]['cpu']}, on {used} of {about[0]['cores']} cores, "
        f"Python {about[0]['python']}, load {min(loads)} to {max(loads)}, "
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}."
    )
