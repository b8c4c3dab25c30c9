"""digideep as a contender: the real program with a session of its own, watched by a runner that notes the time."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import math
import pathlib
import tempfile
import time
from typing import TYPE_CHECKING, Any

BEGAN = time.perf_counter()

from benchmarks.result import Result  # noqa: E402
from benchmarks.track import Facts, Track, parse_options  # noqa: E402

if TYPE_CHECKING:
    import argparse

    from digideep.pipeline.runner import Runner

_PACKAGES = ("digideep", "torch", "numpy", "gymnasium")


def main() -> None:
    """Train one setting and print its result."""
    options = parse_options(exact="true", num_workers="auto")
    with tempfile.TemporaryDirectory(prefix="digideep-bench-") as directory:
        result = _train(options, directory)
    print(result.to_line())


def _train(options: argparse.Namespace, directory: str) -> Result:
    import digideep
    from benchmarks.params_ppo import cpanel_of
    from digideep.pipeline.runner import Runner

    track = Track(BEGAN)
    train_cycle = Runner.train_cycle

    def watched_cycle(runner: Runner) -> None:
        if track.iterations < 0:
            track.mark(0)
        before = runner.engine.counters().episodes
        train_cycle(runner)
        for _ in range(runner.engine.counters().episodes - before):
            track.episode(math.nan)  # the monitor files know the returns
        track.mark(runner.frame)

    Runner.train_cycle = watched_cycle  # type: ignore[method-assign, assignment]
    knobs = {
        **cpanel_of(options.setting),
        "seed": options.seed,
        "total_frames": options.frames,
        "num_workers": options.num_workers if options.num_workers == "auto" else int(options.num_workers),
        "exact": options.exact == "true",
    }
    session = digideep.run(
        "benchmarks.params_ppo",
        cpanel=knobs,
        repeal={"/engine/num_threads": options.threads},
        session_path=directory,
        device="cpu",
        log_level="error",
    )
    ended = time.perf_counter()
    track.fill_in(_returns(pathlib.Path(session.paths.monitor)))
    name = "digideep" if options.exact == "true" else "digideep, exact: false"
    facts = _facts(session.paths.root, name=name, rows=track.iterations * options.setting.rows)
    facts = facts._replace(profile=_profile(session.paths.root, frames=track.frames))
    return track.result(options.id, seed=options.seed, facts=facts, ended=ended)


def _facts(session: pathlib.Path, *, name: str, rows: int) -> Facts:
    from digideep.post.load import load

    loader = load(session)
    agent: dict[str, Any] = loader.load_checkpoint().components["agents.agent"]
    chosen = loader.params["engine"]["chosen"]
    return Facts(
        contender=name,
        rows=rows,
        gradient_steps=int(agent["optimiser"]["step"]),
        parameters=sum(array.size for array in agent["policy"].values()),
        versions={name: importlib.metadata.version(name) for name in _PACKAGES},
        choices={key: str(value) for key, value in sorted(chosen.items())},
    )


def _profile(session: pathlib.Path, *, frames: int) -> dict[str, float]:
    """Return microseconds a frame by part, from the profile that every session writes."""
    root = json.loads((session / "timers.json").read_text(encoding="utf-8"))

    def seconds(*path: str) -> float:
        node = root
        for name in path:
            node = node["children"].get(name, {"total": 0.0, "children": {}})
        return float(node["total"])

    explore, update = seconds("cycle", "explore"), seconds("cycle", "update")
    environments, acting = seconds("cycle", "explore", "envstep"), seconds("cycle", "explore", "act")
    steps = seconds("cycle", "update", "step")
    parts = {
        "environments": environments,
        "acting": acting,
        "rest of a rollout": explore - environments - acting,
        "learning": steps,
        "rest of an update": update - steps,
        "logs and the rest": seconds("cycle") - explore - update + seconds("log"),
    }
    return {name: taken / frames * 1e6 for name, taken in parts.items()}


def _returns(directory: pathlib.Path) -> list[float]:
    """Return the return of every training episode in order of its end."""
    rows: list[tuple[float, float]] = []
    for path in directory.glob("train/*.monitor.csv"):
        with open(path, encoding="utf-8", newline="") as file:
            file.readline()
            rows += [(float(row["t"]), float(row["r"])) for row in csv.DictReader(file)]
    return [return_ for _, return_ in sorted(rows, key=lambda row: row[0])]


if __name__ == "__main__":
    main()
