"""The parameters of a session that exists, with the changes that this start asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from digideep.errors import UsageError, one_line
from digideep.params.consent import named_on_command_line
from digideep.params.naming import refuse_cpanel
from digideep.params.overrides import apply_repeal, repeal_changes
from digideep.pipeline import trust
from digideep.pipeline.fsio import read_json
from digideep.pipeline.inventory import effective_params
from digideep.pipeline.layout import SessionPaths, read_meta
from digideep.pipeline.options import SessionOptions

__all__ = ["SessionParams", "load_session_params"]


class SessionParams(NamedTuple):
    """Parameters of a session: as they stood before this start, and with the `entries` that it adds.

    `allowed` are the packages that the tree may name: what the session is trusted with, and what was typed now.
    """

    preset: str
    cpanel: dict[str, Any]
    params: dict[str, Any]
    entries: list[dict[str, Any]]
    allowed: tuple[str, ...]


def load_session_params(paths: SessionPaths, options: SessionOptions, *, trusted: trust.Trust) -> SessionParams:
    """Return what a session was made with and what the options change in it.

    Raises:
        UsageError: a file of the session is malformed, a path is unknown, or a knob was given, which can be changed by
            its path only; the message has the line to paste.
        TrustError: it names modules, and nobody vouched for it.
    """
    before = effective_params(paths)
    cpanel = _object(paths)
    refuse_cpanel(options, cpanel=cpanel, params=before)
    trust.require(trusted, before, session=paths.root)
    allowed = (*trusted.allowed, *named_on_command_line(options))
    changes = repeal_changes(options, before, allowed=allowed)
    params, entries = apply_repeal(before, changes, epoch=0, time="", where="--repeal", allowed=allowed)
    return SessionParams(str(read_meta(paths).get("preset", "")), cpanel, params, entries, allowed)


def _object(paths: SessionPaths) -> dict[str, Any]:
    value: Any = read_json(paths.cpanel)
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{one_line(paths.cpanel)}: expected an object, found {type(value).__name__}; restore the file"
        )
    return dict(value)
