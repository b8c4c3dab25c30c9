"""What is written into the directory of a new session, and what each later start adds to it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from digideep.pipeline import meta
from digideep.pipeline.checkpoint import Checkpoint, CheckpointStore
from digideep.pipeline.cli import option_names
from digideep.pipeline.experiment import Experiment
from digideep.pipeline.fsio import publish, publish_json, read_json
from digideep.pipeline.layout import SessionPaths, resolve_checkpoint
from digideep.pipeline.options import Mode, SessionOptions
from digideep.pipeline.provenance import collect_provenance, describe_machine, installed_versions
from digideep.pipeline.relaunch import take_installed_code
from digideep.pipeline.snapshot import (
    find_sources,
    read_contents,
    save_modules,
    sources_today,
    stamp_template,
    synchronise,
)
from digideep.pipeline.summary import Summary
from digideep.pipeline.trust import sign_or_say_why
from digideep.pipeline.writer import Writer
from digideep.types import StateDict
from digideep.utility.yaml12 import dumps_yaml

__all__ = ["Founded", "append_changes", "begin_run", "found", "params_hash", "replace_code"]

logger = logging.getLogger(__name__)


class Founded:
    """What is known of a session that this start has made, and what is still on its way to the disk.

    The copy of the code is made durable by a thread, beside the imports and the making of environments and networks:
    before anything of the session is announced as saved, `settle` has to be called.

    Args:
        commits: of the code, by module; None: this start has not asked for them.
    """

    def __init__(self, commits: Mapping[str, Any] | None = None) -> None:
        self.commits = commits
        self._thread = Writer(level=0)

    def synchronise(self, modules: Path) -> None:
        """Begin to make the copy of the code durable."""
        self._thread.start(lambda stack: synchronise(modules))

    def settle(self) -> None:
        """Wait until what was begun is durable; at once where nothing was, or it was waited for already.

        Raises:
            StorageError: the disk refuses it.
        """
        synchronised = self._thread.take(wait=True)
        if synchronised is not None and synchronised.error is not None:
            raise synchronised.error

    def close(self) -> None:
        """Wait for the thread, whatever comes of it."""
        self._thread.join()


def found(paths: SessionPaths, experiment: Experiment, options: SessionOptions) -> Founded:
    """Write everything that a session has before anything is trained in it: parameters, code, origin, signature.

    Of a barebone session all is durable on return, else its code once `Founded.settle` returns; in a dry run never.

    Raises:
        StorageError: something could not be written.
        UsageError: a module of --save-modules does not exist.
    """
    sources = find_sources((*experiment.modules, *options.save_modules), files=experiment.files)
    described = meta.new_meta(message=options.message, lineage=experiment.lineage, preset=experiment.preset)
    meta.write_meta(paths, described)
    publish_json(paths.cpanel, dict(experiment.cpanel))
    publish(paths.params, dumps_yaml(experiment.base).encode())
    publish_json(paths.repeal, _first_changes(experiment) if options.mode is Mode.CREATE else [])
    stamp_template(paths)
    save_modules(paths, sources, options=option_names(), durable=options.mode is Mode.CREATE)
    provenance = collect_provenance(sources)
    if provenance.patch:
        publish(paths.provenance, provenance.patch.encode())
    if not options.dry_run:  # which leaves nothing behind, no key either
        _sign(paths, experiment)
    state = "stopped" if options.mode is Mode.CREATE else "running"
    Summary(state=state).write(paths)  # type: ignore[arg-type]
    founded = Founded(provenance.commits)
    if options.mode is not Mode.CREATE and not options.dry_run:
        founded.synchronise(paths.modules)
    return founded


def _first_changes(experiment: Experiment) -> list[Mapping[str, Any]]:
    """Return the changes by path of a barebone session; any other start appends its own once every part stands."""
    return [{**change, "epoch": 0, "time": meta.now_text()} for change in experiment.changes]


def replace_code(paths: SessionPaths, experiment: Experiment) -> str:
    """Put today's code into a session, sign it again, and return the new name of the former code."""
    sources = sources_today(paths.modules, trusted=experiment.trusted)
    former, _ = take_installed_code(paths, sources, options=option_names())
    _sign(paths, experiment)
    return former


def _sign(paths: SessionPaths, experiment: Experiment) -> None:
    imports = [name for name in experiment.allowed if name != "digideep"]
    warning = sign_or_say_why(paths, modules=imports)
    if warning:
        logger.warning("%s", warning)


def begin_run(
    paths: SessionPaths,
    options: SessionOptions,
    *,
    commits: Mapping[str, Any] | None = None,
    superseded_modules: str | None = None,
    trusted: bool = False,
) -> int:
    """Append the entry of this process to meta.json and return its index.

    Args:
        paths: of the session.
        options: of this start.
        commits: of the code, by module; None: asked for here.
        superseded_modules: where the code is that this start has replaced.
        trusted: whether code that the session carries may run; then git is asked about it where it was copied from.
    """
    contents = read_contents(paths.modules)
    if commits is None:
        commits = collect_provenance(sources_today(paths.modules, trusted=trusted)).commits
    return meta.begin_run(
        paths,
        command_line=options.command_line,
        **describe_machine(),
        versions=installed_versions(),
        code_hash="" if contents is None else contents.code_hash,
        commits=commits,
        superseded_modules=superseded_modules,
    )


def append_changes(paths: SessionPaths, changes: Sequence[Mapping[str, Any]]) -> None:
    """Append entries {path, old, new, epoch, time} to repeal.json."""
    if changes:
        publish_json(paths.repeal, [*read_json(paths.repeal), *changes])


def initial_components(path: str) -> Mapping[str, StateDict]:
    """Return the components of the checkpoint that `init_from` names, which is another session's.

    Raises:
        UsageError: it names no checkpoint.
        CheckpointError: the checkpoint is damaged.
    """
    return _initial_checkpoint(path).components


def lineage_of(path: str) -> dict[str, Any]:
    """Return what meta.json says about the checkpoint that a new session starts from. Raises as above."""
    checkpoint = _initial_checkpoint(path)
    manifest = checkpoint.manifest
    return {
        "session": manifest["session_id"],
        "path": str(checkpoint.path),
        "checkpoint": checkpoint.path.name,
        "epoch": manifest["epoch"],
        "frame": manifest["frame"],
    }


def _initial_checkpoint(path: str) -> Checkpoint:
    source, number = resolve_checkpoint(path, option="init_from")
    return CheckpointStore(source.checkpoints, session_id="", run_id="reader").load(number)


def params_hash(params: Mapping[str, Any]) -> str:
    """Return the sha256 of a params tree, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(params, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
