"""The parameters of a session that exists, with the changes that this start asks for."""

from __future__ import annotations

from typing import Any, NamedTuple

from digideep.params.code import check_hook
from digideep.params.consent import named_on_command_line
from digideep.params.naming import refuse_cpanel
from digideep.params.overrides import apply_repeal, origins_of, repeal_changes
from digideep.pipeline import trust
from digideep.pipeline.inventory import effective_params
from digideep.pipeline.layout import SessionPaths, read_cpanel, read_meta
from digideep.pipeline.options import SessionOptions

__all__ = ["SessionParams", "load_session_params"]


_HOOK = ("/runner", "/runner/on_epoch")


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
    cpanel = read_cpanel(paths)
    refuse_cpanel(options, cpanel=cpanel, params=before)
    trust.require(trusted, before, session=paths.root)
    allowed = (*trusted.allowed, *named_on_command_line(options))
    changes = repeal_changes(options, before, allowed=allowed)
    params, entries = apply_repeal(before, changes, epoch=0, time="", origins=origins_of(options), allowed=allowed)
    if any(entry["path"] in _HOOK for entry in entries):
        check_hook(params, allowed=allowed)
    return SessionParams(str(read_meta(paths).get("preset", "")), cpanel, params, entries, allowed)
