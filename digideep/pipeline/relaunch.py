"""A session runs the code it was made with: which code that is, and the fresh interpreter that runs it.

`decide` compares the session's `modules/` with what is installed. Where the session's own code has to run, `relaunch`
replaces this process by an interpreter with `modules/` first on its path, before anything heavy was imported.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

from digideep.errors import TrustError, UsageError, one_line
from digideep.pipeline.fsio import remove_tree, storage_error
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.signals import HANDLED
from digideep.pipeline.snapshot import (
    Contents,
    Source,
    changed_packages,
    differing_files,
    read_contents,
    runs_from,
    save_modules,
    stamp_template,
)
from digideep.pipeline.trust import Trust, untrusted
from digideep.utility.imports import CODE_FROM

__all__ = [
    "CODE_CHANGED",
    "Decision",
    "block_signals",
    "check_options",
    "decide",
    "decide_in_python",
    "relaunch",
    "relaunch_environment",
    "take_installed_code",
    "told_files",
]

logger = logging.getLogger(__name__)

CODE_CHANGED = "code"
"""What `exactness: none (...)` says where other code goes on than that which began."""


class Decision(NamedTuple):
    """What a start does about the code of its session.

    `same` and `data` run what is installed, `session` needs `relaunch`, `installed` needs `take_installed_code` once
    the session is locked. `differing` are the files that differ, `line` what the user is told (empty: nothing),
    `exact` whether later checkpoints may still call themselves exact as far as code goes.
    """

    action: Literal["same", "data", "session", "installed"]
    differing: tuple[str, ...]
    line: str
    exact: bool


def told_files(differing: Sequence[str]) -> str:
    """Return a few of `differing` files and how many more there are."""
    shown = ", ".join(one_line(name, limit=120) for name in differing[:3])
    return shown if len(differing) <= 3 else f"{shown} and {len(differing) - 3} more"


def decide(
    paths: SessionPaths, trust: Trust, *, code: Literal["session", "installed"] | None, resumes: bool = True
) -> Decision:
    """Return which code a resumed or played session runs.

    Args:
        paths: of the session.
        trust: what `assess` found.
        code: the option --code, None where it was not given.
        resumes: whether the session goes on, so that its code is written down again; a play only reads.

    Raises:
        TrustError: --code session, and the session is not trusted.
        UsageError: `modules/` cannot be read.
    """
    if code == "session" and not trust.code:
        raise TrustError(untrusted(paths.root, trust, "own code (--code session)"))
    if runs_from(paths.modules):
        return _same_code(paths, trusted=trust.code)
    try:
        differing = tuple(differing_files(paths.modules, trusted=trust.code))
    except UsageError as error:
        if (trust.code or resumes) and code != "installed":
            raise UsageError(f"{error}, or give --code installed") from error
        differing = (one_line(error),)
    if not differing:
        return _same_code(paths, trusted=trust.code)
    files = told_files(differing)
    if code == "installed":
        line = f"code: the installed digideep takes over from the session's; they differ in {files}"
        return Decision("installed", differing, line, exact=False)
    if trust.code:
        return Decision("session", differing, f"code: the session's own, which differs in {files}", exact=True)
    line = (
        f"code: the installed digideep, since the session is not trusted ({trust.reason}); its own differs in {files}, "
        f"so that what follows is not exact"
    )
    return Decision("data", differing, line, exact=False)


def _same_code(paths: SessionPaths, *, trusted: bool) -> Decision:
    contents = read_contents(paths.modules)
    # Hashing large packages takes a while, and a session that nobody vouches for does not choose which ones.
    changed = changed_packages(contents) if contents is not None and trusted else []
    if not changed:
        return Decision("same", (), "", exact=True)
    names = ", ".join(changed)
    line = f"code: {names} changed since the session was made; too large to be copied, it runs from where it is"
    return Decision("same", tuple(changed), line, exact=False)


def decide_in_python(
    paths: SessionPaths, *, code: Literal["session", "installed"] | None, command: str, trusted: bool = True
) -> Decision:
    """Return the decision for `digideep.run`, which runs in the interpreter that is there.

    Args:
        paths: of the session.
        code: its argument of that name.
        command: what to paste in a shell for the session's own code.
        trusted: whether the session's own code may run.

    Raises:
        UsageError: the session's code differs, and `code="installed"` was not given.
    """
    differing = () if runs_from(paths.modules) else tuple(differing_files(paths.modules, trusted=trusted))
    if not differing:
        return _same_code(paths, trusted=trusted)
    if code != "installed":
        raise UsageError(
            f"{one_line(paths.root)}: expected the code of the session, found another version running "
            f'({told_files(differing)}); run it in a shell: {command}, or give code="installed"'
        )
    line = f"code: the installed digideep takes over from the session's; they differ in {told_files(differing)}"
    return Decision("installed", differing, line, exact=False)


def check_options(arguments: Sequence[str], contents: Contents) -> None:
    """Check that the session's version of digideep knows the options it is handed.

    Raises:
        UsageError: it does not know one; names --code installed.
    """
    for argument in arguments:
        option = argument.partition("=")[0]
        if option.startswith("--") and len(option) > 2 and option not in contents.options:
            raise UsageError(
                f"{one_line(option)}: expected an option of digideep {one_line(contents.version)}, which the session "
                f"runs, found one it does not know; leave it out, or give --code installed"
            )


def relaunch_environment(modules: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of an interpreter that has `modules` first on its path.

    PYTHONPATH, since workers have to inherit it. No bytecode is written: it would change the signed directory.
    """
    others = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    own = str(modules)
    return {
        **environ,
        "PYTHONPATH": os.pathsep.join([own, *(entry for entry in others if entry != own)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        CODE_FROM: own,
    }


def block_signals() -> None:
    """Hold back the signals that ask a run for something; an exec keeps them so, until the handlers stand."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)


def relaunch(
    paths: SessionPaths, arguments: Sequence[str], *, received: Iterable[int] | Callable[[], Iterable[int]] = ()
) -> NoReturn:
    """Become a fresh interpreter, in this process, that runs the session's own code with the same `arguments`.

    Says on the log, in one line, which files differ.

    Args:
        paths: of the session.
        arguments: the command line after the program's name.
        received: signals that were received already; the fresh interpreter receives them again. A function is called
            once no more of them can come in, so that none falls between.

    Raises:
        UsageError: the session's version does not know an option, or cannot be run; or the fresh interpreter did not
            take the session's code.
    """
    contents = read_contents(paths.modules)
    if contents is None or "digideep" not in contents.copied or not (paths.modules / "digideep/main.py").is_file():
        raise UsageError(f"{one_line(paths.modules)}: expected a copy of digideep, found none; give --code installed")
    check_options(arguments, contents)
    if os.pathsep in str(paths.modules):
        raise UsageError(
            f"{one_line(paths.modules)}: expected a path without {os.pathsep!r} to run the session's own code from, "
            f"found one; rename the directory, or give --code installed"
        )
    if os.environ.get(CODE_FROM) == str(paths.modules):
        raise UsageError(
            f"{one_line(paths.modules)}: expected the code of the session after a restart, found another; "
            f"give --code installed"
        )
    differing = differing_files(paths.modules, trusted=True)
    logger.warning("code: the session's own, which differs in %s", told_files(differing))
    command = [sys.executable, *_interpreter_options(), "-P", "-m", "digideep.main", *arguments]
    block_signals()
    for number in received() if callable(received) else received:
        os.kill(os.getpid(), number)  # pending now, and still pending after the exec
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(sys.executable, command, relaunch_environment(paths.modules, os.environ))
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        raise UsageError(
            f"{one_line(sys.executable)}: expected to start it again, found {error.strerror}; give --code installed"
        ) from error


def _interpreter_options() -> list[str]:
    warnings = [f"-W{option}" for option in sys.warnoptions]
    development = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]
    return [*warnings, *development]


def take_installed_code(
    paths: SessionPaths, sources: Sequence[Source], *, options: Sequence[str] = ()
) -> tuple[str, Contents]:
    """Put today's code into a session, for every later start, and return (new name of the former modules, contents).

    For a caller that holds the lock of the session, and signs it again afterwards.

    Raises:
        StorageError: something could not be written; the former modules are in their place again.
        UsageError: something could not be read; the same.
    """
    former = paths.superseded_modules()
    had_modules = os.path.lexists(paths.modules)
    try:
        if had_modules:
            os.rename(paths.modules, former)
        contents = save_modules(paths, sources, options=options)
        stamp_template(paths)
    except BaseException as error:
        if os.path.lexists(former):
            remove_tree(paths.modules)
            os.rename(former, paths.modules)
        if isinstance(error, OSError):
            raise storage_error(error, paths.modules, action="replace") from error
        raise
    return former.name if had_modules else "", contents
