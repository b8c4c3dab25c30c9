"""The only place that imports by name, against an allow-list that is handed in as data."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import importlib
import importlib.util
import keyword
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from digideep.errors import DigideepError, MissingExtraError, TrustError, UsageError, one_line

__all__ = [
    "BUILT_IN",
    "CODE_FROM",
    "ENVIRONMENT_PACKAGES",
    "fault_of_user",
    "import_file",
    "import_module",
    "is_allowed",
    "is_ours",
    "missing_module",
    "place_of",
    "raised_by_user",
    "resolve",
    "searching",
    "split_reference",
    "told_with_place",
    "top_level",
]

logger = logging.getLogger(__name__)

_SHORT = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO)  # of the machine

BUILT_IN = ("digideep",)
"""Packages whose modules configuration may name without anybody's consent."""

ENVIRONMENT_PACKAGES = ("ale_py", "shimmy", "minigrid", "gymnasium_robotics", "envpool")
"""Installed packages that register environments; naming one is data, not code."""

CODE_FROM = "DIGIDEEP_CODE_FROM"
"""Variable that holds the `modules/` whose code a process runs, where that is the code of a session."""

_EXTRAS = {"ale_py": "atari", "cv2": "atari", "shimmy": "dm", "minigrid": "minigrid", "envpool": "envpool"}
_FILE_LIMIT_BYTES = 16 << 20
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_allowed(module: str, allowed: Iterable[str]) -> bool:
    """Whether `module` is one of the `allowed` packages or lies below one."""
    return any(module == name or module.startswith(name + ".") for name in allowed)


def top_level(module: str) -> str:
    """Return the package that a dotted name begins with."""
    return module.partition(".")[0]


def split_reference(reference: object, *, where: str) -> tuple[str, str]:
    """Return (module, attribute) of a `module:Name` reference.

    Raises:
        UsageError: `reference` has another form.
    """
    module, separator, attribute = reference.partition(":") if isinstance(reference, str) else ("", "", "")
    if not separator or not _DOTTED.fullmatch(module) or not attribute.isidentifier():
        raise UsageError(f"{where}: expected 'module:Name', found {one_line(reference, limit=80)!r}; write both parts")
    return module, attribute


def import_module(
    name: str, *, where: str, allowed: Iterable[str] = BUILT_IN, search: Sequence[Path] = ()
) -> ModuleType:
    """Import the module called `name`; the directories in `search` are looked at last.

    Raises:
        UsageError: the name is no dotted name, there is no such module, or its code raises.
        TrustError: the name is not below one of the `allowed` packages.
    """
    shown = one_line(name, limit=80)
    if not isinstance(name, str) or not _DOTTED.fullmatch(name):
        raise UsageError(f"{where}: expected a dotted module name, found {shown!r}; check its spelling")
    if not is_allowed(name, allowed):
        raise TrustError(
            f"{where}: expected a module that is trusted, found {shown!r}; name it on the command line, use "
            f"--trust-session, or sign the session with 'python -m digideep.sessions trust'"
        )
    try:
        with searching(after=search, bytecode=is_allowed(name, BUILT_IN)):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise missing_module(name, where=where) from error
        raise fault_of_user(error, where=where) from error
    except BaseException as error:  # whatever a user's module raises on its way in is its own fault
        if isinstance(error, DigideepError) or is_ours(error) or is_allowed(name, BUILT_IN):
            raise
        raise fault_of_user(error, where=where) from error


def import_file(path: Path, *, where: str) -> ModuleType:
    """Import a `.py` file as a module named after it, with its directory first on the path meanwhile.

    A file that was imported before is executed again, since it may have been edited.

    Raises:
        UsageError: no such file, a name that cannot be a module's or belongs to another one, or its code raises.
    """
    path = Path(os.path.abspath(path))
    shown = one_line(path)
    if not os.path.isfile(path):
        raise UsageError(f"{where}: expected a Python file, found none at {shown}; check the path")
    if (size := os.path.getsize(path)) > _FILE_LIMIT_BYTES:
        raise UsageError(
            f"{where}: expected a Python file of at most {_FILE_LIMIT_BYTES} bytes, found {size} at {shown}; check it"
        )
    name = path.stem
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UsageError(f"{where}: expected a file name that can be a module's, found {path.name!r}; rename the file")
    is_carried = _is_carried(name)
    if not is_carried:
        _refuse_taken_name(name, path, where=where)
    elif not filecmp.cmp(str(importlib.util.find_spec(name).origin), path, shallow=False):  # type: ignore[union-attr]
        logger.warning(
            "%s was edited since the session was made, which runs the code it was made with; "
            "to go on with the edited file, give --code installed",
            shown,
        )
    try:
        with searching(before=() if is_carried else (path.parent,), bytecode=False):
            loaded = sys.modules.get(name)
            return importlib.import_module(name) if loaded is None else importlib.reload(loaded)
    except DigideepError as error:
        raise type(error)(f"{place_of(error, str(path))}: {error}") from error
    except BaseException as error:
        if is_ours(error):
            raise
        raise fault_of_user(error, where=f"{shown}:1", file=str(path)) from error


