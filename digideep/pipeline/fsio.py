"""Files that are published whole or not at all: the only place that writes what must survive a crash.

`publish` replaces one file atomically: temporary name beside it, fsync, rename, fsync of the directory. `write_new` and
`open_regular` are the two halves that the checkpoint store builds on. Every call that touches the disk goes through a
`FileSystem`, so that a test can let any one of them fail, stop the process there, or record the order in which things
became durable. The names of `filesystem` and of `utility.strictjson` are offered here too.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from digideep.errors import StorageError, UsageError, one_line
from digideep.pipeline.filesystem import REAL, FileSystem, RealFileSystem
from digideep.pipeline.machine_limits import RAISE_FILES
from digideep.utility.strictjson import MAX_DEPTH, loads_json

__all__ = [
    "REAL",
    "TEMPORARY_PREFIX",
    "FileSystem",
    "HashingReader",
    "RealFileSystem",
    "Stamp",
    "Written",
    "kind_of",
    "loads_json",
    "open_regular",
    "publish",
    "publish_json",
    "read_json",
    "read_regular",
    "remove_tree",
    "storage_error",
    "sweep_temporaries",
    "write_new",
    "write_stamped",
]

logger = logging.getLogger(__name__)

TEMPORARY_PREFIX = ".tmp-"


class Written(NamedTuple):
    """What a file holds after it was written."""

    bytes: int
    sha256: str


class Stamp(NamedTuple):
    """Which file it is, and when its content changed last: as long as this is the same, so is what was read."""

    device: int
    inode: int
    bytes: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a file with this status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def write_new(path: Path, chunks: Iterable[bytes | memoryview], *, mode: int = 0o600, fs: FileSystem = REAL) -> Written:
    """Write a file as `write_stamped` does, and return its size and hash."""
    return write_stamped(path, chunks, mode=mode, fs=fs)[0]


def write_stamped(
    path: Path, chunks: Iterable[bytes | memoryview], *, mode: int = 0o600, fs: FileSystem = REAL
) -> tuple[Written, Stamp]:
    """Write a file that must not exist yet, make its content durable, and return what it holds and its stamp.

    The directory is not synchronised: that is for the caller, once for all its files.

    Raises:
        OSError: as it came; what was written up to there is left for the caller to remove.
    """
    digest, count = hashlib.sha256(), 0
    descriptor = fs.create(path, mode=mode)
    try:
        for chunk in chunks:
            content = memoryview(chunk)
            digest.update(content)
            count += len(content)
            while len(content):
                # A full disk first answers with a short count, and with an error only at the next call.
                taken = fs.write(descriptor, content)
                if taken <= 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
                content = content[taken:]
        fs.fsync(descriptor)
        stamp = Stamp.of(fs.open_status(descriptor))
        if stamp.bytes != count:
            raise OSError(errno.EIO, f"the file has {stamp.bytes} bytes after {count} were written", str(path))
    finally:
        fs.close(descriptor)
    return Written(bytes=count, sha256=digest.hexdigest()), stamp


def publish(path: Path | str, content: bytes, *, mode: int = 0o600, fs: FileSystem = REAL) -> None:
    """Replace the file at `path` by `content`: after a crash it holds the old bytes or the new ones, never a mixture.

    Args:
        path: where; its directory must exist. A link of that name is replaced, not followed.
        content: the whole file.
        mode: permission bits, lessened by the umask.
        fs: the file system.

    Raises:
        StorageError: nothing is left beside the file, which holds the old content; or the new one, where only the last
            fsync failed, and a crash may still take it back.
    """
    path = Path(path)
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(temporary)  # of a process that had this number before a reboot
        write_new(temporary, [content], mode=mode, fs=fs)
        fs.rename(temporary, path)
        fs.fsync_directory(path.parent)
    except BaseException as error:
        _discard(temporary, fs=fs)
        if isinstance(error, OSError):
            raise storage_error(error, path, needed=len(content), fs=fs) from error
        raise


def _discard(temporary: Path, *, fs: FileSystem) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(temporary)
    except OSError as error:
        logger.warning("%s: expected to remove this temporary file, found %s", one_line(temporary), error.strerror)


def publish_json(path: Path | str, value: Any, *, mode: int = 0o600, fs: FileSystem = REAL) -> None:
    """Publish `value` as JSON: two spaces of indent, keys in the order given, one newline at the end.

    Raises:
        ValueError: the value holds NaN or infinity, which JSON has no word for.
        TypeError: the value holds what JSON has no word for otherwise.
        StorageError: as `publish`.
    """
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    publish(path, text.encode(), mode=mode, fs=fs)


def storage_error(
    error: OSError, path: Path | str, *, needed: int | None = None, action: str = "write", fs: FileSystem = REAL
) -> StorageError:
    """Return the one-line StorageError for a failed system call, with the bytes needed and free where known."""
    name = errno.errorcode.get(error.errno or 0, "an error without a number")
    found = f"{name} ({error.strerror or error})"
    size = "" if needed is None else f" {needed} bytes"
    free = _free(Path(path), fs=fs)
    room = "" if free is None else f", {free} bytes free"
    advice = {
        errno.ENOSPC: "free some space",
        errno.EDQUOT: "free some of your quota",
        errno.EROFS: "the file system is mounted read-only",
        errno.EACCES: "check its permissions",
        errno.EFBIG: "raise the file size limit (ulimit -f)",
        errno.EMFILE: RAISE_FILES,
    }.get(error.errno or 0, "check the disk")
    return StorageError(one_line(f"{path}: expected to {action}{size}, found {found}{room}; {advice}"))


def _free(path: Path, *, fs: FileSystem) -> int | None:
    """Return the free bytes of the nearest directory that exists."""
    for directory in path.parents:
        try:
            return fs.free_bytes(directory)
        except FileNotFoundError:
            continue
        except OSError:
            return None  # this only decorates the message of an error that is being reported already
    return None


def open_regular(path: Path, *, fs: FileSystem = REAL) -> tuple[int, int]:
    """Return (descriptor, size in bytes) of a regular file opened for reading.

    Raises:
        OSError: there is none, or it is a link, a directory, a FIFO, a socket or a device (EINVAL, told in words).
    """
    if (kind := kind_of(fs.status(path).st_mode)) != "a regular file":  # before the open: that alone can move a device
        raise OSError(errno.EINVAL, f"{kind} instead of a regular file", str(path))
    descriptor = fs.open_for_reading(path)
    try:
        status = fs.open_status(descriptor)
        if (kind := kind_of(status.st_mode)) != "a regular file":
            raise OSError(errno.EINVAL, f"{kind} instead of a regular file", str(path))
    except BaseException:
        fs.close(descriptor)
        raise
    return descriptor, status.st_size


_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(mode: int) -> str:
    """Return what the mode of a status says that something is, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "something unknown")


