"""For which modules the user has vouched by what was typed, and which of them a params tree may therefore name.

Naming a module on the command line is consent to run it, and so is what the code of a parameter module itself names. A
file is not: module names in a YAML file, or in one behind an `@`, count only where the command line names them too or
where they lie in the current directory. A YAML file may also name a parameter module by its path, if that lies below
the current directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from digideep.errors import TrustError, one_line
from digideep.pipeline.needed import consented, needed_modules
from digideep.pipeline.options import SessionOptions
from digideep.utility.imports import is_allowed, top_level
from digideep.utility.node import Config, configuration_class, nodes

__all__ = [
    "allowed_by", "built_modules", "check_consent", "check_file_consent", "lies_in", "named_on_command_line",
]  # fmt: skip

_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?::.*)?", re.ASCII | re.DOTALL)


def named_on_command_line(options: SessionOptions) -> tuple[str, ...]:
    """Return the packages that values on the command line name; values in files are left out."""
    values: list[Any] = [text for _, text in options.assignments]
    values += [] if options.cpanel_from_file else list(options.cpanel.values())
    values += [] if options.repeal_from_file else list(options.repeal.values())
    matches = (_MODULE.fullmatch(text.strip('"')) for text in _texts(values))
    return tuple(dict.fromkeys(top_level(match[1]) for match in matches if match))


def lies_in(module: str, directory: Path) -> bool:
    """Whether the package of `module` is a file or directory in `directory`."""
    top = os.path.join(directory, top_level(module))
    return os.path.isdir(top) or os.path.isfile(f"{top}.py")


def check_consent(
    names: Iterable[str], *, vouched: Iterable[str], where: str, way_out: str = "name it with --set"
) -> None:
    """Check that each of `names` is built in, vouched for, or lies in the current directory.

    Raises:
        TrustError: one of them is not; names it, the `way_out` and another.
    """
    allowed, here = consented(vouched), Path.cwd()
    for name in names:
        if not is_allowed(name, allowed) and not lies_in(name, here):
            raise TrustError(
                f"{where}: expected modules that the command line names or that lie in the current directory, "
                f"found {one_line(name, limit=80)!r}; {way_out}, or go to its directory"
            )


def check_file_consent(path: Path, *, where: str) -> None:
    """Check that a file which another file names lies below the current directory, links followed.

    Raises:
        TrustError: it does not.
    """
    real, here = os.path.realpath(path), os.path.realpath(Path.cwd())
    if not Path(real).is_relative_to(here):
        raise TrustError(
            f"{where}: expected a file below the current directory, found {one_line(real)}; go to a directory above "
            f"it, or name it with --params"
        )


def allowed_by(tree: Mapping[str, Any], *, extra: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the packages that `tree`, whose names have been vouched for, may name."""
    return consented((*extra, *(top_level(name) for name in needed_modules(tree))))


def built_modules(tree: Mapping[str, Any], *, allowed: Iterable[str]) -> tuple[str, ...]:
    """Return the packages of the classes that the configurations in a valid tree build.

    Whoever vouched for a configuration class has vouched for what its code says it builds.
    """
    allowed = tuple(allowed)
    classes: Iterable[type[Config]] = (
        configuration_class(node, where=path, allowed=allowed) for path, node in nodes(tree)
    )
    return tuple(dict.fromkeys(top_level(cls.builds.partition(":")[0]) for cls in classes if cls.builds))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        # A whole node behind --set is JSON text: what it names is found in it.
        yield from re.findall(r'"([^"\\]*)"', value) if value[:1] in ("{", "[") else [value]
    elif isinstance(value, Mapping):
        for element in value.values():
            yield from _texts(element)
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _texts(element)
