"""What a session is about: its parameters, where they came from, and what they may import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Experiment"]


class Experiment(NamedTuple):
    """Parameters of one session, merged and checked.

    `params` is the tree as it stands now, `changes` are the entries that this start adds to repeal.json. Of a new
    session `base` is the tree that `params.yaml` gets. `allowed` are the packages that the tree may name.
    """

    preset: str
    cpanel: Mapping[str, Any]
    base: Mapping[str, Any]
    params: Mapping[str, Any]
    changes: Sequence[Mapping[str, Any]] = ()
    allowed: tuple[str, ...] = ("digideep",)
    modules: tuple[str, ...] = ()  # importable packages to copy, beyond digideep
    files: tuple[Path, ...] = ()  # single files to copy
    lineage: Mapping[str, Any] | None = None  # the checkpoint that `init_from` named
    trusted: bool = True  # whether code that the session carries may run; what it says about files is believed then
    exactness: str = "exact"  # or why this start cannot continue to the same bits
    replaces_code: bool = False  # whether today's code goes into a session that was made with another one
    notice: str = ""  # what the user is told about the code that runs
