"""Where everything of a session lies, and whether a path is one.

`SessionPaths` is the only place that spells a name inside a session directory. Where sessions lie is in
`digideep.pipeline.places`, whose names are offered here too.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from pathlib import Path
from typing import Any, NamedTuple

from digideep.errors import CheckpointError, UsageError, one_line
from digideep.pipeline.fsio import read_json
from digideep.pipeline.places import (
    DEFAULT_ROOT,
    NAME_PATTERN,
    check_name,
    is_default_root,
    is_volatile,
    new_directory,
    new_session_directory,
    session_root,
    template_directory,
    timestamp,
    typed_path,
)

__all__ = [
    "DEFAULT_ROOT",
    "FORMAT",
    "FORMAT_VERSION",
    "MANIFEST_NAME",
    "NAME_PATTERN",
    "CheckpointPath",
    "SessionPaths",
    "check_checkpoint",
    "check_name",
    "check_session",
    "checkpoint_number",
    "is_default_root",
    "is_session",
    "is_volatile",
    "new_directory",
    "new_session_directory",
    "read_cpanel",
    "read_meta",
    "require_one_name",
    "resolve_checkpoint",
    "session_root",
    "template_directory",
    "timestamp",
]

FORMAT = "digideep-session"
FORMAT_VERSION = 1
MANIFEST_NAME = "MANIFEST.json"

_LISTED_LIMIT = 1000  # digideep makes at most 8 files in each of these directories
_CHECKPOINT_NAME = re.compile(r"checkpoint-(0|[1-9][0-9]{0,17})")


class _Below:
    """An attribute whose value is the path of `name` below `root`."""

    def __init__(self, name: str, doc: str) -> None:
        self._name = name
        self.__doc__ = doc

    def __get__(self, paths: SessionPaths | None, owner: type[SessionPaths]) -> Path:
        return Path(self._name) if paths is None else paths.root / self._name


@dataclasses.dataclass(frozen=True)
class SessionPaths:
    """Every path of one session.

    <root>/
    ├── __init__.py  saam.py  README.md       stamped from sessions_template
    ├── meta.json                             what it is, who made it, one entry a process
    ├── cpanel.json  params.yaml              the parameters it was made with, never changed
    ├── repeal.json                           changes to them since, in order
    ├── summary.json                          how it stands
    ├── signature.json                        which code of it this user trusts
    ├── provenance.patch                      uncommitted changes of the code at its beginning
    ├── report.log                            the text log
    ├── varlog.jsonl prolog.jsonl monlog.jsonl  metrics, profile, machine usage
    ├── timers.json                           the whole timer tree
    ├── running.lock  done.lock
    ├── checkpoints/checkpoint-<n>/           n cycles since the beginning
    ├── modules/                              the code it runs
    ├── monitor/<mode>/<worker>.monitor.csv   one row an episode
    ├── tensorboard/
    └── crash/ videos/ evaluations/ customs/  made when there is something to put there
    """

    root: Path

    @property
    def name(self) -> str:
        """Name of the directory."""
        return self.root.name

    init = _Below("__init__.py", "What makes the session importable.")
    saam = _Below("saam.py", "What `import session_...` runs when its `loader` is used.")
    readme = _Below("README.md", "The directory, explained to whoever finds it.")
    meta = _Below("meta.json", "Identity and one entry a process.")
    cpanel = _Below("cpanel.json", "The merged control panel.")
    params = _Below("params.yaml", "The params tree.")
    repeal = _Below("repeal.json", "Changes of the params tree, in order.")
    summary = _Below("summary.json", "How the session stands.")
    signature = _Below("signature.json", "Which code of it this user trusts.")
    provenance = _Below("provenance.patch", "Uncommitted changes of the code at the beginning.")
    report_log = _Below("report.log", "The text log.")
    varlog = _Below("varlog.jsonl", "Metrics.")
    prolog = _Below("prolog.jsonl", "Seconds by block since the last row.")
    monlog = _Below("monlog.jsonl", "Machine usage.")
    timers = _Below("timers.json", "The whole timer tree.")
    running_lock = _Below("running.lock", "Locked while a process has the session open.")
    done_lock = _Below("done.lock", "Present once the goal is reached.")
    checkpoints = _Below("checkpoints", "One directory a checkpoint.")
    modules = _Below("modules", "The code that the session runs.")
    monitor = _Below("monitor", "One row an episode, by mode and worker.")
    tensorboard = _Below("tensorboard", "Event files.")
    crash = _Below("crash", "What is needed to see an error again.")
    videos = _Below("videos", "Recorded episodes.")
    evaluations = _Below("evaluations", "One directory an evaluation.")
    customs = _Below("customs", "What `Runner.custom` leaves.")

    def checkpoint(self, number: int) -> Path:
        """Return the directory of the checkpoint after `number` cycles."""
        return self.checkpoints / f"checkpoint-{number}"

    def superseded_modules(self) -> Path:
        """Return the first free `modules-<n>.superseded`."""
        number = 1
        while os.path.lexists(path := self.root / f"modules-{number}.superseded"):
            number += 1
        return path


class CheckpointPath(NamedTuple):
    """What `--load-checkpoint` names: a session, and one of its checkpoints or None."""

    session: SessionPaths
    number: int | None


def is_session(path: Path) -> bool:
    """Whether `path` looks like a session: a directory that holds a regular file meta.json. Reads nothing."""
    try:
        return path.is_dir() and stat.S_ISREG((path / "meta.json").lstat().st_mode)
    except OSError:
        return False


def check_session(path: str | os.PathLike[str]) -> SessionPaths:
    """Return the paths of the session at `path`, every file of it that a start reads or writes looked at.

    Raises:
        UsageError: there is none, or one of its files is missing, malformed, or no regular file.
    """
    where = one_line(os.fspath(path), limit=400)
    try:
        root = Path(os.path.realpath(path))
        is_directory = root.is_dir()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{where}: expected a session directory, found {getattr(error, 'strerror', error)}; check the path"
        ) from error
    if not is_directory:
        found = "a file" if root.exists() else "nothing"
        raise UsageError(f"{where}: expected a session directory, found {found}; check the path")
    paths = SessionPaths(root)
    if not os.path.lexists(paths.meta):
        raise UsageError(f"{where}: expected a session directory, found no meta.json in it; check the path")
    read_meta(paths)
    for file in (paths.cpanel, paths.params, paths.repeal):
        _require(file, "a regular file")
    _check_kinds(paths)
    read_cpanel(paths)
    _require_type(paths.repeal, list)
    return paths


def _check_kinds(paths: SessionPaths) -> None:
    """Check that what is written later lies in the session: nothing there leads elsewhere, or would be waited for."""
    logs = (paths.report_log, paths.varlog, paths.prolog, paths.monlog, paths.timers)
    for file in (*logs, paths.summary, paths.signature, paths.running_lock, paths.done_lock):
        if os.path.lexists(file):
            _require(file, "a regular file")
    code = (paths.checkpoints, paths.modules)
    results = (paths.crash, paths.videos, paths.evaluations, paths.customs)
    for directory in (*code, *results, paths.monitor, paths.tensorboard):
        if os.path.lexists(directory):
            _require(directory, "a directory")
    for mode in _listed(paths.monitor):
        _require(mode, "a directory")
        for file in _listed(mode):
            _require(file, "a regular file")
    for file in _listed(paths.tensorboard):
        _require(file, "a regular file")


def _listed(directory: Path) -> list[Path]:
    """Return what a directory of the session holds; nothing where it is missing."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(
            f"{one_line(directory)}: expected to read this directory, found {error.strerror}; check its permissions"
        ) from error
    if len(names) > _LISTED_LIMIT:
        raise UsageError(
            f"{one_line(directory)}: expected at most {_LISTED_LIMIT} files, found {len(names)}; remove what is not its"
        )
    return [directory / name for name in sorted(names)]


