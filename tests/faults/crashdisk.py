"""A disk that a power failure hits: every state that it may be in afterwards, for a reader to look at.

`RecordingOs` stands where storage calls the operating system and notes each call that changes something. `ModelDisk`
replays a prefix of these calls and keeps, for each directory and each file, what is there now and what was there at its
last fsync. Of what was not synchronised a crash keeps all, nothing, or some: of names the first or the last of the
pending changes, of content half, or zeros of its length.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__all__ = ["CONTENTS", "NAMES", "ModelDisk", "Operation", "RecordingOs", "Tree", "TreeFileSystem", "tree_of"]

Operation = tuple[Any, ...]
Tree = dict[str, "bytes | Tree"]

NAMES = ("all", "none", "first half", "last half")
CONTENTS = ("all", "none", "halved", "zeroed")


class RecordingOs:
    """The module `os` for one that calls it: does the same, and notes what would have to become durable."""

    def __init__(self) -> None:
        self.record: list[Operation] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        """Open, and note which file a descriptor stands for."""
        descriptor = os.open(path, flags, mode)
        made = bool(flags & os.O_CREAT)
        assert not made or flags & os.O_EXCL, f"{path}: storage writes new files only"
        assert not flags & os.O_TRUNC, f"{path}: storage empties no file"
        self.record.append(("create" if made else "open", Path(path), descriptor))
        return descriptor

    def write(self, descriptor: int, content: Any) -> int:
        """Write, and note what was taken."""
        count = os.write(descriptor, content)
        self.record.append(("write", descriptor, bytes(content[:count])))
        return count

    def close(self, descriptor: int) -> None:
        """Close."""
        os.close(descriptor)
        self.record.append(("close", descriptor))

    def fsync(self, descriptor: int) -> None:
        """Note that this file or directory is durable from here on; the disk itself need not be waited for."""
        self.record.append(("fsync", descriptor))

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        """Make a directory."""
        os.mkdir(path, mode)
        self.record.append(("mkdir", Path(path)))

    def rename(self, source: Any, target: Any) -> None:
        """Rename."""
        os.rename(source, target)
        self.record.append(("rename", Path(source), Path(target)))

    def replace(self, source: Any, target: Any) -> None:
        """Rename."""
        self.rename(source, target)

    def link(self, source: Any, target: Any, **options: Any) -> None:
        """Give a file a second name."""
        os.link(source, target, **options)
        self.record.append(("link", Path(source), Path(target)))

    def unlink(self, path: Any) -> None:
        """Remove a name."""
        os.unlink(path)
        self.record.append(("remove", Path(path)))

    def rmdir(self, path: Any) -> None:
        """Remove a directory."""
        os.rmdir(path)
        self.record.append(("remove", Path(path)))


@dataclass
class _File:
    content: bytes = b""
    synchronised: bytes = b""

    def after_crash(self, kept: str) -> bytes:
        lost = len(self.content) - len(self.synchronised)
        if kept == "halved":
            return self.content[: len(self.content) - (lost + 1) // 2]
        if kept == "zeroed":
            return self.synchronised + bytes(lost)
        return self.content if kept == "all" else self.synchronised


@dataclass
class _Directory:
    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    synchronised: dict[str, _File | _Directory] = field(default_factory=dict)
    # (name that goes, name that comes, what comes): one rename is one change, which happens or does not.
    pending: list[tuple[str | None, str | None, Any]] = field(default_factory=list)

    def change(self, gone: str | None, name: str | None, node: Any) -> None:
        self.pending.append((gone, name, node))
        _apply(self.entries, [self.pending[-1]])

    def fsync(self) -> None:
        self.synchronised, self.pending = dict(self.entries), []

    def after_crash(self, kept: str) -> dict[str, _File | _Directory]:
        names, half = dict(self.synchronised), (len(self.pending) + 1) // 2
        parts = {"all": self.pending, "none": [], "first half": self.pending[:half], "last half": self.pending[half:]}
        _apply(names, parts[kept])
        return names


def _apply(names: dict[str, Any], changes: Sequence[tuple[str | None, str | None, Any]]) -> None:
    for gone, name, node in changes:
        if gone is not None:
            names.pop(gone, None)
        if name is not None:
            names[name] = node


class ModelDisk:
    """Everything below `root`, as programs see it and as it surely survives.

    What was there before the record began counts as durable and empty.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._top = _Directory()
        self._open: dict[int, Any] = {}

    def _find(self, path: Path) -> Any:
        node: Any = self._top
        for name in path.relative_to(self.root).parts:
            node = node.entries[name]
        return node

    def _directory(self, path: Path) -> _Directory:
        """Return a directory; one that is unknown was there before."""
        node = self._top
        for name in path.relative_to(self.root).parts:
            if name not in node.entries:
                node.entries[name] = node.synchronised[name] = _Directory()
            node = node.entries[name]  # type: ignore[assignment]
        return node

    def _is_known(self, path: Path) -> bool:
        try:
            self._find(path)
        except (KeyError, ValueError, AttributeError):
            return False
        return True

    def apply(self, operation: Operation) -> None:
        """Let one recorded call happen."""
        call, first, *rest = operation
        if call == "open":
            self._open[rest[0]] = self._find(first) if self._is_known(first) else _Directory()
        elif call == "create":
            self._open[rest[0]] = file = _File()
            self._directory(first.parent).change(None, first.name, file)
        elif call == "write":
            self._open[first].content += rest[0]
        elif call == "close":
            self._open.pop(first, None)
        elif call == "fsync":
            node = self._open[first]
            if isinstance(node, _Directory):
                node.fsync()
            else:
                node.synchronised = node.content
        elif call == "mkdir":
            self._directory(first.parent).change(None, first.name, _Directory())
        elif call == "remove":
            self._directory(first.parent).change(first.name, None, None)
        elif call in ("rename", "link"):
            target = rest[0]
            assert first.parent == target.parent or call == "link", "a rename into another directory is not modelled"
            self._find(target.parent).change(first.name if call == "rename" else None, target.name, self._find(first))
        else:
            raise AssertionError(f"unknown call {call}")

    def after_crash(self, *, names: str, contents: str) -> Tree:
        """Return what is there after a crash at this moment."""
        return self._tree(self._top, iter(lambda: (names, contents), None))

    def after_some_crash(self, rng: random.Random) -> Tree:
        """Return what is there after a crash that kept something else of each file and each directory."""
        return self._tree(self._top, iter(lambda: (rng.choice(NAMES), rng.choice(CONTENTS)), None))

    def crashes(self, rng: random.Random, *, mixed: int) -> Iterator[tuple[str, Tree]]:
        """Yield (what was kept, tree): each way for all files alike, then `mixed` times each file another way."""
        for names, contents in itertools.product(NAMES, CONTENTS):
            yield f"names {names}, contents {contents}", self.after_crash(names=names, contents=contents)
        for index in range(mixed):
            yield f"mixed {index}", self.after_some_crash(rng)

    def _tree(self, node: _Directory, choices: Iterator[tuple[str, str]]) -> Tree:
        names, contents = next(choices)
        return {
            name: child.after_crash(contents) if isinstance(child, _File) else self._tree(child, choices)
            for name, child in sorted(node.after_crash(names).items())
        }


