"""From options to a run: which parameters, which code, which session, and what is done in it.

Imported when it comes to that: a mistake on the command line is told without what a session needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import digideep
from digideep.errors import CheckpointError, UsageError, one_line
from digideep.params.loading import LoadedParams, load_params
from digideep.params.naming import expand_session_name
from digideep.pipeline import stdout
from digideep.pipeline.experiment import Experiment
from digideep.pipeline.machine_limits import told_limits
from digideep.pipeline.options import Mode, SessionOptions
from digideep.pipeline.signals import StopRequest
from digideep.utility.device import require_device
from digideep.utility.imports import resolve, searching
from digideep.utility.node import Config, configure
from digideep.utility.tree import split

if TYPE_CHECKING:
    from digideep.environment.config import EnvConfig, ExplorerConfig
    from digideep.pipeline import relaunch, trust
    from digideep.pipeline.layout import SessionPaths
    from digideep.pipeline.runner import Outcome, Runner
    from digideep.pipeline.session import Session
    from digideep.spec import EnvSpec

__all__ = ["Ended", "launch"]

logger = logging.getLogger(__name__)

_PACKAGE = Path(digideep.__file__).parent


class Ended(NamedTuple):
    """How a session was left."""

    exit_code: int
    session: Session


def launch(options: SessionOptions, requests: StopRequest) -> Ended:
    """Do what `options` say, from the parameters to the last line.

    Raises:
        DigideepError: what the user, the machine or an environment did wrong; its class says the exit code.
    """
    if options.device is not None:
        require_device(options.device)
    if options.record:
        from digideep.pipeline.video import require_video

        require_video()
    if options.load_checkpoint is None:
        return _fresh(options, requests)
    return _loaded(options, requests)


def _fresh(options: SessionOptions, requests: StopRequest) -> Ended:
    loaded = load_params(options)
    if options.session_name is not None:
        options = dataclasses.replace(options, session_name=expand_session_name(options.session_name, loaded.cpanel))
    with searching(after=loaded.search):
        _set_grace(loaded.params, requests)
        _check_environment(loaded)
        experiment = Experiment(
            preset=loaded.preset,
            cpanel=loaded.cpanel,
            base=loaded.base,
            params=loaded.params,
            changes=loaded.entries,
            allowed=loaded.allowed,
            modules=loaded.modules,
            files=loaded.files,
            lineage=_lineage(loaded),
        )
        return _run(options, experiment, requests)


def _set_grace(params: Mapping[str, Any], requests: StopRequest) -> None:
    """Tell the watchdog how long a stop may take, before anything of the user's can hang."""
    grace_s = params["runner"].get("grace_s")  # checked where the runner is configured
    if isinstance(grace_s, int | float) and grace_s > 0:
        requests.grace_s = float(grace_s)


def _lineage(loaded: LoadedParams) -> dict[str, Any] | None:
    """Return where the policies of a new session come from; None where they are initialised."""
    path = loaded.params["runner"].get("init_from")
    if path is None:
        return None
    from digideep.pipeline.founding import lineage_of

    return lineage_of(path)


def _check_environment(loaded: LoadedParams) -> None:
    """Make one environment, so that a wrong id or space is told before anything is on disk or heavy is imported.

    Where tests have another one it is made too: a test may be hours away.

    An environment that fails by itself is no wrong input: it fails again in the session, which then stays.

    Raises:
        EnvironmentFailure: making one takes longer than a step may.
    """
    from digideep.environment.config import EnvConfig, ExplorerConfig
    from digideep.pipeline.failure import play_env

    config = configure(loaded.params["env"], where="/env", expected=EnvConfig)
    explorer = configure(
        loaded.params["explorer"]["train"], where="/explorer/train", allowed=loaded.allowed, expected=ExplorerConfig
    )
    played = play_env(loaded.params)
    with stdout.bounded():
        spec = _spec(config, explorer, allowed=loaded.allowed)
        if explorer.backend not in ("auto", "single"):
            from digideep.environment.vec.backend import check_backend

            check_backend(explorer, config, allowed=loaded.allowed)
        if played == loaded.params["env"]:
            return
        shown = _spec(configure(played, where="/env", expected=EnvConfig), explorer, allowed=loaded.allowed)
    if shown is not None:
        from digideep.pipeline.evaluation import check_spaces

        check_spaces(shown, spec)


def _spec(config: EnvConfig, explorer: ExplorerConfig, *, allowed: Sequence[str]) -> EnvSpec | None:
    from digideep.environment.trial import check_env

    in_worker, limit_s = explorer.num_workers not in (0, "auto"), explorer.step_timeout_s
    return check_env(config, in_worker=in_worker, step_timeout_s=limit_s, allowed=allowed)


def _check_memories(experiment: Experiment) -> None:
    """Refuse memories for which there is no room, as far as that can be told before anything is made."""
    from digideep.memory.config import MemoryConfig

    chunk = {key: experiment.params["explorer"]["train"][key] for key in ("num_envs", "n_steps")}
    for name, tree in experiment.params["memory"].items():
        where = f"/memory/{name}"
        config = configure(tree, where=where, allowed=experiment.allowed, expected=MemoryConfig)
        config.check_room(**chunk, where=where)


