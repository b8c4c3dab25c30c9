"""The safe way to read a session, also somebody else's."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from digideep.errors import UsageError, one_line
from digideep.pipeline.layout import check_session
from digideep.pipeline.relaunch import told_files
from digideep.pipeline.snapshot import differing_files, runs_from
from digideep.pipeline.trust import assess
from digideep.post.loader import Loader

if TYPE_CHECKING:
    from digideep.pipeline.layout import SessionPaths

__all__ = ["load"]


def load(path: str | os.PathLike[str], *, trust_session: bool = False) -> Loader:
    """Return the loader of the session at `path`. Data is read; nothing that the session carries is run.

    The digideep of this interpreter does the reading; where the session was made with another one, a warning says so.

    Args:
        path: directory of a session.
        trust_session: let the session's own modules run where its policy needs them, although it is not signed by
            this user.

    Raises:
        UsageError: there is no session, or one of its files is missing or malformed.
    """
    paths = check_session(path)
    if message := _difference(paths, trusted=assess(paths, trust_session=trust_session).code):
        warnings.warn(message, stacklevel=2)
    return Loader(paths, trust_session=trust_session)


def _difference(paths: SessionPaths, *, trusted: bool) -> str:
    if runs_from(paths.modules):
        return ""
    try:
        differing = differing_files(paths.modules, trusted=trusted)
    except UsageError as error:
        return f"the code of the session cannot be compared with the one that reads it: {error}"
    if not differing:
        return ""
    return (
        f"{one_line(paths.root)} was made with other code than the one that reads it: {told_files(differing)} differ; "
        f"its policy may act differently"
    )