def read_meta(paths: SessionPaths) -> dict[str, Any]:
    """Return meta.json.

    Raises:
        UsageError: it is missing, malformed, or of a version that this digideep does not know.
    """
    meta: dict[str, Any] = _require_type(paths.meta, dict)
    where = one_line(paths.meta)
    if meta.get("format") != FORMAT:
        found = one_line(repr(meta.get("format")), limit=80)
        raise UsageError(f"{where}: expected format {FORMAT!r}, found {found}; this is no session of digideep")
    version, identity, runs = meta.get("version"), meta.get("id"), meta.get("runs", [])
    if type(version) is not int or version < 1:
        raise UsageError(f"{where}: expected a version number, found {one_line(repr(version), limit=80)}; restore it")
    if version > FORMAT_VERSION:
        raise UsageError(
            f"{where}: expected a version up to {FORMAT_VERSION}, found {version}; it needs a newer digideep"
        )
    if not isinstance(identity, str) or not identity:
        raise UsageError(f"{where}: expected the key 'id', found {one_line(repr(identity), limit=80)}; restore it")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise UsageError(f"{where}: expected a list of runs, found something else; restore it")
    return meta


def read_cpanel(paths: SessionPaths) -> dict[str, Any]:
    """Return cpanel.json. Raises UsageError where it is missing or malformed."""
    cpanel: dict[str, Any] = _require_type(paths.cpanel, dict)
    return cpanel