def tree_of(directory: Path) -> Tree:
    """Return what a real directory holds."""
    return {path.name: tree_of(path) if path.is_dir() else path.read_bytes() for path in sorted(directory.iterdir())}


class TreeFileSystem:
    """A file system for reading that holds a tree below `root`."""

    def __init__(self, tree: Tree, root: Path) -> None:
        self._tree = tree
        self._root = root
        self._open: dict[int, list[Any]] = {}

    def _find(self, path: Path) -> bytes | Tree:
        node: Any = self._tree
        for name in path.relative_to(self._root).parts:
            if not isinstance(node, dict) or name not in node:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            node = node[name]
        return node  # type: ignore[no-any-return]

    def status(self, path: Path) -> Any:
        """Return kind and size."""
        return _status(self._find(path))

    def open_status(self, descriptor: int) -> Any:
        """Return kind and size."""
        return _status(self._open[descriptor][0])

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory."""
        return sorted(self._find(path))  # type: ignore[arg-type]

    def open_for_reading(self, path: Path) -> int:
        """Return a number for a file."""
        number = 1000 + len(self._open)
        self._open[number] = [self._find(path), 0]
        return number

    def read_into(self, descriptor: int, target: memoryview) -> int:
        """Return how many bytes were copied."""
        content, place = self._open[descriptor]
        taken = content[place : place + len(target)]
        target[: len(taken)] = taken
        self._open[descriptor][1] += len(taken)
        return len(taken)

    def close(self, descriptor: int) -> None:
        """Do nothing: a number is given once."""


def _status(node: bytes | Tree) -> Any:
    mode, size = (stat.S_IFDIR, 0) if isinstance(node, dict) else (stat.S_IFREG, len(node))
    times = dict.fromkeys(("st_mtime_ns", "st_ctime_ns"), 0)
    return SimpleNamespace(st_mode=mode | 0o600, st_size=size, st_dev=1, st_ino=id(node), st_nlink=1, **times)
