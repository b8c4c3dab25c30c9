"""Paths in trees of mappings: `/agents/agent/lr` names the leaf `lr` of the mapping `agent` in the mapping `agents`.

A slash inside a key is written `~1`, a tilde `~0`, as in JSON pointers. Lists are leaves. Trees are never changed;
`replace` returns a new one that shares what is equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from digideep.errors import UsageError, one_line
from digideep.utility.values import unknown

__all__ = ["MISSING", "get", "has", "join", "replace", "split"]


class _Missing:
    """The value of a leaf that is not there."""

    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()


def split(path: str, *, where: str) -> tuple[str, ...]:
    """Return the keys of a path.

    Raises:
        UsageError: the path does not begin with a slash, ends with one, or has an empty key.
    """
    keys = path.split("/")
    if len(keys) < 2 or keys[0] or not all(keys[1:]):
        found = one_line(path, limit=80)
        raise UsageError(f"{where}: expected a path such as '/runner/n_epochs', found {found!r}; write it like that")
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in keys[1:])


def join(parent: str, key: str) -> str:
    """Return the path of `key` in the mapping at `parent`."""
    return f"{parent}/{key.replace('~', '~0').replace('/', '~1')}"


def has(tree: Any, path: str) -> bool:
    """Whether `path` names something in `tree`."""
    return _find(tree, split(path, where="path")) is not MISSING


def get(tree: Mapping[str, Any], path: str, *, where: str) -> Any:
    """Return what `path` names.

    Raises:
        UsageError: it names nothing; the message has the nearest path.
    """
    found = _find(tree, split(path, where=where))
    if found is MISSING:
        raise UsageError(f"{where}: {unknown(path, _all_paths(tree), what='path')}")
    return found


def replace(tree: Mapping[str, Any], path: str, value: Any, *, where: str) -> dict[str, Any]:
    """Return `tree` with `value` at `path`, whose parent has to be a mapping that is there.

    Raises:
        UsageError: the parent is not there; the message has the nearest path.
    """
    *parents, last = split(path, where=where)
    if not isinstance(_find(tree, tuple(parents)), Mapping):
        raise UsageError(f"{where}: {unknown(path, _all_paths(tree), what='path')}")
    result = dict(tree)
    level = result
    for key in parents:
        level[key] = dict(level[key])
        level = level[key]
    level[last] = value
    return result


def _find(tree: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if not isinstance(tree, Mapping) or key not in tree:
            return MISSING
        tree = tree[key]
    return tree


def _all_paths(tree: Mapping[str, Any], *, parent: str = "") -> Iterator[str]:
    for key, value in tree.items():
        path = join(parent, key)
        yield path
        if isinstance(value, Mapping):
            yield from _all_paths(value, parent=path)