def _loaded(options: SessionOptions, requests: StopRequest) -> Ended:
    from digideep.pipeline.layout import resolve_checkpoint

    paths, _ = resolve_checkpoint(options.load_checkpoint or "")
    from digideep.params.session_params import load_session_params
    from digideep.pipeline import trust
    from digideep.pipeline.inventory import effective_params

    trusted = trust.assess(paths, trust_session=options.trust_session, params=effective_params(paths))
    decision = _decide_code(paths, trusted, options=options, requests=requests)
    # The session's own modules are found last: what is installed comes first, as it did when the session was made.
    with searching(after=(paths.modules,) if trusted.code else (), bytecode=False):
        loaded = load_session_params(paths, options, trusted=trusted)
        experiment = Experiment(
            preset=loaded.preset,
            cpanel=loaded.cpanel,
            base=loaded.params,
            params=loaded.params,
            changes=loaded.entries,
            allowed=loaded.allowed,
            trusted=trusted.code,
            exactness="exact" if decision.exact else "none (code)",
            replaces_code=decision.action == "installed",
            notice=decision.line,
        )
        return _run(options, experiment, requests)


def _decide_code(
    paths: SessionPaths, trusted: trust.Trust, *, options: SessionOptions, requests: StopRequest
) -> relaunch.Decision:
    """Return whose code runs here; where that is the session's own and another one, this process becomes it."""
    from digideep.pipeline import relaunch

    if options.from_python:
        command = f"python -m digideep.main --load-checkpoint {paths.root} --{options.mode.value}"
        return relaunch.decide_in_python(paths, code=options.code, command=command, trusted=trusted.code)
    decision = relaunch.decide(paths, trusted, code=options.code, resumes=options.mode is not Mode.PLAY)
    if decision.action == "session":
        stdout.give_back()
        relaunch.relaunch(paths, options.command_line, received=requests.received)
    return decision


def _run(options: SessionOptions, experiment: Experiment, requests: StopRequest) -> Ended:
    from digideep.pipeline.salvage import salvaging
    from digideep.pipeline.session import Session

    if options.mode is not Mode.PLAY:
        _check_memories(experiment)
    session = Session(_PACKAGE, options, requests=requests)
    session.take(experiment)
    _set_grace(experiment.params, requests)
    with session:
        if options.mode is Mode.CREATE:
            session.announce()
            return Ended(0, session)
        with session.reporting(), told_limits(), stdout.bounded():
            runner = _runner_class(experiment)(experiment.params, experiment.allowed)
            with contextlib.closing(runner):
                with _blaming_changes(experiment):
                    runner.start(session)
                with salvaging(runner):
                    outcome = _act(runner, session)
            session.finish(outcome.exit_code, outcome.reason)
    return Ended(outcome.exit_code, session)


@contextlib.contextmanager
def _blaming_changes(experiment: Experiment) -> Iterator[None]:
    """Where a checkpoint does not fit because this start changed what its state is made of, say which change.

    Raises:
        UsageError: that is so; any other CheckpointError passes.
    """
    try:
        yield
    except CheckpointError as error:
        blamed = next((change for change in experiment.changes if _shapes_a_state(change)), None)
        if blamed is None:
            raise
        old, new = (one_line(json.dumps(blamed[key]), limit=80) for key in ("old", "new"))
        raise UsageError(
            f"{blamed['path']}: expected {old} as in the checkpoint, found {new}; start a new session with it "
            f"(init_from takes over a policy of the same shape)"
        ) from error


def _shapes_a_state(change: Mapping[str, Any]) -> bool:
    """Whether a change can make a state one of another shape: numbers do so only in networks and environments."""
    part, *rest = split(change["path"], where="repeal.json")
    old, new = change["old"], change["new"]
    if old == new:
        return False
    if part == "env" or (part == "agents" and "model" in rest[1:2]):
        return True
    if part == "memory":
        return rest[1:] in ([], ["type"])
    if part == "explorer":
        return "statistics" in rest[1:2]
    return part == "agents" and not all(type(value) in (int, float) for value in (old, new))


def _runner_class(experiment: Experiment) -> type[Runner]:
    """Return the class that `/runner` builds; torch is imported here, and not before."""
    from digideep.pipeline.runner import Runner

    node = experiment.params["runner"]
    config: Config = configure(node, where="/runner", allowed=experiment.allowed)
    runner_class = resolve(config.builds, where="/runner/type", allowed=experiment.allowed)
    if not (isinstance(runner_class, type) and issubclass(runner_class, Runner)):
        raise UsageError(
            f"/runner/type: expected a configuration that builds a Runner, found {node['type']!r}; name one"
        )
    return runner_class


def _act(runner: Runner, session: Session) -> Outcome:
    """Train, play, or do what a subclass calls custom."""
    from digideep.pipeline.runner import Outcome

    mode = session.options.mode
    if mode in (Mode.TRAIN, Mode.RESUME):
        return runner.train()
    if mode is Mode.PLAY:
        runner.enjoy()
    else:
        runner.custom()
    return runner.stopped() or Outcome(0, mode.value)