def _require_type(file: Path, expected: type[dict[str, Any]] | type[list[Any]]) -> Any:
    value = read_json(file)
    if not isinstance(value, expected):
        words = "an object" if expected is dict else "a list"
        raise UsageError(f"{one_line(file)}: expected {words}, found {type(value).__name__}; restore the file")
    return value


def _require(path: Path, expected: str) -> None:
    kinds = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a FIFO",
    }
    try:
        found = kinds.get(stat.S_IFMT(path.lstat().st_mode), "a FIFO, socket or device")
    except OSError as error:
        found = "nothing" if isinstance(error, FileNotFoundError) else str(error.strerror)
    if found != expected:
        raise UsageError(f"{one_line(path)}: expected {expected}, found {found}; restore it from a copy")


def require_one_name(path: Path, status: os.stat_result) -> None:
    """Check that a file that is going to be written in place has no second name, which may lie anywhere.

    Raises:
        UsageError: it has.
    """
    if status.st_nlink > 1:
        raise UsageError(
            f"{one_line(path)}: expected a file of its own, found one with {status.st_nlink} names; "
            f"copy the session without hard links"
        )


def checkpoint_number(name: str) -> int | None:
    """Return n for a directory called `checkpoint-<n>`, None for every other name."""
    match = _CHECKPOINT_NAME.fullmatch(name)
    return int(match[1]) if match else None


def check_checkpoint(path: Path) -> int:
    """Return the number of the checkpoint directory at `path`; its content is for the store to verify.

    Raises:
        CheckpointError: there is none of that name, or it holds no manifest.
    """
    where, number = one_line(path), checkpoint_number(path.name)
    if number is None:
        raise CheckpointError(f"{where}: expected a name like checkpoint-12, found another; check the path")
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise CheckpointError(f"{where}: expected a checkpoint, found {error.strerror}; {_known(path)}") from error
    if not stat.S_ISDIR(mode):
        raise CheckpointError(f"{where}: expected a directory, found a file or a link; {_known(path)}")
    try:
        complete = stat.S_ISREG((path / MANIFEST_NAME).lstat().st_mode)
    except OSError:
        complete = False
    if not complete:
        raise CheckpointError(f"{where}: expected {MANIFEST_NAME} in it, found none; {_known(path)}")
    return number


def _known(path: Path) -> str:
    try:
        numbers = sorted(n for name in os.listdir(path.parent) if (n := checkpoint_number(name)) is not None)
    except OSError:
        numbers = []
    others = [str(number) for number in numbers if number != checkpoint_number(path.name)]
    return f"there are {', '.join(others[-8:])}" if others else "there is no other one"


def resolve_checkpoint(path: str | os.PathLike[str], *, option: str = "--load-checkpoint") -> CheckpointPath:
    """Return the session and the checkpoint that `path` names; the number is None for a session directory.

    `option` is what the user gave the path to, for the message.

    Raises:
        UsageError: `path` is neither a session nor a checkpoint of one.
        CheckpointError: it is a checkpoint's name in a session that has no such checkpoint.
    """
    where = one_line(os.fspath(path), limit=400)
    literal = typed_path(path, option=option)
    if checkpoint_number(literal.name) is not None and literal.parent.name == "checkpoints":
        session = check_session(literal.parent.parent)
        return CheckpointPath(session, check_checkpoint(session.checkpoints / literal.name))
    try:
        literal.stat()
    except OSError as error:
        found = "nothing" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise UsageError(f"{option}: expected a session or a checkpoint, found {found} at {where}; check it") from error
    if literal.name == "checkpoints" and is_session(literal.parent):
        raise UsageError(
            f"{option}: expected a session or one checkpoint, found {where}; name {one_line(literal.parent)}"
        )
    return CheckpointPath(check_session(literal), None)
