"""digideep as a contender: the real program with a session of its own, watched by a runner that notes the time."""

from __future__ import annotations

import importlib.metadata
import json
import math
import pathlib
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

BEGAN = time.perf_counter()

from benchmarks.monitors import read_rows  # noqa: E402
from benchmarks.result import Result  # noqa: E402
from benchmarks.settings import ReplaySetting  # noqa: E402
from benchmarks.track import Facts, Track, parse_options  # noqa: E402

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from benchmarks.settings import PPOSetting
    from digideep.pipeline.runner import Runner

_PACKAGES = ("digideep", "torch", "numpy", "gymnasium")


def main() -> None:
    """Train one setting and print its result."""
    options = parse_options(exact="true", num_workers="auto", chunk="1", name="digideep")
    with tempfile.TemporaryDirectory(prefix="digideep-bench-") as directory:
        result = _train(options, directory)
    print(result.to_line())


def _train(options: argparse.Namespace, directory: str) -> Result:
    import digideep
    from digideep.pipeline.runner import Runner
    from digideep.utility.profiling import get_timer_tree

    setting = options.setting._replace(total_frames=options.frames)
    if isinstance(setting, ReplaySetting):
        setting = setting.in_chunks(int(options.chunk))
        if setting.method != "dqn":
            _time_parts(setting.method)
    track, warm = Track(BEGAN), _Warm(0, {"children": {}})
    train_cycle = Runner.train_cycle

    def watched_cycle(runner: Runner) -> None:
        nonlocal warm
        if track.iterations < 0:
            track.mark(0)
        before = runner.engine.counters().episodes
        train_cycle(runner)
        for _ in range(runner.engine.counters().episodes - before):
            track.episode(math.nan)  # the monitor files know the returns
        track.mark(runner.frame)
        if not warm.frames and 0 < setting.measured_from <= runner.frame:
            warm = _Warm(runner.frame, get_timer_tree())

    Runner.train_cycle = watched_cycle  # type: ignore[method-assign, assignment]
    session = digideep.run(
        f"benchmarks.{'params_replay' if isinstance(setting, ReplaySetting) else 'params_ppo'}",
        cpanel=_knobs(options, setting),
        repeal={"/engine/num_threads": options.threads},
        session_path=directory,
        device="cpu",
        log_level="error",
    )
    ended = time.perf_counter()
    track.fill_in([row.return_ for row in read_rows(pathlib.Path(session.paths.monitor) / "train")])
    facts = _facts(session.paths.root, name=options.name, rows=track.iterations * setting.rows)
    facts = facts._replace(profile=_profile(session.paths.root, frames=track.frames, warm=warm))
    return track.result(options.id, seed=options.seed, facts=facts, ended=ended)


class _Warm(NamedTuple):
    """The frames and the timers from which on the time of parts is counted."""

    frames: int
    timers: dict[str, Any]


def _knobs(options: argparse.Namespace, setting: PPOSetting | ReplaySetting) -> dict[str, Any]:
    """Return the control panel of the run."""
    from benchmarks import params_ppo, params_replay

    is_replay = isinstance(setting, ReplaySetting)
    return {
        **(params_replay.cpanel_of(setting) if is_replay else params_ppo.cpanel_of(setting)),
        "seed": options.seed,
        "num_workers": options.num_workers if options.num_workers == "auto" else int(options.num_workers),
        "exact": options.exact == "true",
    }


def _time_parts(method: str) -> None:
    """Let the profile show what a gradient step with critics consists of: half a microsecond for each part."""
    from digideep.agent.continuous.agent import ContinuousAgent
    from digideep.agent.ddpg.agent import DDPGAgent
    from digideep.agent.replay.transitions import Replay
    from digideep.agent.sac.agent import SACAgent
    from digideep.agent.td3.agent import TD3Agent
    from digideep.utility.profiling import timer_block

    agents: dict[str, type[ContinuousAgent]] = {"sac": SACAgent, "td3": TD3Agent, "ddpg": DDPGAgent}
    timed_agent = agents[method]

    def timed(of: type, method: str, block_of: Callable[..., str]) -> None:
        blocks: dict[str, Any] = {}
        original = getattr(of, method)

        def call(*arguments: Any, **keywords: Any) -> Any:
            name = block_of(*arguments)
            if name not in blocks:
                blocks[name] = timer_block(name)
            with blocks[name]:
                return original(*arguments, **keywords)

        setattr(of, method, call)

    timed(Replay, "draw", lambda *_: "draw")
    timed(timed_agent, "make_batch", lambda *_: "targets")
    timed(timed_agent, "gradients", lambda agent, batch, part: part)
    timed(timed_agent, "apply", lambda *_: "move")
    timed(timed_agent, "follow", lambda *_: "move")


def _facts(session: pathlib.Path, *, name: str, rows: int) -> Facts:
    from digideep.post.load import load

    loader = load(session)
    agent: dict[str, Any] = loader.load_checkpoint().components["agents.agent"]
    chosen = loader.params["engine"]["chosen"]
    return Facts(
        contender=name,
        rows=rows,
        gradient_steps=max(int(optimiser["step"]) for optimiser in _optimisers(agent)),
        parameters=sum(array.size for optimiser in _optimisers(agent) for array in optimiser["exp_avg"].values()),
        versions={name: importlib.metadata.version(name) for name in _PACKAGES},
        choices={key: str(value) for key, value in sorted(chosen.items())},
    )


def _optimisers(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the state of every optimiser of an agent."""
    if "exp_avg" in state:
        yield state
        return
    for value in state.values():
        if isinstance(value, dict):
            yield from _optimisers(value)


def _profile(session: pathlib.Path, *, frames: int, warm: _Warm) -> dict[str, float]:
    """Return microseconds a frame by part since it was warm, from the profile that every session writes."""
    root = json.loads((session / "timers.json").read_text(encoding="utf-8"))

    def seconds(*path: str) -> float:
        totals = []
        for node in (root, warm.timers):
            for name in path:
                node = node["children"].get(name, {"total": 0.0, "children": {}})
            totals.append(float(node.get("total", 0.0)))
        return totals[0] - totals[1]

    explore, update = seconds("cycle", "explore"), seconds("cycle", "update")
    environments, acting = seconds("cycle", "explore", "envstep"), seconds("cycle", "explore", "act")
    step = ("cycle", "update", "step")
    learning = {"learning": seconds(*step)}
    if seconds(*step, "critic"):
        learning = {
            "draw": seconds(*step, "draw"),
            "targets": seconds(*step, "targets"),
            "critics": seconds(*step, "critic"),
            "policy": seconds(*step, "policy") + seconds(*step, "temperature"),
            "Adam and targets' step": seconds(*step, "move"),
        }
    parts = {
        "environments": environments,
        "acting": acting,
        "rest of a rollout": explore - environments - acting,
        **learning,
        "rest of an update": update - sum(learning.values()),
        "logs and the rest": seconds("cycle") - explore - update + seconds("log"),
    }
    return {name: taken / (frames - warm.frames) * 1e6 for name, taken in parts.items()}


if __name__ == "__main__":
    main()
