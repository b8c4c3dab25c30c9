"""Which code a params tree needs beside digideep, and where it lies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from digideep.errors import UsageError, one_line
from digideep.params.source import Source, quiet_stdout
from digideep.pipeline.needed import consented
from digideep.utility.imports import BUILT_IN, is_allowed, missing_module, resolve, top_level
from digideep.utility.node import TYPE, nodes

__all__ = ["Code", "check_hook", "find_code"]


class Code(NamedTuple):
    """Packages to copy into a session: by name, by path, and the directories in which they lie."""

    modules: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    search: tuple[Path, ...] = ()


def find_code(params: Mapping[str, Any], source: Source, *, allowed: Iterable[str]) -> Code:
    """Return the code of the parameter module, of the classes in the tree, and of its environment.

    Called while `source.search` is on the module path, where packages are found that are not installed.

    Raises:
        UsageError: the package that registers the environment, or one that the tree names, cannot be found.
    """
    environment = _environment_modules(params)
    names = [top_level(source.module)] if source.module is not None else []
    names += [name for name in allowed if not is_allowed(name, consented(()))]
    names += [top_level(name) for name in environment.values()]
    names += _siblings(source)
    names = [name for name in dict.fromkeys(names) if not is_allowed(name, BUILT_IN)]
    if not names:
        return Code()
    # Imported late: built-in parameters, the common case, need none of it.
    from digideep.pipeline.snapshot import locate

    found: dict[str, Path] = {}
    for name in names:
        place = locate(name)
        if place is not None:
            found[name] = place.path
        elif name not in sys.stdlib_module_names:
            named = {**environment, **_named_in_tree(params)}
            where = next((path for path, module in named.items() if top_level(module) == name), "params")
            raise missing_module(name, where=where)
    beside = {name: path for name, path in found.items() if path.parent in source.search}
    search = tuple(dict.fromkeys(path.parent for path in beside.values()))
    return Code(tuple(name for name in found if name not in beside), tuple(beside.values()), search)


def check_hook(params: Mapping[str, Any], *, allowed: Iterable[str]) -> None:
    """Check that `/runner/on_epoch` names something that can be called; its module is imported.

    Raises:
        UsageError: the module or the name in it is missing, its code raises, or it is no function.
        TrustError: the module is not below one of the `allowed` packages.
    """
    reference = params["runner"].get("on_epoch")
    if reference is None:
        return
    with quiet_stdout():
        hook = resolve(reference, where="/runner/on_epoch", allowed=allowed)
    if not callable(hook):
        found = f"{one_line(reference, limit=80)!r}, a {type(hook).__name__}"
        raise UsageError(f"/runner/on_epoch: expected a function, found {found}; name one")


def _environment_modules(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the modules that register the environment, by the path that names them."""
    from_module, model_name = params["env"].get("from_module"), params["env"]["model_name"]
    found = {"/env/from_module": from_module} if from_module else {}
    if ":" in model_name:
        found["/env/model_name"] = model_name.partition(":")[0]
    for path, module in found.items():
        if not all(part.isidentifier() for part in module.split(".")):
            shown = one_line(module, limit=80)
            raise UsageError(f"{path}: expected a dotted module name, found {shown!r}; check its spelling")
    return found


def _named_in_tree(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the modules that configuration classes and the function of each epoch lie in, by the path of the name."""
    found = {f"{path}/{TYPE}": str(node[TYPE]) for path, node in nodes(params)}
    hook = params["runner"].get("on_epoch")
    found |= {} if hook is None else {"/runner/on_epoch": str(hook)}
    return {path: reference.partition(":")[0] for path, reference in found.items()}


def _siblings(source: Source) -> list[str]:
    """Return the modules that a parameter module imported from its own directory."""
    if source.file is None:
        return []
    directory = source.file.parent
    files = {
        name: getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if not name.startswith("__")
    }
    return [
        top_level(name)
        for name, file in files.items()
        if file and "." not in name and directory in (Path(file).parent, _package_parent(file))
    ]


def _package_parent(file: str) -> Path | None:
    return Path(file).parent.parent if os.path.basename(file) == "__init__.py" else None
