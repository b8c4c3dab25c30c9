"""Who is working on a session, and whether it is finished.

`running.lock` is held with flock, which ends with the process that holds it however that ends, so nothing has to be
cleaned up after a kill. The file is never removed and never emptied: a lock on a file that somebody replaced protects
nothing, which is why the directory of the session is locked too and the inodes are compared. What stands in the file
only tells people who it is. `done.lock` is a plain file whose presence means that the session has reached its goal.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from digideep.errors import SessionLockedError, StoppedError, StorageError, UsageError, one_line
from digideep.pipeline.fsio import REAL, FileSystem, publish_json, read_regular, storage_error
from digideep.pipeline.layout import SessionPaths, require_one_name
from digideep.utility.strictjson import loads_json

__all__ = ["SessionLock", "clear_done", "holder", "is_done", "mark_done"]

logger = logging.getLogger(__name__)

_RUNNING_LOCK = SessionPaths.running_lock.name
_DONE_LOCK = SessionPaths.done_lock.name

_POLL_S = 0.1
# `holder` takes a shared lock for a moment to see whether it can; a start must not take that for a running session.
_PATIENCE_S = 0.2
_SHORT_POLL_S = 0.01
_LIMIT_BYTES = 4096
_CANNOT_LOCK = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


class SessionLock:
    """The right to write to a session, from `__enter__` to `__exit__` or the end of the process.

    Args:
        session: directory of the session.
        wait_s: how long to wait for another process to let go.
        stop_signal: asked while waiting: the number of a signal that has asked for an end, or None.

    Raises (on entering):
        SessionLockedError: another process has it; names the process and its host.
        StoppedError: a signal asked for an end while this waited.
        UsageError: the directory, or its lock file, is none.
        StorageError: the lock file cannot be written.
    """

    def __init__(
        self,
        session: Path | str,
        *,
        wait_s: float = 0.0,
        stop_signal: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.session = Path(session)
        self.wait_s = wait_s
        self._stop_signal = stop_signal
        self.generation = 0
        self._descriptors: tuple[int, ...] = ()
        self._owner = 0

    def __enter__(self) -> Self:
        began = time.monotonic()
        is_told = False
        while not self._try():
            waited = time.monotonic() - began
            number = self._stop_signal()
            if number is not None:
                raise StoppedError(f"{self._refusal()} ({signal.Signals(number).name} ended the wait)", number)
            if waited >= max(self.wait_s, _PATIENCE_S):
                raise SessionLockedError(self._refusal())
            if waited >= _PATIENCE_S and not is_told:
                is_told = True
                logger.warning("waits for %s, at most %.3g s", self._who(), self.wait_s)
            time.sleep(_SHORT_POLL_S if waited < _PATIENCE_S else _POLL_S)
        return self

    def check(self) -> None:
        """Check that nobody has taken the session over, as may happen to a host that a network file system lost.

        Raises:
            SessionLockedError: a later generation stands in the lock file.
        """
        generation = _read_content(self.session).get("generation")
        if self.held and type(generation) is int and generation > self.generation:
            raise SessionLockedError(
                one_line(
                    f"{self.session}: expected the lock of generation {self.generation}, found it taken over by "
                    f"{self._who()}; this run saves nothing any more"
                )
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._release()

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return bool(self._descriptors)

    def _release(self) -> None:
        for descriptor in reversed(self._descriptors):
            # A process forked meanwhile shares the lock: it must not end ours, and its copy must not outlast ours.
            if os.getpid() == self._owner:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
        self._descriptors = ()

    def _try(self) -> bool:
        """Take the lock if nobody has it; False if somebody does, or replaced the file meanwhile."""
        if self.held:
            raise RuntimeError("this lock is held already")
        path = self.session / _RUNNING_LOCK
        opened: list[int] = []
        try:
            opened.append(os.open(self.session, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            opened.append(os.open(_RUNNING_LOCK, flags, 0o644, dir_fd=opened[0]))
            directory, file = opened
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise UsageError(one_line(f"{path}: expected a regular file, found something else; remove it"))
            require_one_name(path, os.fstat(file))
            if _flock(file) and _flock_directory(directory) and self._still_named(directory, file):
                self.generation = _write_content(file)
                self._descriptors, opened = (directory, file), []
                self._owner = os.getpid()
        except OSError as error:
            raise _explain(error, path) from error
        finally:
            for descriptor in opened:
                os.close(descriptor)
        return self.held

    def _still_named(self, directory: int, file: int) -> bool:
        """Whether the names in the file system lead to what was locked."""
        try:
            named_directory = os.stat(self.session)
            named_file = os.stat(_RUNNING_LOCK, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(named_directory, os.fstat(directory)) and os.path.samestat(named_file, os.fstat(file))

    def _who(self) -> str:
        content = _read_content(self.session)
        return one_line(f"process {content.get('pid', 'unknown')} on host {content.get('host', 'unknown')}", limit=300)

    def _refusal(self) -> str:
        found = f"found it open in {self._who()}"
        return one_line(f"{self.session}: expected a session that nobody uses, {found}; stop it first")


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _flock_directory(descriptor: int) -> bool:
    try:
        return _flock(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_LOCK:
            raise
        logger.debug("the directory of the session cannot be locked on this file system: %s", error.strerror)
        return True


def _explain(error: OSError, path: Path) -> UsageError | StorageError:
    if error.errno == errno.ELOOP:
        return UsageError(one_line(f"{path}: expected a regular file, found a symbolic link; remove it"))
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return UsageError(one_line(f"{path.parent}: expected the directory of a session, found none; check the path"))
    if error.errno in (errno.EISDIR, errno.ENXIO):
        return UsageError(one_line(f"{path}: expected a regular file, found something else; remove it"))
    return storage_error(error, path, action="lock")


def _write_content(file: int) -> int:
    """Say in the locked file who holds it, and return the generation: one more than the holder before."""
    previous = _parse(os.pread(file, _LIMIT_BYTES, 0)).get("generation")
    generation = previous + 1 if type(previous) is int and previous >= 0 else 1
    content = {
        "host": os.uname().nodename,
        "boot_id": _boot_id(),
        "pid": os.getpid(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "generation": generation,
    }
    line = json.dumps(content).encode() + b"\n"
    # Over the old line, then to length: at no time is the file empty.
    written = os.pwrite(file, line, 0)
    if written != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(file, len(line))
    os.fsync(file)  # on a network file system: visible to other hosts
    return generation


def _boot_id() -> str:
    with contextlib.suppress(OSError):  # Linux only
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _parse(content: bytes) -> dict[str, Any]:
    """Return the first line as an object, empty if it is torn or was written by something else."""
    try:
        value = loads_json(content.partition(b"\n")[0].decode("utf-8"), where=_RUNNING_LOCK)
    except (UsageError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_content(session: Path) -> dict[str, Any]:
    try:
        return _parse(read_regular(session / _RUNNING_LOCK, limit_bytes=_LIMIT_BYTES))
    except OSError:
        return {}  # it only says who; that somebody holds the lock is known without it


def holder(session: Path | str) -> dict[str, Any] | None:
    """Return what the process that holds the session now says about itself, None if none does.

    Looks only: no file is made or changed. The keys are host, boot_id, pid, started and generation; they are missing
    where the holder has not written them yet. A session whose lock file this user may not open counts as not held.
    """
    session = Path(session)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(session / _RUNNING_LOCK, flags)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        content = _read_content(session)
        return {key: one_line(value) if isinstance(value, str) else value for key, value in content.items()}
    except OSError:
        return None  # a file system without locks
    finally:
        os.close(descriptor)
    return None


def mark_done(session: Path | str, reason: str, *, fs: FileSystem = REAL) -> None:
    """Record, durably, that the session has reached its goal.

    Raises:
        StorageError: it is not recorded.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    publish_json(Path(session) / _DONE_LOCK, {"time": now, "reason": one_line(reason)}, mode=0o644, fs=fs)


def is_done(session: Path | str, *, fs: FileSystem = REAL) -> bool:
    """Return whether the session has reached its goal."""
    try:
        fs.status(Path(session) / _DONE_LOCK)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def clear_done(session: Path | str, *, fs: FileSystem = REAL) -> None:
    """Take back `mark_done`, durably; nothing happens where the session is not done.

    Raises:
        StorageError: the session still counts as done, or may after a crash.
    """
    path = Path(session) / _DONE_LOCK
    try:
        fs.unlink(path)
        fs.fsync_directory(path.parent)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error, path, action="remove", fs=fs) from error
