"""Copies of code inside a session, and how they compare with what is installed.

`modules/` holds one directory or file a top-level module, and `contents.json`, which says what was copied from where,
and lists the files of packages that were too large to be copied.
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.util
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import digideep
from digideep.errors import StorageError, UsageError, one_line
from digideep.pipeline.codetree import BYTES_LIMIT, TreeFile, code_hash, files_of, hashes_of
from digideep.pipeline.fsio import publish, publish_json, read_json, read_regular, remove_tree, storage_error
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.places import template_directory

__all__ = [
    "CONTENTS",
    "Contents",
    "Source",
    "changed_packages",
    "differing_files",
    "find_sources",
    "locate",
    "read_contents",
    "runs_from",
    "save_modules",
    "stamp_template",
    "synchronise",
]

logger = logging.getLogger(__name__)

CONTENTS = "contents.json"

_MODULE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Source(NamedTuple):
    """A top-level module: what it is imported as, and the directory or file it is."""

    name: str
    path: Path


@dataclasses.dataclass(frozen=True)
class Contents:
    """What `modules/` holds.

    `copied` and `listed` map the name of a top-level module to {"source": path, "files": {relative path: sha256}};
    `listed` ones were too large and run from where they are installed. `options` are the command-line options that this
    version of digideep knows; `version` is that version.
    """

    copied: Mapping[str, Mapping[str, Any]]
    listed: Mapping[str, Mapping[str, Any]]
    options: tuple[str, ...]
    version: str

    @property
    def code_hash(self) -> str:
        """One hash over every file, copied or listed."""
        hashes: dict[str, str] = {}
        for module in (*self.copied.values(), *self.listed.values()):
            hashes.update(module["files"])
        return code_hash(hashes)


def locate(name: str) -> Source | None:
    """Return where the top-level module of dotted `name` is installed, nothing imported; None where it is not.

    Modules of the standard library count as not installed: a session never carries those.
    """
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or not top.isidentifier():
        return None
    if top == "digideep":
        return Source(top, Path(digideep.__file__).resolve().parent)
    try:
        spec = importlib.util.find_spec(top)
    except (ValueError, ImportError):  # a module made by hand, without a specification
        spec = importlib.machinery.PathFinder.find_spec(top)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Source(top, Path(next(iter(spec.submodule_search_locations))))
    is_file = spec.has_location and spec.origin is not None and os.path.isfile(spec.origin)
    return Source(top, Path(spec.origin)) if is_file and spec.origin else None


def find_sources(modules: Iterable[str], *, files: Iterable[Path] = (), where: str = "--save-modules") -> list[Source]:
    """Return what has to be copied: digideep, then the top level of each of `modules`, then single `files`, each once.

    Args:
        modules: dotted names; those of the standard library are passed over.
        files: modules that were named by their path.
        where: what the names are, for the message.

    Raises:
        UsageError: there is no module of a name.
    """
    sources = {"digideep": locate("digideep")}
    for path in files:
        sources.setdefault(path.stem, Source(path.stem, Path(os.path.abspath(path))))
    for name in modules:
        top = name.partition(".")[0]
        if top in sources or top in sys.stdlib_module_names:
            continue
        if (source := locate(top)) is None:
            raise UsageError(
                f"{where}: expected an importable module, found none called {one_line(repr(name), limit=80)}; "
                f"is it installed or in this directory?"
            )
        sources[top] = source
    return [source for source in sources.values() if source is not None]


def save_modules(
    paths: SessionPaths, sources: Sequence[Source], *, options: Sequence[str] = (), durable: bool = True
) -> Contents:
    """Copy `sources` into `modules/`, which must not exist yet, and write down what it holds.

    A source that does not fit into what is left of 20 MB is not copied at all; its files are listed with their hashes.

    Args:
        paths: of the session.
        sources: the first ones go first.
        options: the command-line options of this digideep.
        durable: whether this waits for the disk; else `synchronise` is left to the caller.

    Raises:
        StorageError: something could not be written; nothing is left of it.
        UsageError: something could not be read.
    """
    copied: dict[str, Any] = {}
    listed: dict[str, Any] = {}
    room = BYTES_LIMIT
    try:
        paths.modules.mkdir(mode=0o700)
        for source in sources:
            files = _code_files(source)
            size = sum(file.bytes for file in files)
            fits = size <= room
            if fits:
                room -= size
                _copy(files, paths.modules)
            else:
                logger.warning(
                    "%s (%d bytes) is not copied into the session: too large; it runs from where it is",
                    source.name,
                    size,
                )
            (copied if fits else listed)[source.name] = {"source": str(source.path), "files": hashes_of(files)}
        contents = Contents(copied=copied, listed=listed, options=tuple(options), version=digideep.__version__)
        publish_json(paths.modules / CONTENTS, dataclasses.asdict(contents))
        if durable:
            synchronise(paths.modules)
    except (OSError, StorageError) as error:
        if isinstance(error, StorageError):
            remove_tree(paths.modules)
            raise
        # Told before the removal: what is free after it is not what was missing.
        told = storage_error(error, paths.modules, action="copy code to")
        remove_tree(paths.modules)
        raise told from error
    return contents


def _code_files(source: Source) -> list[TreeFile]:
    files = files_of(source.path, name=source.name)
    # The template is beside the code in an installed package and elsewhere in a checkout: it is no part of what runs.
    return [file for file in files if not file.relative.startswith("digideep/sessions_template/")]


def _copy(files: Iterable[TreeFile], target: Path) -> None:
    made = {target}
    for file in files:
        path = target / file.relative
        if path.parent not in made:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made.add(path.parent)
        content = read_regular(file.path, limit_bytes=max(file.bytes, BYTES_LIMIT))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o700 if file.executable else 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(content)


def synchronise(modules: Path) -> None:
    """Make a finished copy durable; after all is written, since the device then takes most of it at once.

    Raises:
        StorageError: the disk refuses it.
    """
    try:
        for parent, _, names in os.walk(modules):
            for name in (*names, "."):
                descriptor = os.open(os.path.join(parent, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
    except OSError as error:
        raise storage_error(error, modules, action="copy code to") from error


def stamp_template(paths: SessionPaths) -> None:
    """Write the files of the template into a session.

    Raises:
        StorageError: one could not be written.
    """
    for source in template_directory().iterdir():
        if source.is_file():
            publish(paths.root / source.name, source.read_bytes())


def read_contents(modules: Path) -> Contents | None:
    """Return what `modules/` says it holds; None where there is no such directory.

    Raises:
        UsageError: its contents.json is missing or malformed.
    """
    if not os.path.lexists(modules):
        return None
    path = modules / CONTENTS
    value = read_json(path)
    fields = {field.name for field in dataclasses.fields(Contents)}
    if not isinstance(value, dict) or set(value) != fields:
        raise UsageError(f"{one_line(path)}: expected the keys {', '.join(sorted(fields))}, found others; restore it")
    well_formed = all(_is_module_table(value[key]) for key in ("copied", "listed"))
    options, version = value["options"], value["version"]
    well_formed = well_formed and isinstance(version, str) and isinstance(options, list)
    if not well_formed or not all(isinstance(option, str) for option in options):
        raise UsageError(f"{one_line(path)}: expected a table of modules, found something else; restore it from a copy")
    return Contents(copied=value["copied"], listed=value["listed"], options=tuple(options), version=version)


def _is_module_table(table: object) -> bool:
    return isinstance(table, dict) and all(
        isinstance(module, dict)
        and _MODULE_NAME.fullmatch(name) is not None
        and isinstance(module.get("source"), str)
        and isinstance(module.get("files"), dict)
        and all(isinstance(digest, str) for digest in module["files"].values())
        for name, module in table.items()
    )


def _installed(name: str, source: str, *, trusted: bool) -> Source | None:
    """Return where a module of a session is today: as Python finds it, else where it was copied from.

    A session that is not trusted does not choose which files of this machine are read, copied, or asked git about.
    """
    if (found := locate(name)) is not None or not trusted:
        return found
    path = Path(source)
    same_name = path.name in (name, f"{name}.py")
    return Source(name, path) if same_name and path.is_absolute() and path.exists() else None


def sources_today(modules: Path, *, trusted: bool = False) -> list[Source]:
    """Return where everything that a session carries is installed today; digideep alone where it carries nothing.

    Where a module was copied from is looked at for a `trusted` session only. Where nobody can tell what it carries, as
    after a kill in the middle of its making, a warning says so, and it is digideep alone.
    """
    try:
        contents = read_contents(modules)
    except UsageError as error:
        logger.warning("code: digideep alone is taken into the session: %s", error)
        contents = None
    names = {} if contents is None else {**contents.copied, **contents.listed}
    found = {name: _installed(name, str(entry["source"]), trusted=trusted) for name, entry in names.items()}
    return find_sources([]) + [source for name, source in found.items() if source is not None and name != "digideep"]


def _files_today(name: str, source: str, *, trusted: bool) -> list[TreeFile] | None:
    """Return the files of a module as it is installed today; None where it is not, or cannot be read."""
    installed = _installed(name, source, trusted=trusted)
    try:
        return None if installed is None else _code_files(installed)
    except UsageError:
        return None


def differing_files(modules: Path, *, trusted: bool = False) -> list[str]:
    """Return the files, as `<module>/<path>`, in which the code of a session differs from what is installed.

    A module that is not installed at all, or is much larger today, stands there by its name alone. Empty where nothing
    differs. Where a module was copied from is looked at for a `trusted` session only.

    Raises:
        UsageError: `modules/` cannot be read.
    """
    contents = read_contents(modules)
    if contents is None:
        return []
    differing: set[str] = set()
    room_here = room_there = 2 * BYTES_LIMIT  # a table of names that were never copied must not make us read the disk
    for name, module in contents.copied.items():
        own = modules / name if (modules / name).is_dir() else modules / f"{name}{Path(module['source']).suffix}"
        files, today = _code_files(Source(name, own)), _files_today(name, module["source"], trusted=trusted)
        room_here -= sum(file.bytes for file in files)
        if room_here < 0:
            raise UsageError(
                f"{one_line(modules)}: expected at most {BYTES_LIMIT} bytes of code, found more; restore it"
            )
        room_there -= sum(file.bytes for file in today or [])
        if today is None or room_there < 0:
            differing.add(name)
        else:
            differing.update(path for path, _ in hashes_of(files).items() ^ hashes_of(today).items())
    return sorted(differing)


def changed_packages(contents: Contents) -> list[str]:
    """Return the modules of a trusted session that were too large to be copied and are not, today, what they were."""
    changed = []
    for name, module in contents.listed.items():
        today = _files_today(name, module["source"], trusted=True)
        if today is None or hashes_of(today) != module["files"]:
            changed.append(name)
    return sorted(changed)


def runs_from(modules: Path) -> bool:
    """Whether the digideep that is running is the copy in `modules`."""
    own = Path(os.path.realpath(digideep.__file__)).parent.parent
    return own == Path(os.path.realpath(modules))
