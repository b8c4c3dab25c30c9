"""What a run says about itself: metrics of episodes and tests, the lines of an epoch, the live line."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from digideep.types import EngineEvents, Episode

if TYPE_CHECKING:
    from digideep.pipeline.state import ScoredTest
    from digideep.utility.monitoring import Monitor

__all__ = ["TRAIN_WINDOW", "live_text", "mean_return", "monitor_episodes", "monitor_test", "print_epoch"]

logger = logging.getLogger(__name__)

TRAIN_WINDOW = 5  # epochs over which returns of training are averaged, so that long episodes leave no gaps
_ROW = {"is_row": True}  # no log has to remember it
_SHOWN = ("policy_loss", "value_loss", "entropy", "approx_kl", "explained_variance")


def monitor_episodes(monitor: Monitor, events: EngineEvents) -> None:
    """Send the training episodes that ended to the monitor."""
    for episode in events.episodes:
        monitor.monitor("train/return", episode.return_, window=TRAIN_WINDOW)
        monitor.monitor("train/length", episode.length, window=TRAIN_WINDOW)
        for name, value in episode.metrics.items():
            if monitor.admits(f"env/{name}"):
                monitor.monitor(f"env/{name}", value, window=TRAIN_WINDOW)


def monitor_test(monitor: Monitor, episodes: Sequence[Episode]) -> None:
    """Send the episodes of one test to the monitor."""
    for episode in episodes:
        monitor.monitor("test/return", episode.return_)
        monitor.monitor("test/length", episode.length)
        for name, value in episode.metrics.items():
            if monitor.admits(f"test/{name}"):
                monitor.monitor(f"test/{name}", value)


def mean_return(monitor: Monitor) -> float | None:
    """Return the mean return of training over its window, None before the first episode has ended."""
    statistics = monitor.peek("train/return")
    return None if statistics is None else float(statistics["mean"])


def print_epoch(row: Mapping[str, Any], *, epoch: int, frame: int, done: float, result: ScoredTest | None) -> None:
    """Log the lines of one epoch: progress and returns, then what the updates say at level debug."""
    columns = row["data"]
    parts = [f"epoch {epoch}", f"frame {frame}", f"{100 * done:.0f} %"]
    speed = columns.get("time/frames_per_s")
    if speed:
        parts.append(f"{speed['mean']:.0f} frames/s")
    returns = columns.get("train/return")
    if returns:
        parts.append(f"return {returns['mean']:.2f} +- {returns['std']:.2f} ({returns['num']})")
    if result is not None and result.epoch == epoch:
        parts.append(f"test {result.mean_return:.2f} +- {result.std_return:.2f} ({result.n})")
    logger.info("%s", " | ".join(parts), extra=_ROW)
    updates = [
        f"{name.removeprefix('update/')} {value['mean']:.4g}"
        for name, value in columns.items()
        if name.startswith("update/") and name.rpartition("/")[2] in _SHOWN
    ]
    if updates:
        logger.debug("%s", ", ".join(updates), extra=_ROW)


def live_text(
    *,
    epoch: int,
    frame: int,
    frames_per_s: float,
    progress: float,
    began_at: float,
    elapsed_s: float,
    mean_return: float | None,
) -> str:
    """Return the line that a terminal shows while a run is under way.

    `progress` is the fraction of the goal that is done, `began_at` what it was when this run began `elapsed_s` ago.
    """
    shown = "-" if mean_return is None else f"{mean_return:.1f}"
    gained = progress - began_at
    left_s = elapsed_s * (1.0 - progress) / gained if gained > 0 else None
    eta = "-" if left_s is None else _duration(left_s)
    return f"epoch {epoch}  frame {frame}  {frames_per_s:.0f} frames/s  return {shown}  ETA {eta}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
