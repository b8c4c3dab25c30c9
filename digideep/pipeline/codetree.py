"""The files of a package on disk: which of them are copied, and what hash they have together."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from digideep.errors import UsageError, one_line
from digideep.pipeline.fsio import read_regular

__all__ = ["BYTES_LIMIT", "FILES_LIMIT", "TreeFile", "code_hash", "exact_hashes", "files_of", "hashes_of", "sha256_of"]

BYTES_LIMIT = 20 << 20  # of all code in a session
FILES_LIMIT = 20_000
_DEPTH_LIMIT = 60

_SKIPPED_DIRECTORIES = frozenset(
    "__pycache__ .git .hg .svn .bzr .jj _darcs CVS .venv node_modules .mypy_cache .pytest_cache .ruff_cache "
    ".ipynb_checkpoints .tox .nox .eggs".split()
)
_SKIPPED_SUFFIXES = (".pyc", ".pyo", ".swp", "~")


class TreeFile(NamedTuple):
    """One regular file of a package; `relative` is its path in the copy, with slashes."""

    relative: str
    path: Path
    bytes: int
    executable: bool


def files_of(package: Path, *, name: str) -> list[TreeFile]:
    """Return the files of a package directory, or the one file of a module, sorted by their path in a copy.

    Caches, version control and other sessions are left out. A link is followed only to what lies inside the package;
    FIFOs, sockets and devices are left out.

    Args:
        package: the directory or file.
        name: what it is imported as; the first part of every relative path.

    Raises:
        UsageError: it cannot be read, or has more than `FILES_LIMIT` files.
    """
    package = Path(os.path.realpath(package))
    if not package.is_dir():
        found = _regular(package, relative=name + package.suffix)
        return [] if found is None else [found]
    files: list[TreeFile] = []
    try:
        for found in _walk(package, relative=name, root=package, above=(package,)):
            files.append(found)
            if len(files) > FILES_LIMIT:
                raise UsageError(f"{one_line(package)}: expected at most {FILES_LIMIT} files, found more; name a part")
    except OSError as error:
        raise UsageError(
            f"{one_line(error.filename or package)}: expected readable code, found {error.strerror}; check it"
        ) from error
    return sorted(files)


def _walk(directory: Path, *, relative: str, root: Path, above: tuple[Path, ...]) -> Iterator[TreeFile]:
    if len(above) > _DEPTH_LIMIT:
        raise UsageError(f"{one_line(root)}: expected at most {_DEPTH_LIMIT} nested directories, found more")
    with os.scandir(directory) as entries:
        listed = list(entries)
    for entry in listed:
        path = Path(entry.path)
        if entry.is_symlink():
            path = Path(os.path.realpath(path))
            if not path.is_relative_to(root) or path in above:
                continue
        below = f"{relative}/{entry.name}"
        if path.is_dir():
            if entry.name not in _SKIPPED_DIRECTORIES and not _is_a_session(path):
                yield from _walk(path, relative=below, root=root, above=(*above, path))
        elif not entry.name.endswith(_SKIPPED_SUFFIXES) and (found := _regular(path, relative=below)):
            yield found


def _is_a_session(path: Path) -> bool:
    return all((path / name).exists() for name in ("meta.json", "saam.py", "checkpoints"))


def _regular(path: Path, *, relative: str) -> TreeFile | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return TreeFile(relative, path, status.st_size, bool(status.st_mode & 0o100))


def sha256_of(path: Path, *, limit_bytes: int = BYTES_LIMIT) -> str:
    """Return the hash of a regular file.

    Raises:
        UsageError: it is missing, too large, or something else than a regular file.
    """
    try:
        return hashlib.sha256(read_regular(path, limit_bytes=limit_bytes)).hexdigest()
    except OSError as error:
        raise UsageError(f"{one_line(path)}: expected a readable file, found {error.strerror}; check it") from error


def hashes_of(files: list[TreeFile]) -> dict[str, str]:
    """Return the sha256 of each file by its relative path."""
    return {file.relative: sha256_of(file.path, limit_bytes=max(file.bytes, BYTES_LIMIT)) for file in files}


def code_hash(hashes: Mapping[str, str]) -> str:
    """Return one hash over the paths and hashes of files; their order does not matter."""
    digest = hashlib.sha256()
    for relative in sorted(hashes):
        digest.update(f"{hashes[relative]} {relative}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def exact_hashes(directory: Path, *, owner: int | None = None) -> dict[str, str]:
    """Return the sha256 of every file below `directory`, nothing left out.

    Directories count too, since an empty one is a package to Python.

    Args:
        directory: what to read.
        owner: a user id that must own everything, with nobody else allowed to write; None: not looked at.

    Raises:
        UsageError: something in it is no file or directory of the kind above, or there is too much of it.
    """
    hashes: dict[str, str] = {}
    room = 2 * BYTES_LIMIT
    pending = [("", directory)]
    while pending:
        relative, path = pending.pop()
        where = one_line(path)
        try:
            status = path.lstat()
            if owner is not None and (status.st_uid != owner or status.st_mode & 0o022):
                raise UsageError(f"{where}: expected that only its owner can write it, found otherwise; see chmod")
            if stat.S_ISDIR(status.st_mode):
                hashes[relative + "/"] = ""
                pending += [(f"{relative}/{name}".lstrip("/"), path / name) for name in os.listdir(path)]
            elif stat.S_ISREG(status.st_mode):
                room -= status.st_size
                if room >= 0:
                    hashes[relative] = sha256_of(path, limit_bytes=2 * BYTES_LIMIT)
            else:
                raise UsageError(f"{where}: expected a file or a directory, found a link or a device; remove it")
        except OSError as error:
            raise UsageError(f"{where}: expected to read it, found {error.strerror}; check it") from error
        if room < 0 or len(hashes) + len(pending) > 2 * FILES_LIMIT:
            raise UsageError(f"{one_line(directory)}: expected at most {BYTES_LIMIT} bytes of code, found more")
    return hashes
