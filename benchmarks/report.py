"""The tables of docs/performance.md, rendered from stored results so that no figure there is typed by hand."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.contenders import OURS, REFERENCES
from benchmarks.report_figures import cores_line, figures_section, interval, machine_line, time_section
from benchmarks.result import POINTS, Result
from benchmarks.settings import LEARNING, SETTINGS, PPOSetting, ReplaySetting
from benchmarks.statistics import Estimate, difference_of_means, mean_interval, median_ratio
from benchmarks.tables import Table
from benchmarks.validity import Check, Learnt, checks

__all__ = ["BEGIN", "END", "better_reference", "fill_page", "render", "setting_of", "speed_ratio"]

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
"""Between these lines of a page stands what `fill_page` writes."""


def render(tables: Sequence[Table]) -> str:
    """Return all tables in Markdown: a summary, then one section for each benchmark and number of cores."""
    learnt = {table.id: table for table in tables if table.id in LEARNING}
    trained = [table for table in tables if table.runs and table.id not in LEARNING]
    parts = [_summary(trained, learnt)] if trained else []
    parts += [_learning(table) for table in learnt.values()]
    parts += [_training(table, learnt) for table in trained]
    parts += [figures_section(table) for table in tables if table.figures and table.id != "limits"]
    parts += [section for cores in (1, 2) if (section := time_section(tables, cores=cores))]
    return "\n\n".join(parts) + "\n"


def fill_page(page: Path, text: str) -> None:
    """Replace what stands between the two marks of a page.

    Raises:
        ValueError: the page does not have both marks once.
    """
    before = page.read_text(encoding="utf-8")
    if before.count(BEGIN) != 1 or before.count(END) != 1:
        raise ValueError(f"{page}: expected {BEGIN} and {END} once each, found them {before.count(BEGIN)} times")
    head, rest = before.split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n\n{text.strip()}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def speed_ratio(ours: Iterable[Result], theirs: Iterable[Result]) -> Estimate:
    """Return the median ratio of steps a second over the repetitions that both have."""
    other = {run.seed: run.steps_per_s for run in theirs}
    pairs = [(run.steps_per_s, other[run.seed]) for run in ours if run.seed in other]
    return median_ratio([mine for mine, _ in pairs], [yours for _, yours in pairs])


def better_reference(table: Table) -> str | None:
    """Return the name of the reference peer's row with the greatest median of steps a second, None where it lacks."""
    runs = table.by_contender()
    names = [name for name in REFERENCES if name in runs]
    return max(names, key=lambda name: _speed(runs[name])) if names else None


def _speed(runs: Sequence[Result]) -> float:
    return statistics.median(run.steps_per_s for run in runs)


def _learnt(table: Table, learnt: Mapping[str, Table], *, peer: str) -> Learnt | None:
    """Return the runs whose returns say most about a table's, where a benchmark of learning has them."""
    same = next((learnt[name] for name, trained in LEARNING.items() if trained == table.id and name in learnt), None)
    reference = same and better_reference(same)
    if same is None or reference is None or peer not in REFERENCES:
        return None
    runs = same.by_contender()
    return Learnt(runs[OURS], runs[reference])


