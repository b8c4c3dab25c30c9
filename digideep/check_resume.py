"""`--check-resume`: whether a run that was interrupted ends with the bits of one that never stopped.

Two temporary sessions are trained by processes of their own: one for N epochs and, resumed, for N more, the other for
2N epochs in one go. Then everything in their last checkpoints is compared, but for what the clock has touched.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.examine import state_obstacle
from digideep.environment.vec.backend import native_obstacle
from digideep.errors import EXIT_PREEMPTED, DigideepError, NotReproducibleError, one_line
from digideep.params.loading import LoadedParams, load_params
from digideep.pipeline import stdout
from digideep.pipeline.checkpoint import Checkpoint, CheckpointStore
from digideep.pipeline.manifest import CLOCKS
from digideep.pipeline.options import SessionOptions
from digideep.pipeline.signals import StopRequest
from digideep.utility.differences import first_difference
from digideep.utility.imports import searching
from digideep.utility.node import configure

__all__ = ["check_resume"]

logger = logging.getLogger(__name__)

_LATER_S = 3.0  # than its runs, whose grace period it waits out, a check is over
_COMPARED = ("epoch", "cycle", "frame", "episode", "versions", "threads", "device", "components")


def check_resume(options: SessionOptions, requests: StopRequest) -> int:
    """Compare N + N epochs with 2N and return 0 where they end with the same bits.

    Raises:
        NotReproducibleError: they do not; names the first difference and both sessions, which are kept.
        DigideepError: one of the runs failed.
    """
    assert options.check_resume is not None
    epochs = options.check_resume
    loaded = load_params(options)
    grace_s = loaded.params["runner"].get("grace_s")
    if isinstance(grace_s, int | float) and grace_s > 0:
        requests.grace_s = float(grace_s) + _LATER_S
    stdout.say("session: none (check)")
    _check_state(loaded)
    directory = Path(tempfile.mkdtemp(prefix="digideep-check-"))
    interrupted, straight = directory / "interrupted", directory / "straight"
    goal = {"/runner/n_epochs": 2 * epochs, "/runner/total_frames": 0, "/runner/stop_return": None}
    budget = {"/runner/max_iter": epochs, "/runner/max_time": 0.0}
    runs = _Runs(directory, requests)
    try:
        for session in (interrupted, straight):
            runs.train(_creation(options, session), expected=0)
        resume = _resumption(options)
        runs.train([*resume, str(interrupted), *_changes({**goal, **budget})], expected=EXIT_PREEMPTED)
        runs.train([*resume, str(interrupted), *_changes({"/runner/max_iter": 0})], expected=0)
        runs.train([*resume, str(straight), *_changes({**goal, **budget, "/runner/max_iter": 0})], expected=0)
        difference = _compare(interrupted, straight)
    except BaseException as error:
        if not (isinstance(error, _Failed) and str(directory) in str(error)):  # what a message names stays
            shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        requests.on_deadline = None
    if difference:
        raise NotReproducibleError(
            f"--check-resume: expected {epochs} + {epochs} epochs to end with the bits of {2 * epochs}, found the "
            f"first difference in {difference}; compare {interrupted} with {straight}"
        )
    shutil.rmtree(directory)
    return 0


def _check_state(loaded: LoadedParams) -> None:
    with searching(after=loaded.search):
        config = configure(loaded.params["env"], where="/env", expected=EnvConfig)
        node = loaded.params["explorer"]["train"]
        explorer = configure(node, where="/explorer/train", allowed=loaded.allowed, expected=ExplorerConfig)
        obstacle = native_obstacle(explorer, config, allowed=loaded.allowed)
        obstacle = obstacle or state_obstacle(config, allowed=loaded.allowed)
    if obstacle:
        raise NotReproducibleError(f"--check-resume: expected an environment that gives its state, found {obstacle}")


def _creation(options: SessionOptions, session: Path) -> list[str]:
    """Return the arguments that make a session of what `options` describe; the goal is changed when it is started."""
    arguments = ["--create-session-only", "--params", str(options.params), "--log-level", "error"]
    if options.cpanel:
        arguments += ["--cpanel", json.dumps(dict(options.cpanel))]
    if options.repeal:
        arguments += ["--repeal", json.dumps(dict(options.repeal))]
    if options.assignments:
        arguments += ["--set", *(f"{key}={value}" for key, value in options.assignments)]
    return [*arguments, "--session-path", str(session.parent), "--session-name", session.name]


def _resumption(options: SessionOptions) -> list[str]:
    """Return the arguments that start a session of `_creation`, but for its path, which follows."""
    arguments = ["--resume", "--trust-session", "--log-level", "error", "--no-monitor-cpu", "--no-monitor-gpu"]
    device = [] if options.device is None else ["--device", options.device]
    return [*arguments, *device, "--load-checkpoint"]


def _changes(changes: Mapping[str, Any]) -> list[str]:
    return ["--repeal", json.dumps(dict(changes))]


class _Runs:
    """The runs of a check, one after the other; neither they nor their directory outlive it."""

    def __init__(self, directory: Path, requests: StopRequest) -> None:
        self._directory = directory
        self._requests = requests
        self._process: subprocess.Popen[str] | None = None
        requests.on_deadline = self.abandon

    def train(self, arguments: list[str], *, expected: int) -> None:
        """Do a run and wait for it.

        Raises:
            DigideepError: it ended with another code than `expected`, or a signal asked the check for an end.
        """
        requests = self._requests
        command = [sys.executable, "-m", "digideep.main", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self._process = process
        while True:
            try:
                _, errors = process.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if requests.stop_signal is not None:
                    process.send_signal(signal.SIGTERM)
        if requests.exit_code is not None:
            raise _Stopped(requests.exit_code)
        if process.returncode != expected:
            last = errors.strip().splitlines()[-1:] or ["it said nothing"]
            raise _Failed(process.returncode, f"--check-resume: {one_line(last[0]).removeprefix('digideep: error: ')}")

    def abandon(self, code: int) -> None:
        """End the run and remove everything, from the watchdog's thread; the check ends with `code` right after."""
        logger.warning("check-resume: ends with %d while a run goes on: nothing was compared", code)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


class _Failed(DigideepError):
    """A run of the check failed; ends with its exit code."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code if 0 < exit_code < 128 else 1


class _Stopped(DigideepError):
    """A signal ended the check."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("--check-resume: expected to finish, found a signal that ended it; run it again")
        self.exit_code = exit_code


def _compare(first: Path, second: Path) -> str:
    """Return where the last checkpoints of two sessions differ first, an empty string where they do not."""
    one, other = (_last(session) for session in (first, second))
    for key in _COMPARED:
        if one.manifest[key] != other.manifest[key]:
            return f"{key} of the manifest: {one_line(one.manifest[key])} and {one_line(other.manifest[key])}"
    for name in sorted(one.components.keys() | other.components.keys()):
        if name != CLOCKS:
            difference = first_difference(one.components.get(name), other.components.get(name), path=name)
            if difference:
                return difference
    return ""


def _last(session: Path) -> Checkpoint:
    return CheckpointStore(session / "checkpoints", session_id="", run_id="check").load()
