"""What makes a comparison of speeds one of equal work: transitions, gradient steps, networks and returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.result import Result
from benchmarks.settings import CHUNK, SETTINGS, ReplaySetting
from benchmarks.statistics import mean_interval

__all__ = ["Check", "Learnt", "checks"]

_SAME_STEPS = 0.01
_ENOUGH = 5  # runs whose mean says something


class Check(NamedTuple):
    """One condition: whether it holds, and what was found."""

    name: str
    holds: bool
    found: str


class Learnt(NamedTuple):
    """Runs of the same training with more seeds, whose returns say more."""

    ours: Sequence[Result]
    theirs: Sequence[Result]


def checks(ours: Sequence[Result], theirs: Sequence[Result], *, learnt: Learnt | None = None) -> list[Check]:
    """Return the conditions on which the steps a second of ours may be divided by theirs.

    Returns at the end are compared in `learnt` where it is given.
    """
    mine, other = learnt or (ours, theirs)
    return [_transitions(ours), _transitions(theirs), _gradient_steps(ours, theirs), _networks(ours, theirs)] + (
        [_returns(mine, other)] if all(run.final_return is not None for run in (*mine, *other)) else []
    )


def _transitions(runs: Sequence[Result]) -> Check:
    """Frames are real transitions: rows that only reset an environment, one an episode, are not among them."""
    surplus = [run.rows - run.frames for run in runs]
    num_envs = SETTINGS[runs[0].setting].num_envs
    holds = all(extra == 0 or abs(extra - run.episodes) <= num_envs for extra, run in zip(surplus, runs, strict=True))
    frames, rows = sum(run.frames for run in runs), sum(run.rows for run in runs)
    episodes = sum(run.episodes for run in runs)
    return Check(
        f"real transitions of {runs[0].contender}",
        holds,
        f"{frames} of {rows} rows, {episodes} episodes",
    )


def _gradient_steps(ours: Sequence[Result], theirs: Sequence[Result]) -> Check:
    mine, other = _rate(ours), _rate(theirs)
    return Check(
        "gradient steps",
        abs(mine / other - 1) <= max(_SAME_STEPS, _edge(theirs)),
        f"{1000 * mine:.2f} against {1000 * other:.2f} in 1,000 rows",
    )


def _rate(runs: Sequence[Result]) -> float:
    """Return gradient steps for each row, but for rows at the beginning after which nothing is learnt."""
    setting = SETTINGS[runs[0].setting]
    unlearnt = setting.warm_up if isinstance(setting, ReplaySetting) else 0
    return sum(run.gradient_steps for run in runs) / sum(run.rows - unlearnt for run in runs)


def _edge(runs: Sequence[Result]) -> float:
    """Return which share of the gradient steps the end of the warm-up decides.

    Who takes steps in chunks learns after the whole of the one in which the warm-up ends.
    """
    setting = SETTINGS[runs[0].setting]
    has_chunks = isinstance(setting, ReplaySetting) and setting.n_steps == setting.n_updates == 1
    return CHUNK * len(runs) / sum(run.gradient_steps for run in runs) if has_chunks else 0.0


def _networks(ours: Sequence[Result], theirs: Sequence[Result]) -> Check:
    mine, other = {run.parameters for run in ours}, {run.parameters for run in theirs}
    return Check("parameters", mine == other and len(mine) == 1, f"{_numbers(mine)} against {_numbers(other)}")


def _numbers(found: set[int]) -> str:
    return ", ".join(f"{number:,}" for number in sorted(found))


def _returns(ours: Sequence[Result], theirs: Sequence[Result]) -> Check:
    """The mean return at the end is not below the interval of the peer's; of few runs, the intervals meet."""
    mine = mean_interval([run.final_return for run in ours if run.final_return is not None])
    other = mean_interval([run.final_return for run in theirs if run.final_return is not None])
    best = mine.value if min(len(ours), len(theirs)) >= _ENOUGH else mine.high
    return Check("return at the end", best >= other.low, f"{mine} against {other}")
