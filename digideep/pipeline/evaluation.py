"""Tests in training and plays of a policy: exactly n episodes with seeds of their own, and nothing else changes."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from digideep.environment.drawing import what_draws_is_there
from digideep.errors import UsageError, one_line
from digideep.pipeline.failure import play_env
from digideep.pipeline.fsio import publish_json
from digideep.pipeline.state import mean_and_deviation
from digideep.pipeline.video import VideoRecorder
from digideep.types import Actor, EngineEvents, Episode, Node
from digideep.utility.node import build
from digideep.utility.seeding import rng_state, set_rng_state

if TYPE_CHECKING:
    from digideep.pipeline.session import Session
    from digideep.spec import EnvSpec
    from digideep.utility.timertree import TimerNode

__all__ = ["Evaluation", "Evaluator", "check_spaces", "play_env"]

logger = logging.getLogger(__name__)

_SEEDS = "eval"  # tests and plays draw their seeds alike, so that a play repeats the test


class Evaluation(NamedTuple):
    """The results of playing a policy."""

    episodes: list[Episode]
    mean_return: float
    std_return: float
    success_rate: float | None

    @classmethod
    def of(cls, episodes: list[Episode]) -> Evaluation:
        """Return the summary of `episodes`; the deviation is that of the population."""
        mean, deviation = mean_and_deviation(episodes)
        successes = [episode.metrics["is_success"] for episode in episodes if "is_success" in episode.metrics]
        rate = math.fsum(successes) / len(successes) if successes else None
        return cls(episodes=episodes, mean_return=mean, std_return=deviation, success_rate=rate)


class Evaluator:
    """Runs tests and plays of one session.

    Args:
        params: the params tree; `/explorer/test` and `/explorer/eval` say how.
        session: gives the options, the directories and the signals.
        seed: of the run; `--seed` takes its place in a play.
    """

    def __init__(self, params: Mapping[str, Any], session: Session, *, seed: int) -> None:
        self._params = params
        self._session = session
        self._seed = seed
        self.spec: EnvSpec | None = None  # what the actors were made for, once it is known
        self._test_explorer: Any = None
        self._reported = (0, 0)  # restarts and errors that the summary counts already

    def test(self, actors: Mapping[str, Actor]) -> list[Episode] | None:
        """Return the episodes of one test, or None where it was given up, since a signal leaves no time for it."""
        requests = self._session.requests
        with _generators_kept():
            if self._test_explorer is None:
                self._test_explorer = self._build("test", seed=self._seed, monitor_dir=self._session.paths.monitor)
            self._test_explorer.set_actors(actors)
            try:
                episodes: list[Episode] = self._test_explorer.evaluate(should_stop=requests.is_urgent)
            finally:
                self._session.count_faults(self._faults())
        complete = len(episodes) == self._params["explorer"]["test"]["n_episodes"]
        return episodes if complete else None

    def _faults(self) -> EngineEvents:
        """Return what went wrong in tests since the last call."""
        restarts, errors = self._test_explorer.restarts, self._test_explorer.env_errors
        before, self._reported = self._reported, (restarts, errors)
        return EngineEvents(restarts=restarts - before[0], env_errors=errors - before[1])

    def flush(self) -> None:
        """Write out what the monitor files of the tests hold back."""
        if self._test_explorer is not None:
            self._test_explorer.sync()

    def timings(self) -> Mapping[str, TimerNode]:
        """Return the timers of the tests' workers since the last call, by the path they belong to."""
        timings = {} if self._test_explorer is None else self._test_explorer.timings()
        return {f"/test/{name}": node for name, node in timings.items()}

    def play(self, actors: Mapping[str, Actor]) -> Evaluation:
        """Evaluate `actors` as the session's options say; results.json and the monitor files go beside each other."""
        options, directory = self._session.options, self._session.evaluation_directory
        seed = self._seed if options.seed is None else options.seed
        render_mode = "rgb_array" if options.record else "human" if options.render else None
        recorder = VideoRecorder(directory / "videos") if options.record else None
        with contextlib.ExitStack() as stack:
            stack.enter_context(what_draws_is_there(render_mode))
            explorer = self._build("eval", seed=seed, monitor_dir=directory / "monitor", render_mode=render_mode)
            stack.callback(explorer.close)
            if recorder is not None:
                stack.callback(recorder.close)
            explorer.set_actors(actors)
            episodes = explorer.evaluate(
                n_episodes=options.episodes,
                stochastic=options.stochastic,
                should_stop=self._session.requests.is_stopping,
                on_frame=None if render_mode is None else _no_frame if recorder is None else recorder.add,
            )
            explorer.sync()
        if recorder is not None and not options.dry_run:
            logger.info("the videos are in %s", directory / "videos")
        if not episodes:
            return Evaluation([], math.nan, math.nan, None)
        result = Evaluation.of(episodes)
        if self._session.requests.stop_signal is None:
            self._publish(result, directory, seed=seed)
        return result

    def close(self) -> None:
        """End the environments of the tests."""
        if self._test_explorer is not None:
            self._test_explorer.close()

    def _build(self, mode: str, *, seed: int, monitor_dir: Path, render_mode: str | None = None) -> Any:
        node: Node = {**self._params["explorer"][mode], "env": play_env(self._params)}
        if render_mode is not None:
            node = {**node, "num_envs": 1, "num_workers": 0}
        explorer = build(
            node,
            where=f"/explorer/{mode}",
            allowed=self._session.allowed,
            builds_nodes=True,
            mode=mode,
            seed=seed,
            seed_label=_SEEDS,
            monitor_dir=monitor_dir,
            render_mode=render_mode,
            supervision=self._session.supervision,
        )
        try:
            check_spaces(explorer.spec, self.spec)
        except BaseException:
            explorer.close()
            raise
        return explorer

    def _publish(self, result: Evaluation, directory: Path, *, seed: int) -> None:
        session = self._session
        checkpoint = session.checkpoint
        publish_json(
            directory / "results.json",
            {
                "checkpoint": None if checkpoint is None else checkpoint.path.name,
                "frame": 0 if checkpoint is None else checkpoint.manifest["frame"],
                "seed": seed,
                "deterministic": not session.options.stochastic,
                "env_kwargs": play_env(self._params)["env_kwargs"],
                "episodes": [
                    {"return": e.return_, "length": e.length, "seed": e.seed, **_metrics(e)} for e in result.episodes
                ],
                "mean_return": result.mean_return,
                "std_return": result.std_return,
                "success_rate": result.success_rate,
            },
        )
        session.say(
            f"mean return {result.mean_return:.6g} +- {result.std_return:.6g} over {len(result.episodes)} episodes"
        )


def check_spaces(found: EnvSpec, expected: EnvSpec | None) -> None:
    """Check that a test or a play shows and takes what training does, as far as that is known.

    Raises:
        UsageError: it does not.
    """
    if expected is None:
        return
    for what, theirs, ours in (
        ("observations", found.observations, expected.observations),
        ("actions", found.actions, expected.actions),
    ):
        pairs = [{slot: (a.kind, a.shape, a.dtype, a.n) for slot, a in specs.items()} for specs in (theirs, ours)]
        if pairs[0] != pairs[1]:
            raise UsageError(
                f"/env/play_wrappers: expected the {what} of training, {one_line(pairs[1], limit=200)}, in tests and "
                f"plays too, found {one_line(pairs[0], limit=200)}; let /env/play_wrappers and /env/play_env_kwargs "
                f"agree with /env/wrappers and /env/env_kwargs"
            )


def _no_frame(episode: int, frame: Any) -> None:
    """Do nothing with what `render()` gives where a window shows it."""


def _metrics(episode: Episode) -> dict[str, Any]:
    return {"metrics": dict(episode.metrics)} if episode.metrics else {}


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    """Give the global generators back the state they had: an environment under test may draw from them."""
    state = rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
