"""The key of this user, which signs sessions and never lies in one."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from digideep.errors import one_line
from digideep.pipeline.fsio import read_regular

__all__ = ["KEY_BYTES", "Key", "find_key", "key_path", "make_key"]

KEY_BYTES = 32


class Key(NamedTuple):
    """The key, or None and the reason why there is none."""

    secret: bytes | None
    reason: str = ""


def key_path(environ: Mapping[str, str]) -> Path | None:
    """Return `${XDG_STATE_HOME:-~/.local/state}/digideep/key`; None where there is no home."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # a relative one is to be ignored, says the XDG specification
        home = environ.get("HOME", "") or os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        state = os.path.join(home, ".local", "state")
    return Path(state, "digideep", "key")


def find_key(environ: Mapping[str, str]) -> Key:
    """Return the key if there is one that only this user can read."""
    path = key_path(environ)
    if path is None:
        return Key(None, "there is no home directory to keep a key in")
    where = one_line(path)
    try:
        for place, bits in ((path.parent, 0o022), (path, 0o077)):
            status = place.lstat()
            if status.st_uid != os.geteuid() or status.st_mode & bits:
                return Key(None, f"{one_line(place)} is another user's or open to others; see chmod")
        if not stat.S_ISDIR(path.parent.lstat().st_mode):
            return Key(None, f"{one_line(path.parent)} is no directory")
        secret = read_regular(path, limit_bytes=KEY_BYTES)
    except FileNotFoundError:
        return Key(None, f"there is no key at {where}")
    except OSError as error:
        return Key(None, f"the key at {where} cannot be read: {error.strerror}")
    if len(secret) != KEY_BYTES:
        return Key(None, f"the key at {where} has {len(secret)} bytes instead of {KEY_BYTES}; remove it")
    return Key(secret)


def make_key(environ: Mapping[str, str]) -> Key:
    """Return the key, made where there is none; of several processes that make one at once all return the same."""
    path = key_path(environ)
    if path is None or os.path.lexists(path):
        return find_key(environ)
    temporary = path.with_name(f".key-{os.getpid()}-{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        try:
            with open(descriptor, "wb") as stream:
                stream.write(secrets.token_bytes(KEY_BYTES))
                stream.flush()
                os.fsync(stream.fileno())
            _publish(temporary, path)
        finally:
            os.unlink(temporary)
    except OSError as error:
        return Key(None, f"no key can be kept at {one_line(path)}: {error.strerror}")
    return find_key(environ)


def _publish(temporary: Path, path: Path) -> None:
    """Give the finished file its name; a link, unlike a rename, cannot take the place of somebody else's."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
