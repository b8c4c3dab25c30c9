"""Which modules a params tree names, beyond those that any session may name.

Apart from `trust.py`, which hashes and signs: a command line is looked at with this alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from digideep.utility.imports import BUILT_IN, ENVIRONMENT_PACKAGES, is_allowed
from digideep.utility.node import TYPE, nodes

__all__ = ["consented", "needed_modules"]

_MAKES_OTHERS = ("GymV21Environment", "GymV26Environment")


def consented(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the allow-list of a start whose user named `modules` on the command line."""
    return tuple(dict.fromkeys((*BUILT_IN, *ENVIRONMENT_PACKAGES, *modules)))


def needed_modules(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the modules beyond level data that a params tree names, sorted.

    Looked at: `type` of every node, `/env/from_module`, the module of a `module:id` in `/env/model_name`, and
    `/runner/on_epoch`. An environment that makes another one by a name in its arguments stands for the package `gym`,
    which imports whatever module that name begins with.
    """
    names = {str(found[TYPE]).partition(":")[0] for _, found in nodes(params)}
    environment, runner = (_mapping(params.get(key)) for key in ("env", "runner"))
    references = (environment.get("model_name"), runner.get("on_epoch"))
    names.update(ref.partition(":")[0] for ref in references if isinstance(ref, str) and ":" in ref)
    if isinstance(environment.get("from_module"), str):
        names.add(environment["from_module"])
    if str(environment.get("model_name")).rpartition(":")[2].startswith(_MAKES_OTHERS):
        names.add("gym")
    return tuple(sorted(name for name in names if name and not is_allowed(name, consented(()))))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
