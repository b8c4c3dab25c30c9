"""A file that only grows by whole records, whatever the disk does: the ground of every log of a session."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from digideep.errors import StorageError

__all__ = ["AppendFile", "open_append", "open_plain", "rewrite"]

logger = logging.getLogger(__name__)

_PENDING_BYTES = 8 * 2**20  # kept in memory while the disk refuses them; beyond this the oldest records are lost
_PIECE_BYTES = 2**20
# O_NONBLOCK has no effect on a file; on a FIFO that somebody put in its place it keeps the open from waiting.
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

WholeLength = Callable[[int, int], int]


def open_plain(path: Path | str, flags: int) -> int:
    """Return a descriptor of the regular file `path`; links, FIFOs and devices raise OSError.

    So does, unless it is only read, a file that has another name too: what is written would appear there.
    """
    descriptor = os.open(path, flags | _SAFE, 0o644)
    status = os.fstat(descriptor)
    is_read_only = flags & os.O_ACCMODE == os.O_RDONLY
    if not stat.S_ISREG(status.st_mode) or (status.st_nlink > 1 and not is_read_only):
        os.close(descriptor)
        found = f"one with {status.st_nlink} names" if stat.S_ISREG(status.st_mode) else "something else"
        raise OSError(f"{path}: expected a regular file of its own, found {found}")
    return descriptor


def open_append(path: Path | str) -> int:
    """Return a descriptor that appends to the regular file `path`, made if missing."""
    return open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)


def rewrite(path: Path | str, *, begin: int = 0, end: int | None = None) -> None:
    """Write what a file holds from `begin` to `end` once more over itself, so that the next fsync is about it again.

    After a failed fsync the system takes what it could not write for written; another fsync alone may report success.
    What is appended meanwhile is not touched, nor what lies beyond `end` (None: where the file ends now). Raises
    OSError.
    """
    descriptor = open_plain(path, os.O_RDWR)
    try:
        stop = os.fstat(descriptor).st_size if end is None else end
        while piece := os.pread(descriptor, min(_PIECE_BYTES, max(0, stop - begin)), begin):
            begin += os.pwrite(descriptor, piece, begin)
    finally:
        os.close(descriptor)


class AppendFile:
    """Appends records to `path`, opened at the first one; safe to use from several threads.

    A record that cannot be written raises nothing: it is taken back from the file, kept, and written before the next
    one. The first failure is a warning in the log, all are counted in `failures`, records given up in `lost`.

    Args:
        path: the file, made when the first record is written.
        whole_length: gives, for a descriptor and the file's size, the length of the part that consists of whole
            records; what follows it (the end of a record that a kill cut in two) is removed at opening.
    """

    def __init__(self, path: Path | str, *, whole_length: WholeLength) -> None:
        self.path = Path(path)
        self.failures = 0
        self.lost = 0
        self._whole_length = whole_length
        self._lock = threading.RLock()
        self._descriptor: int | None = None
        self._length = 0  # of the whole records in the file; meaningful while it is open
        self._durable = 0  # of these, the ones that an fsync has confirmed; less is no harm
        self._is_doubtful = False  # an fsync has failed since
        self._torn = False  # bytes of a record stand beyond _length and could not be removed yet
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0

    def append(self, record: bytes) -> None:
        """Write one record, after those that are waiting."""
        with self._lock:
            self._pending.append(record)
            self._pending_bytes += len(record)
            self.flush()
            while self._pending_bytes > _PENDING_BYTES:
                self._pending_bytes -= len(self._pending.popleft())
                self.lost += 1

    def flush(self) -> bool:
        """Try to write what is waiting; return whether everything is in the file."""
        with self._lock:
            if not self._pending:
                return True
            try:
                descriptor = self._open()
                while self._pending:
                    self._write(descriptor, self._pending[0])
                    self._pending_bytes -= len(self._pending.popleft())
            except OSError as error:
                self._failed(error)
                return False
            return True

    def length(self) -> int:
        """Write what is waiting and return the length in bytes that a checkpoint may rely on once it is durable.

        Records that the disk refuses for now count: written later, they stand before this length, and a resume from
        the checkpoint keeps them.
        """
        with self._lock:
            self.flush()
            return self._length_in_file() + self._pending_bytes

    def _length_in_file(self) -> int:
        try:
            if self._descriptor is None:
                if not self.path.exists():
                    return 0
                self._open()
        except OSError as error:
            self._failed(error)
            return self._size_on_disk()
        return self._length

    def sync(self) -> int:
        """Make what has been written durable; return the length in bytes that a checkpoint may rely on.

        Others may append meanwhile: they do not wait for the disk.
        """
        with self._lock:
            length = self.length()
            written = length - self._pending_bytes
            descriptor = None if self._descriptor is None else os.dup(self._descriptor)
            begin = self._durable if self._is_doubtful else None
        if descriptor is None:
            return length
        try:
            if begin is not None:
                rewrite(self.path, begin=begin, end=written)
            os.fsync(descriptor)
        except OSError as error:
            self._is_doubtful = True
            self._failed(error)
        else:
            self._durable, self._is_doubtful = written, False
        finally:
            os.close(descriptor)
        return length

    def truncate(self, length: int) -> int:
        """Cut the file to `length` bytes and return its length; what was waiting is dropped.

        A file that is shorter keeps what it has, with a warning. Raises StorageError if it cannot be cut, since rows
        would be repeated.
        """
        with self._lock:
            self._pending.clear()
            self._pending_bytes = 0
            try:
                if length == 0 and not self.path.exists() and not self.path.is_symlink():
                    return 0
                if self._descriptor is None:
                    self._descriptor = self._open_mended()
                size = os.fstat(self._descriptor).st_size
                if size < length:
                    logger.warning("%s: rows are missing, %d bytes of %d are left", self.path, size, length)
                os.ftruncate(self._descriptor, min(size, length))
                self._mend(self._descriptor)
                os.fsync(self._descriptor)
                self._durable = self._length
            except OSError as error:
                raise StorageError(
                    f"{self.path}: expected a file that can be cut to {length} bytes, found {error}; "
                    "put the file aside or make it writable"
                ) from error
            return self._length

    def close(self) -> None:
        """Write what is waiting and close; a later record opens the file again."""
        with self._lock:
            if not self.flush():
                logger.warning("%s: cannot be written; its last records are lost", self.path)
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _size_on_disk(self) -> int:
        try:
            return self.path.lstat().st_size
        except OSError:
            return 0

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = self._open_mended()
        elif self._torn:
            os.ftruncate(self._descriptor, self._length)
            self._torn = False
        return self._descriptor

    def _open_mended(self) -> int:
        descriptor = open_append(self.path)
        try:
            self._mend(descriptor)
        except OSError:
            os.close(descriptor)  # without a known length nothing may be written, nor cut off
            raise
        return descriptor

    def _mend(self, descriptor: int) -> None:
        """Remove what follows the last whole record."""
        size = os.fstat(descriptor).st_size
        self._length = self._whole_length(descriptor, size)
        if self._length < size:
            self._torn = True
            os.ftruncate(descriptor, self._length)
        self._torn = False

    def _write(self, descriptor: int, record: bytes) -> None:
        written = 0
        try:
            while written < len(record):
                # On a full disk the count is short, without an error; the next call has the error.
                written += os.write(descriptor, memoryview(record)[written:])
        except OSError:
            if written:
                self._torn = True
                os.ftruncate(descriptor, self._length)
                self._torn = False
            raise
        self._length += len(record)

    def _failed(self, error: OSError) -> None:
        self.failures += 1
        if self.failures == 1:
            logger.warning("%s: cannot be written (%s); rows are kept and tried again", self.path, error)
