"""`--autoresume`: the same command again goes on with the same session."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shlex
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import digideep
from digideep.errors import SessionDoneError, UsageError, one_line
from digideep.launch import Ended, launch
from digideep.params.common import knob_paths
from digideep.params.loading import LoadedParams, load_params
from digideep.params.naming import autoresume_name, cpanel_line, expand_session_name
from digideep.pipeline import trust
from digideep.pipeline.fsio import TEMPORARY_PREFIX, read_json
from digideep.pipeline.layout import SessionPaths, is_volatile, read_cpanel, session_root
from digideep.pipeline.locks import SessionLock
from digideep.pipeline.options import Mode, SessionOptions
from digideep.pipeline.signals import StopRequest

__all__ = ["autoresume"]

logger = logging.getLogger(__name__)

_LOCK_WAIT_S = 120.0
_FOUNDING_S = 5.0  # longer than it takes to make a session
_RACES = 5  # with other starts of the same command
_BATCH_SYSTEMS = {"SLURM_JOB_ID": "SLURM", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF"}


def autoresume(options: SessionOptions, requests: StopRequest) -> Ended:
    """Begin the session that this command stands for, or go on with it.

    Raises:
        UsageError: sessions would lie where a requeued job does not find them, or the session that is there was made
            with another control panel.
        SessionLockedError: it was in use all the time.
        StoppedError: a signal asked for an end while this waited for it.
        TrustError: it needs code that could not be trusted at a requeue.
        CheckpointError: every checkpoint is damaged.
    """
    loaded = load_params(options)
    _refuse_volatile(session_root(options.session_path, create=False))
    root = session_root(options.session_path)
    trust.check_requeue(root, modules=trust.needed_modules(loaded.params), trust_session=options.trust_session)
    name = autoresume_name(loaded)
    if options.session_name is not None:
        name = expand_session_name(options.session_name, loaded.cpanel)
    wait_s = _LOCK_WAIT_S if options.lock_wait_s is None else options.lock_wait_s
    deadline = time.monotonic() + wait_s
    options = dataclasses.replace(options, session_name=name, lock_wait_s=wait_s)
    paths = SessionPaths(root / name)
    for _ in range(_RACES):
        if os.path.lexists(paths.root) and _is_founded(paths, wait_s=wait_s, requests=requests):
            break
        try:
            return launch(options, requests)
        except UsageError as error:
            if not _is_race(error, paths):
                raise
            # Another start of the same command was faster: go on with its session.
    else:
        raise UsageError(
            f"{one_line(paths.root)}: expected a session that is there or not, found it made and removed by other "
            f"starts {_RACES} times; start it again"
        )
    _compare_cpanel(paths, loaded)
    changes = _new_changes(paths, loaded)
    resumed = dataclasses.replace(
        options,
        mode=Mode.RESUME,
        params=None,
        cpanel={},
        repeal=changes,
        assignments=(),
        session_name=None,
        lock_wait_s=max(0.0, deadline - time.monotonic()),
        load_checkpoint=str(paths.root),
    )
    try:
        return launch(resumed, requests)
    except SessionDoneError:
        return _done(paths, resumed)


def _is_race(error: UsageError, paths: SessionPaths) -> bool:
    """Whether the directory of the session was there when it was to be made; code of the user may raise the same."""
    cause = error.__cause__
    return isinstance(cause, FileExistsError) and str(cause.filename) == str(paths.root)


def _done(paths: SessionPaths, options: SessionOptions) -> Ended:
    """Say that nothing is left to do."""
    from digideep.pipeline.session import Session

    session = Session(Path(digideep.__file__).parent, options)
    session.paths = paths
    session.say(f"session: {paths.root}")
    session.say("autoresume: done")
    session.announce()
    return Ended(0, session)


def _refuse_volatile(root: Path) -> None:
    system = next((name for key, name in _BATCH_SYSTEMS.items() if os.environ.get(key)), None)
    if system is not None and is_volatile(root):
        raise UsageError(
            f"--autoresume: expected sessions on a file system that outlives a {system} job, found {one_line(root)}; "
            f"set DIGIDEEP_SESSIONS or --session-path"
        )


def _is_founded(paths: SessionPaths, *, wait_s: float, requests: StopRequest) -> bool:
    """Whether the directory holds a whole session; what a kill left of one that was being made is removed.

    Raises:
        UsageError: it is something else.
        SessionLockedError: another process has it open all the time.
        StoppedError: a signal asked for an end meanwhile.
    """
    try:
        is_founding = _only_founding(paths)
    except FileNotFoundError:  # another start has removed it in this moment
        return False
    if not is_founding:
        raise UsageError(
            f"{one_line(paths.root)}: expected a session, or nothing, found something else; give another --session-name"
        )
    deadline = time.monotonic() + _FOUNDING_S
    while not paths.summary.exists() and time.monotonic() < deadline and not requests.is_stopping():
        time.sleep(0.1)  # another start of this command may be making it right now
    if paths.summary.exists():
        return True
    with SessionLock(paths.root, wait_s=wait_s, stop_signal=lambda: requests.stop_signal):
        if paths.summary.exists():  # by now
            return True
        logger.warning("%s was never finished being made: it is made again", paths.name)
        try:
            shutil.rmtree(paths.root)
        except FileNotFoundError:  # another start clears up too
            return False
        except OSError as error:
            raise UsageError(
                f"{one_line(paths.root)}: expected to remove what was never finished being made, found "
                f"{error.strerror}; remove it, or give another --session-name"
            ) from error
        return False


def _only_founding(paths: SessionPaths) -> bool:
    """Whether a directory is a session, or what a kill left of one: empty, or locked and with its first files only."""
    if paths.root.is_symlink() or not paths.root.is_dir():
        return False
    if paths.summary.exists():
        return True
    template = (paths.init, paths.saam, paths.readme, paths.modules, paths.signature, paths.provenance)
    described = (paths.meta, paths.cpanel, paths.params, paths.repeal, paths.report_log, paths.running_lock)
    names, entries = {path.name for path in (*template, *described)}, os.listdir(paths.root)
    # The lock comes first. Without one this is somebody's own directory, which must not be removed.
    is_locked = paths.running_lock.name in entries and stat.S_ISREG(paths.running_lock.lstat().st_mode)
    is_known = all(entry in names or entry.startswith(TEMPORARY_PREFIX) for entry in entries)
    return not entries or (is_locked and is_known)


def _compare_cpanel(paths: SessionPaths, loaded: LoadedParams) -> None:
    there = read_cpanel(paths)
    differing = [key for key in sorted(there.keys() | loaded.cpanel.keys()) if _differs(key, there, loaded.cpanel)]
    if differing:
        shown = "; ".join(f"{key}: {_shown(there, key)} there, {_shown(loaded.cpanel, key)} given" for key in differing)
        raise UsageError(
            f"--autoresume: expected the control panel that {one_line(paths.root)} was made with, found {shown}; "
            f"give the same, or another --session-name{_way_out(differing, paths, loaded)}"
        )


def _way_out(differing: list[str], paths: SessionPaths, loaded: LoadedParams) -> str:
    """Return the options that go on with the session and the given knobs, where all of them stand for a path."""
    known = knob_paths(loaded.cpanel, loaded.params, own=loaded.knobs)
    if any(key not in known for key in differing):
        return ""
    pasted = " ".join(cpanel_line(key, loaded.cpanel[key], path=known[key]) for key in differing)
    return f", or change it: --load-checkpoint {shlex.quote(one_line(paths.root))} --resume {pasted}"


def _differs(key: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return _shown(first, key) != _shown(second, key)


def _shown(cpanel: Mapping[str, Any], key: str) -> str:
    return json.dumps(cpanel[key], sort_keys=True) if key in cpanel else "nothing"


def _new_changes(paths: SessionPaths, loaded: LoadedParams) -> dict[str, Any]:
    """Return the changes by path that this command gives and no earlier start of it has given."""
    given_before = [
        (entry.get("path"), entry.get("new")) for entry in read_json(paths.repeal) if isinstance(entry, dict)
    ]
    return {
        entry["path"]: entry["new"] for entry in loaded.entries if (entry["path"], entry["new"]) not in given_before
    }
