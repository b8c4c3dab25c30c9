"""Whose code a replay of a crash may run: that of the session that the crash lies in, where the session is trusted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from digideep.errors import TrustError, UsageError, one_line
from digideep.pipeline.layout import SessionPaths, check_session
from digideep.pipeline.needed import consented, needed_modules
from digideep.pipeline.trust import assess, require
from digideep.utility.imports import is_allowed, searching

__all__ = ["crash_code"]


@contextlib.contextmanager
def crash_code(
    directory: Path, env: Mapping[str, Any], *, named: Sequence[str] = (), trust_session: bool = False
) -> Iterator[tuple[str, ...]]:
    """Give the packages that a replay may import, with a trusted session's own modules last on the path meanwhile.

    Args:
        directory: a session, its `crash`, or any other directory with a crash in it.
        env: node of the environment that crashed.
        named: modules that the user named on the command line.
        trust_session: the user gave --trust-session.

    Raises:
        TrustError: the environment needs a module that nobody has vouched for; the message has the ways out.
        UsageError: --trust-session was given and there is no session, or one of its files is malformed.
    """
    params = {"env": dict(env)}
    paths = _session_of(directory)
    if paths is None:
        if trust_session:
            where = one_line(directory)
            raise UsageError(f"--trust-session: expected a session, found none at {where}; use --module NAME instead")
        missing = [name for name in needed_modules(params) if not is_allowed(name, consented(named))]
        if missing:
            raise TrustError(
                f"{one_line(directory)}: expected an environment of a module that is trusted, found "
                f"{', '.join(repr(one_line(name, limit=80)) for name in missing)} and no session around it; "
                f"name it with --module"
            )
        yield consented(named)
        return
    trust = assess(paths, trust_session=trust_session, params=params)
    require(trust, params, session=paths.root, consent=named)
    with searching(after=(paths.modules,) if trust.code else (), bytecode=False):
        yield (*trust.allowed, *named)


def _session_of(directory: Path) -> SessionPaths | None:
    """Return the session that `directory` is, or is the `crash` of; None where there is none."""
    real = Path(os.path.realpath(directory))
    for root in (real, real.parent) if real.name == "crash" else (real,):
        if os.path.lexists(SessionPaths(root).meta):
            return check_session(root)
    return None