def _is_carried(name: str) -> bool:
    """Whether this process runs the code of a session, and the session carries a module of this name."""
    modules = os.environ.get(CODE_FROM)
    spec = importlib.util.find_spec(name) if modules and name not in sys.modules else None
    loaded = sys.modules.get(name)
    origin = getattr(loaded, "__file__", None) if spec is None else spec.origin
    return bool(modules and origin) and os.path.dirname(str(origin)) == modules


def resolve(reference: str, *, where: str, allowed: Iterable[str] = BUILT_IN) -> Any:
    """Return the object that `module:Name` names.

    Raises:
        UsageError: the reference is malformed, or names nothing.
        TrustError: its module is not below one of the `allowed` packages.
    """
    name, attribute = split_reference(reference, where=where)
    module = import_module(name, where=where, allowed=allowed)
    try:
        return getattr(module, attribute)
    except AttributeError:
        found = one_line(attribute, limit=80)
        raise UsageError(f"{where}: expected a name in module {name!r}, found {found!r}; check its spelling") from None


def is_ours(error: BaseException) -> bool:
    """Whether an error that code of the user let through is about this process: no memory, or Ctrl-C as Python has it.

    Where signals have handlers of their own, whoever raises KeyboardInterrupt means something else.
    """
    is_interrupt = isinstance(error, KeyboardInterrupt)
    return isinstance(error, MemoryError) or (
        is_interrupt and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def fault_of_user(error: BaseException, *, where: str, file: str | None = None) -> UsageError:
    """Return the one-line error for what the user's code raised, beginning with file and line where they are known.

    `file` is the user's file; without it the innermost line outside this package and installed ones counts.
    """
    place = place_of(error, file) or where
    text = ": ".join(part for part in (type(error).__name__, one_line(_message(error), limit=300)) if part)
    return UsageError(f"{place}: expected code that runs, found {text}; correct it there")


def _message(error: BaseException) -> object:
    return error.msg if isinstance(error, SyntaxError) else error


def place_of(error: BaseException, file: str | None) -> str:
    """Return `file:line` where an error was raised: in `file`, else innermost in code of the user; empty if nowhere."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{one_line(error.filename)}:{error.lineno}"
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    wanted = [place for place in frames if place[0] == file] or [place for place in frames if _is_users(place[0])]
    wanted = [place for place in wanted if not _is_library(place[0])] or wanted
    return f"{one_line(wanted[-1][0])}:{wanted[-1][1]}" if wanted else ""


def raised_by_user(error: BaseException) -> str:
    """Return `file:line` of the code of the user that raised an error; empty where code of this package did.

    What an installed library raises, or the standard one, is its caller's; having no memory or disk is nobody's.
    """
    is_short = type(error).__name__ == "OutOfMemoryError" or getattr(error, "errno", None) in _SHORT
    if is_ours(error) or is_short:
        return ""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if file.startswith(_OWN):
            return ""
        if not _is_library(file):
            return f"{one_line(file)}:{line}"
    return ""


def told_with_place(error: BaseException) -> str:
    """Return an error in one line, with the place in the user's code that raised it, if any did."""
    place = raised_by_user(error)
    return f"{type(error).__name__}: {one_line(error)}" + (f" at {place}" if place else "")


def _is_users(file: str) -> bool:
    return not file.startswith(("<", _OWN)) and not file.startswith(os.path.dirname(importlib.__file__))


def _is_library(file: str) -> bool:
    installed = {"site-packages", "dist-packages"} & set(file.split(os.sep))
    return bool(installed) or file.startswith(("<", _STANDARD))


def missing_module(name: str, *, where: str) -> UsageError:
    """Return the error for a module that cannot be found; it names the extra that brings it, where one does."""
    shown, extra = one_line(name, limit=80), _EXTRAS.get(top_level(name))
    if extra:
        return MissingExtraError(
            f'{where}: expected an installed module, found no {shown!r}; pip install "digideep[{extra}]"'
        )
    return UsageError(
        f"{where}: expected a module that can be imported, found no {shown!r}; install it or go to its directory"
    )


def _refuse_taken_name(name: str, path: Path, *, where: str) -> None:
    loaded = sys.modules.get(name)
    spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(name)
    taken = name in sys.stdlib_module_names or loaded is not None or spec is not None
    origin = spec.origin if spec is not None else None
    # A session that runs its own code has a copy of this file on the path.
    if taken and not (origin and os.path.exists(origin) and filecmp.cmp(origin, path, shallow=False)):
        owner = one_line(origin or "the standard library")
        raise UsageError(
            f"{where}: expected a name that no other module has, found {path.name!r}, which is also {owner}; "
            f"rename the file"
        )


@contextlib.contextmanager
def searching(*, before: Sequence[Path] = (), after: Sequence[Path] = (), bytecode: bool = True) -> Iterator[None]:
    """Extend the module path for a while; without `bytecode` nothing is written beside the files imported then."""
    added_first = [str(path) for path in before]
    added_last = [str(path) for path in after if str(path) not in sys.path]
    quiet, sys.dont_write_bytecode = sys.dont_write_bytecode, sys.dont_write_bytecode or not bytecode
    sys.path[:0] = added_first
    sys.path.extend(added_last)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = quiet
        for entry in added_first:
            if entry in sys.path:
                sys.path.remove(entry)
        for entry in reversed(added_last):
            if entry in sys.path:
                del sys.path[len(sys.path) - 1 - sys.path[::-1].index(entry)]