class HashingReader:
    """Reads an open file from its beginning and hashes what passes by."""

    def __init__(self, descriptor: int, *, fs: FileSystem = REAL) -> None:
        self._descriptor = descriptor
        self._fs = fs
        self._digest = hashlib.sha256()
        self.count = 0

    def readinto(self, target: memoryview) -> int:
        """Fill `target` and return the number of bytes, fewer only at the end of the file."""
        filled = 0
        while filled < len(target):
            taken = self._fs.read_into(self._descriptor, target[filled:])
            if taken == 0:
                break
            filled += taken
        self._digest.update(target[:filled])
        self.count += filled
        return filled

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes, fewer only at the end of the file."""
        target = bytearray(count)
        return bytes(target[: self.readinto(memoryview(target))])

    def drain(self) -> None:
        """Read up to the end of the file, keeping nothing."""
        scratch = memoryview(bytearray(1 << 20))
        while self.readinto(scratch) == len(scratch):
            pass

    def sha256(self) -> str:
        """Return the hash, in hexadecimal, of what was read."""
        return self._digest.hexdigest()


def read_regular(path: Path, *, limit_bytes: int, fs: FileSystem = REAL) -> bytes:
    """Return the content of a regular file of at most `limit_bytes`.

    Raises:
        OSError: as `open_regular`; EFBIG where it is larger.
    """
    descriptor, size = open_regular(path, fs=fs)
    try:
        content = b"" if size > limit_bytes else HashingReader(descriptor, fs=fs).read(size + 1)
    finally:
        fs.close(descriptor)
    if size > limit_bytes or len(content) > limit_bytes:  # the second: it grew between the two calls
        raise OSError(errno.EFBIG, f"more than {limit_bytes} bytes", str(path))
    return content


def read_json(
    path: Path | str,
    *,
    limit_bytes: int = 16 << 20,
    max_depth: int = MAX_DEPTH,
    follow_links: bool = False,
    fs: FileSystem = REAL,
) -> Any:
    """Return the value in a JSON file, read strictly (see `loads_json`).

    Args:
        path: a regular file.
        limit_bytes: the greatest size that is read at all.
        max_depth: how deep lists and objects may be nested.
        follow_links: take the file behind a link; for paths that the user typed.
        fs: the file system.

    Raises:
        UsageError: no such file, not a regular file, too large, not UTF-8 or not strict JSON; names the file.
    """
    where = one_line(path)
    try:
        target = Path(os.path.realpath(path)) if follow_links else Path(path)
        content = read_regular(target, limit_bytes=limit_bytes, fs=fs)
    except FileNotFoundError as error:
        raise UsageError(f"{where}: expected a JSON file, found none; check the path") from error
    except OSError as error:
        found = one_line(error.strerror or error)
        raise UsageError(f"{where}: expected a readable JSON file, found {found}; check the path") from error
    except ValueError as error:  # a NUL character in the name
        raise UsageError(f"{where}: expected the path of a JSON file, found {error}; check the path") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {content[error.start]:#04x} at offset {error.start}"
        raise UsageError(f"{where}: expected UTF-8 text, found {found}; save the file as UTF-8") from error
    return loads_json(text, where=where, max_depth=max_depth)


def _walk_up(path: Path, *, fs: FileSystem) -> Iterator[tuple[Path, bool]]:
    """Yield (path, whether it is a directory) of everything at and below `path`, children first; links are leaves."""
    is_directory = stat.S_ISDIR(fs.status(path).st_mode)
    if is_directory:
        for name in fs.listdir(path):
            yield from _walk_up(path / name, fs=fs)
    yield path, is_directory


def remove_tree(path: Path, *, fs: FileSystem = REAL) -> None:
    """Remove a file or a directory with all it holds; a link is removed, never what it points to.

    Nothing happens where there is nothing.

    Raises:
        OSError: as it came; the rest is left.
    """
    try:
        entries = list(_walk_up(path, fs=fs))
    except FileNotFoundError:
        return
    for entry, is_directory in entries:
        (fs.rmdir if is_directory else fs.unlink)(entry)


def sweep_temporaries(directory: Path, *, fs: FileSystem = REAL) -> list[str]:
    """Remove the temporary files that killed processes left in `directory` and return their names.

    For a caller who holds the lock of the session: nobody else publishes there at that time.

    Raises:
        StorageError: one could not be removed.
    """
    swept = []
    for name in fs.listdir(directory):
        path = directory / name
        if not name.startswith(TEMPORARY_PREFIX):
            continue
        try:
            if stat.S_ISDIR(fs.status(path).st_mode):
                continue
            fs.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise storage_error(error, path, action="remove", fs=fs) from error
        swept.append(name)
    return swept
