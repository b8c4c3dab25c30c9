"""Where sessions lie, and how the directory of a new one is made."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from digideep.errors import UsageError, one_line

__all__ = [
    "DEFAULT_ROOT",
    "NAME_PATTERN",
    "NAME_RULE",
    "check_name",
    "is_default_root",
    "is_volatile",
    "missing_directories",
    "new_directory",
    "new_place",
    "new_session_directory",
    "session_root",
    "template_directory",
    "timestamp",
    "typed_path",
]

DEFAULT_ROOT = Path("/tmp/digideep_sessions")
NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,80}")
NAME_RULE = "a letter or _ and at most 80 of letters, digits, '_', '.' and '-'"

_VOLATILE = ("/tmp", "/dev/shm", "/run")


def typed_path(text: str | os.PathLike[str], *, option: str) -> Path:
    """Return the absolute path that a user means by `text`, a leading `~` as the shell has it. Nothing is looked up.

    Args:
        text: as it was typed.
        option: what it was given to, for the message.

    Raises:
        UsageError: it is empty, or begins with the home of an unknown user.
    """
    typed = os.fspath(text)
    if not typed or "\0" in typed:
        raise UsageError(f"{option}: expected a path, found {one_line(repr(typed), limit=200)}; name one")
    expanded = os.path.expanduser(typed)
    if expanded.startswith("~"):
        user = one_line(repr(expanded.partition("/")[0]), limit=80)
        raise UsageError(f"{option}: expected the home of a user, found none of {user}; write ./~ for that very name")
    return Path(os.path.abspath(expanded))


def new_place(text: str | os.PathLike[str], *, option: str) -> Path:
    """Return the path of a directory that may be made: as `typed_path`, and it can stand in one line of output.

    Raises:
        UsageError: as `typed_path`; or it holds control characters, or bytes that are no text.
    """
    path = typed_path(text, option=option)
    name = str(path)
    if name != one_line(name, limit=len(name)) or name != name.encode("utf-8", "replace").decode("utf-8"):
        found = one_line(repr(name), limit=200)
        raise UsageError(f"{option}: expected a path that is text in one line, found {found}; rename the directory")
    return path


def missing_directories(path: Path) -> tuple[Path, ...]:
    """Return which of `path` and the directories around it are missing, the innermost first.

    One that cannot be looked at is not missing: whoever makes the path says what is wrong with it.
    """
    missing: list[Path] = []
    for directory in (path, *path.parents):
        try:
            directory.stat()
        except (FileNotFoundError, NotADirectoryError):
            missing.append(directory)
        except OSError:
            break
        else:
            break
    return tuple(missing)


def session_root(
    session_path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    create: bool = True,
) -> Path:
    """Return the absolute directory in which new sessions are made.

    Args:
        session_path: what the user named; None: $DIGIDEEP_SESSIONS, else the default below /tmp.
        environ: the environment variables; None: those of this process.
        create: make it where it is missing. The default one is made for this user alone (0700).

    Raises:
        UsageError: it is no directory, or cannot be made.
    """
    environ = os.environ if environ is None else environ
    named = session_path if session_path is not None else environ.get("DIGIDEEP_SESSIONS") or None
    if named is None:
        return _default_root(create=create)
    option = "--session-path" if session_path is not None else "DIGIDEEP_SESSIONS"
    root = new_place(named, option=option)
    try:
        if root.exists() and not root.is_dir():
            raise UsageError(f"{option}: expected a directory, found a file at {one_line(root)}; name another one")
        if create:
            root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option}: expected a directory that can be made, found {error.strerror} at {one_line(root, limit=400)}; "
            f"name another one"
        ) from error
    return root


def is_default_root(session_path: str | os.PathLike[str] | None) -> bool:
    """Whether nobody has named a place for sessions, so that they go below /tmp."""
    return session_path is None and not os.environ.get("DIGIDEEP_SESSIONS")


def _default_root(*, create: bool) -> Path:
    named_by_user = DEFAULT_ROOT.with_name(f"{DEFAULT_ROOT.name}-{_user_name()}")
    for root in (DEFAULT_ROOT, named_by_user):
        try:
            # Made first and looked at afterwards: nobody can slip another directory in between.
            if create:
                root.mkdir(mode=0o700, parents=True)
                return root
            status = root.lstat()
        except FileExistsError:
            status = root.lstat()
        except FileNotFoundError:
            return root
        except OSError as error:
            raise UsageError(
                f"{root}: expected to make this directory, found {error.strerror}; name another with --session-path"
            ) from error
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            return root
    raise UsageError(
        f"{named_by_user}: expected a directory of yours, found another user's; name one with --session-path"
    )


def _user_name() -> str:
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = ""
    return name if NAME_PATTERN.fullmatch(name) else str(os.geteuid())


def is_volatile(root: Path) -> bool:
    """Whether what lies in `root` does not outlive a reboot (or the node of a cluster job)."""
    real = Path(os.path.realpath(root))
    return any(real.is_relative_to(os.path.realpath(place)) for place in _VOLATILE)


def timestamp(now: datetime) -> str:
    """Return YYYYMMDDHHMMSS in UTC."""
    return now.astimezone(UTC).strftime("%Y%m%d%H%M%S")


def check_name(name: str) -> str:
    """Return `name` where a session may be called that.

    Raises:
        UsageError: it may not.
    """
    if not NAME_PATTERN.fullmatch(name):
        found = one_line(repr(name), limit=120)
        raise UsageError(f"--session-name: expected {NAME_RULE}, found {found}; choose such a name")
    return name


def new_session_directory(root: Path, name: str | None, now: datetime) -> Path:
    """Make the directory of a new session in `root` by one mkdir and return it.

    Args:
        root: where sessions lie; made where it is missing.
        name: what the user called it; None: `session_<UTC time>`, and where that is taken `_2`, `_3` and so on.
        now: the time.

    Raises:
        UsageError: the name is taken or not allowed, or the directory cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        if name is None:
            return new_directory(root, f"session_{timestamp(now)}")
        directory = root / check_name(name)
        directory.mkdir(mode=0o700)
    except FileExistsError as error:
        raise UsageError(
            f"--session-name: expected a new name, found {one_line(root / (name or ''))}; "
            f"choose another, or go on with it by --autoresume or --resume --load-checkpoint"
        ) from error
    except OSError as error:
        raise UsageError(
            f"{one_line(root)}: expected to make a session here, found {error.strerror}; "
            f"name another place with --session-path"
        ) from error
    return directory


def new_directory(parent: Path, name: str) -> Path:
    """Make `name` in `parent`, or the first free of `name_2`, `name_3` and so on, and return it.

    Raises:
        OSError: no directory can be made in `parent`.
    """
    number = 1
    while True:
        directory = parent / (name if number == 1 else f"{name}_{number}")
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return directory


def template_directory() -> Path:
    """Return the directory whose files are stamped into every session.

    Raises:
        UsageError: the installation lacks it.
    """
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "sessions_template", package.parent / "sessions_template"):
        if (candidate / "saam.py").is_file():
            return candidate
    raise UsageError(f"{package}: expected sessions_template beside the code, found none; install digideep again")
