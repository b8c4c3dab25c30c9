"""digideep as a contender: the real program with a session of its own, watched by a runner that notes the time."""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import pathlib
import tempfile
import time

BEGAN = time.perf_counter()

from benchmarks.result import Result  # noqa: E402
from benchmarks.settings import SETTINGS  # noqa: E402

_WINDOW = 100


def main() -> None:
    """Train one setting and print its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("setting", choices=sorted(SETTINGS))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--num-workers", type=int, default=0)
    arguments = parser.parse_args()
    setting = SETTINGS[arguments.setting]

    import digideep
    from digideep.pipeline.runner import Runner

    clock: list[tuple[int, float]] = []
    train_cycle = Runner.train_cycle

    def watched_cycle(runner: Runner) -> None:
        if not clock:
            clock.append((0, time.perf_counter()))
        train_cycle(runner)
        clock.append((runner.frame, time.perf_counter()))

    Runner.train_cycle = watched_cycle  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as directory:
        session = digideep.run(
            "benchmarks.params_ppo",
            cpanel={
                "seed": arguments.seed,
                "total_frames": arguments.frames,
                "num_workers": arguments.num_workers,
            },
            repeal={"/engine/num_threads": arguments.threads},
            session_path=directory,
            log_level="error",
        )
        ended = time.perf_counter()
        episodes = _episodes(pathlib.Path(session.paths.monitor))
    returns = [return_ for _, return_ in episodes]
    (warm_frames, warm_at), (frames, _) = clock[1], clock[-1]
    print(
        Result(
            contender="digideep",
            seed=arguments.seed,
            steps_per_s=(frames - warm_frames) / (ended - warm_at),
            startup_s=warm_at - BEGAN,
            final_return=sum(returns[-_WINDOW:]) / len(returns[-_WINDOW:]),
            solved_s=_solved_s(episodes, setting.solved),
            frames=frames,
            versions={name: importlib.metadata.version(name) for name in ("digideep", "torch", "gymnasium")},
        ).to_line()
    )


def _episodes(directory: pathlib.Path) -> list[tuple[float, float]]:
    """Return (seconds since the start, return) of every training episode in order of its end."""
    rows: list[tuple[float, float]] = []
    for path in directory.glob("train/*.monitor.csv"):
        with open(path, encoding="utf-8", newline="") as file:
            file.readline()
            rows += [(float(row["t"]), float(row["r"])) for row in csv.DictReader(file)]
    return sorted(rows)


def _solved_s(episodes: list[tuple[float, float]], bound: float) -> float | None:
    """Return when the mean of the last 100 returns first reached `bound`."""
    total = 0.0
    for index, (ended_s, return_) in enumerate(episodes):
        total += return_ - (episodes[index - _WINDOW][1] if index >= _WINDOW else 0.0)
        if index >= _WINDOW - 1 and total / _WINDOW >= bound:
            return ended_s
    return None


if __name__ == "__main__":
    main()