def _summary(tables: Sequence[Table], learnt: Mapping[str, Table]) -> str:
    lines = [
        "| | | cores | digideep, steps/s | Stable-Baselines3, its better row | ratio | 95 % interval | equal work |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for table in tables:
        name, runs = better_reference(table), table.by_contender()
        if name is None or OURS not in runs:
            continue
        ratio = speed_ratio(runs[OURS], runs[name])
        found = checks(runs[OURS], runs[name], learnt=_learnt(table, learnt, peer=name))
        broken = [check.name for check in found if not check.holds]
        lines.append(
            f"| {table.id} | {setting_of(table).title} | {table.cores} | {_speed(runs[OURS]):,.0f} "
            f"| {_speed(runs[name]):,.0f} | **{ratio.value:.2f}** | {ratio.low:.2f} to {ratio.high:.2f} "
            f"| {'yes' if not broken else 'not: ' + ', '.join(broken)} |"
        )
    return "\n".join(lines)


def _training(table: Table, learnt: Mapping[str, Table]) -> str:
    runs, setting = table.by_contender(), setting_of(table)
    solves = setting.solved is not None
    lines = [
        f"### {table.id}: {setting.title}, {cores_line(table)}",
        "",
        _describe(setting, table),
        "",
        "| | steps/s | digideep is faster by | start-up | return at the end | memory |"
        + (f" return of {setting.solved:.0f} after |" if solves else ""),
        "|---|---|---|---|---|---|" + ("---|" if solves else ""),
    ]
    for name, rows in runs.items():
        shown = (
            name if len(rows) == len(runs.get(OURS, rows)) else f"{name}, {len(rows)} of {len(runs[OURS])} repetitions"
        )
        lines.append(_row(shown, rows, ours=runs.get(OURS), solves=solves))
    lines += ["", _validity(table, learnt), "", _where(table)]
    return "\n".join(lines)


def _row(name: str, rows: Sequence[Result], *, ours: Sequence[Result] | None, solves: bool) -> str:
    ratio = "" if ours is None or name == OURS else interval(speed_ratio(ours, rows))
    start = statistics.median(run.startup_s for run in rows)
    returns = [run.final_return for run in rows if run.final_return is not None]
    end = interval(mean_interval(returns), digits=0 if abs(returns[0]) >= 100 else 1) if returns else "no episode ended"
    memory = statistics.median(run.peak_mb for run in rows)
    cells = [name, f"{_speed(rows):,.0f}", ratio, f"{start:.2f} s", end, f"{memory:.0f} MB"]
    if solves:
        solved = [run.solved_s for run in rows if run.solved_s is not None]
        median = f"{statistics.median(solved):.1f} s in {len(solved)} of {len(rows)}" if solved else "in no run"
        cells.append(median)
    return "| " + " | ".join(cells) + " |"


def setting_of(table: Table) -> PPOSetting | ReplaySetting:
    """Return what was trained: as stored with the table, whatever the benchmark has become since."""
    stored = {key: tuple(value) if isinstance(value, list) else value for key, value in (table.setting or {}).items()}
    return SETTINGS[table.id]._replace(**stored)


def _describe(setting: PPOSetting | ReplaySetting, table: Table) -> str:
    repetitions = len({run.seed for run in table.runs})
    frames = max(run.frames for run in table.runs)
    told = _describe_replay(setting) if isinstance(setting, ReplaySetting) else _describe_ppo(setting)
    return f"`{setting.env}`, {told}; {frames:,} frames, {repetitions} repetitions."


def _describe_ppo(setting: PPOSetting) -> str:
    clip = "no clip of the value" if setting.value_clip is None else f"value clip {setting.value_clip}"
    sizes = " x ".join(str(size) for size in setting.hidden_sizes)
    network = {
        "mlp": f"two networks of {sizes} with tanh",
        "layernorm": f"one trunk of {sizes}, LayerNorm and tanh after each layer, two heads",
        "cnn": "the Nature network with two heads",
    }[setting.network]
    return (
        f"{setting.num_envs} x {setting.n_steps}, {setting.update_epochs} passes, minibatches of "
        f"{setting.minibatch_size}, learning rate {setting.lr:g}, {clip}, entropy {setting.entropy_coef:g}, {network}"
    )


def _describe_replay(setting: ReplaySetting) -> str:
    sizes = " x ".join(str(size) for size in setting.hidden_sizes)
    if (setting.rows, setting.n_updates) == (1, 1):
        rhythm = "one gradient step after each frame, so that steps/s are gradient steps a second"
    else:
        steps = "one gradient step" if setting.n_updates == 1 else f"{setting.n_updates} gradient steps"
        rhythm = f"{steps} after every {setting.rows} frames"
    network = f"networks of {sizes} with {setting.activation}"
    target = f"target networks move by {setting.tau:g}"
    if setting.target_interval > 1:
        target = f"the target network is copied after every {setting.target_interval:,} gradient steps"
    if setting.policy_delay > 1:
        target = (
            f"one gradient step in {setting.policy_delay} moves the policy and, by {setting.tau:g}, target networks"
        )
    if setting.target_noise:
        target += f", target actions have noise of {setting.target_noise:g} within {setting.target_noise_bound:g}"
    if setting.method in ("td3", "ddpg"):
        target += f", actions have normal noise of {setting.exploration_noise:g}"
    return (
        f"{rhythm}, batches of {setting.batch_size}, learning rate {setting.lr:g}, discount {setting.gamma:g}, "
        f"{network}, {target}, the first {setting.warm_up:,} frames at random, measured from frame "
        f"{setting.measured_from:,} on; a mean return is one of the last {setting.window} episodes"
    )


def _validity(table: Table, learnt: Mapping[str, Table]) -> str:
    """Return one line for each peer that does not do the same work, or one line that all do."""
    runs = table.by_contender()
    if OURS not in runs:
        return ""
    lines = []
    for name, rows in runs.items():
        if name == OURS:
            continue
        found: list[Check] = checks(runs[OURS], rows, learnt=_learnt(table, learnt, peer=name))
        broken = [check for check in found if not check.holds]
        if broken:
            told = "; ".join(f"{check.name}, {check.found}" for check in broken)
            lines.append(f"- {name} does not do the same: {told}.")
    return "\n".join(lines or ["Transitions, gradient steps, networks and returns passed every check."])


def _where(table: Table) -> str:
    """Return the versions, each package of a peer that is another one than ours, and the machine."""
    found = {next(iter(run.versions.items())): run.versions for run in table.runs}
    own = {item for run in table.runs if run.contender == OURS for item in run.versions.items()}
    shown = []
    for (package, version), versions in found.items():
        is_ours = (package, version) in own
        others = [item for item in versions.items() if item[0] != package and (is_ours or item not in own)]
        kept = [f"{name} {value}" for name, value in others]
        shown.append(f"{package} {version}" + (f" ({', '.join(kept)})" if kept else ""))
    return f"{'; '.join(shown)}. {machine_line(table)}"


def _learning(table: Table) -> str:
    """Return learning curves side by side: mean return of the last 100 training episodes over frames."""
    runs = table.by_contender()
    reference = better_reference(table)
    lines = [
        f"### {table.id}: {setting_of(table).title}",
        "",
        _describe(setting_of(table), table),
        "",
    ]
    if reference is None or OURS not in runs:
        return "\n".join([*lines, "There is nobody to compare with."])
    lines += [f"| frames | digideep | {reference} | difference of means |", "|---|---|---|---|"]
    frames, apart = max(run.frames for run in runs[OURS]), 0
    for point in range(POINTS):
        mine, other = (_at(runs[name], point) for name in (OURS, reference))
        if not mine or not other:
            continue
        difference = difference_of_means(mine, other)
        apart += difference.low > 0 or difference.high < 0
        cells = [interval(mean_interval(values), digits=0) for values in (mine, other)]
        lines.append(
            f"| {frames * (point + 1) // POINTS:,} | {cells[0]} | {cells[1]} | {interval(difference, digits=0)} |"
        )
    verdict = (
        "At every point 0 lies within the interval of the difference: the curves overlap."
        if not apart
        else f"At {apart} of {POINTS} points 0 lies outside the interval of the difference."
    )
    setting = setting_of(table)
    is_replay = isinstance(setting, ReplaySetting)
    solved = [_solved_line(name, runs[name], setting) for name in (OURS, reference)] if is_replay else []
    return "\n".join([*lines, "", verdict, *solved, "", _where(table)])


def _solved_line(name: str, rows: Sequence[Result], setting: PPOSetting | ReplaySetting) -> str:
    """Return in how many runs the return that counts as solved was reached, and how long that took."""
    solved = [run.solved_s for run in rows if run.solved_s is not None]
    after = f", after {statistics.median(solved):.1f} s (median)" if solved else ""
    return f"{name} reached {setting.solved:.0f} in {len(solved)} of {len(rows)} runs{after}."


def _at(runs: Sequence[Result], point: int) -> list[float]:
    return [value for run in runs if (value := run.curve[point]) is not None]
