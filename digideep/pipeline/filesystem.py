"""The calls to the operating system that storage is made of, as an object that a test can put another in place of."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path
from typing import Protocol

__all__ = ["REAL", "FileSystem", "RealFileSystem"]

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileSystem(Protocol):
    """The calls that storage is made of; each raises OSError as the system call behind it does."""

    def mkdir(self, path: Path) -> None:
        """Make a directory that only its owner can enter."""
        ...

    def create(self, path: Path, *, mode: int) -> int:
        """Return a descriptor for writing a file that did not exist and is not reached through a link."""
        ...

    def write(self, descriptor: int, content: memoryview) -> int:
        """Return how many bytes were taken, which may be fewer than were given."""
        ...

    def fsync(self, descriptor: int) -> None:
        """Return when the content of the file is on the device."""
        ...

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        ...

    def fsync_directory(self, path: Path) -> None:
        """Return when the names in the directory are on the device."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or directory another name; an existing file of that name is replaced."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, which must not exist yet; a link at `source` is not followed."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove one name of a file."""
        ...

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def open_for_reading(self, path: Path) -> int:
        """Return a descriptor for reading; never follows a link and never waits for the other end of a FIFO."""
        ...

    def read_into(self, descriptor: int, target: memoryview) -> int:
        """Return how many bytes were read; 0 at the end of the file."""
        ...

    def status(self, path: Path) -> os.stat_result:
        """Return the status of the name itself, also where it is a link."""
        ...

    def open_status(self, descriptor: int) -> os.stat_result:
        """Return the status of an open file."""
        ...

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def free_bytes(self, path: Path) -> int | None:
        """Return the bytes that this user may still write, None where the file system does not say."""
        ...


class RealFileSystem:
    """The file system of this machine. It has no state; `REAL` is the one instance that everybody uses."""

    def mkdir(self, path: Path) -> None:
        """Make a directory that only its owner can enter."""
        os.mkdir(path, 0o700)

    def create(self, path: Path, *, mode: int) -> int:
        """Return a descriptor for writing a file that did not exist and is not reached through a link."""
        return os.open(path, _CREATE_FLAGS, mode)

    def write(self, descriptor: int, content: memoryview) -> int:
        """Return how many bytes were taken, which may be fewer than were given."""
        return os.write(descriptor, content)

    def fsync(self, descriptor: int) -> None:
        """Return when the content of the file is on the device."""
        if sys.platform == "darwin":  # plain fsync stops at the cache of the drive there
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def fsync_directory(self, path: Path) -> None:
        """Return when the names in the directory are on the device."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems have no such call for directories: their renames are synchronous.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or directory another name; an existing file of that name is replaced."""
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, which must not exist yet; a link at `source` is not followed."""
        os.link(source, target, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        """Remove one name of a file."""
        os.unlink(path)

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def open_for_reading(self, path: Path) -> int:
        """Return a descriptor for reading; never follows a link and never waits for the other end of a FIFO."""
        return os.open(path, _READ_FLAGS)

    def read_into(self, descriptor: int, target: memoryview) -> int:
        """Return how many bytes were read; 0 at the end of the file."""
        return os.readv(descriptor, [target])

    def status(self, path: Path) -> os.stat_result:
        """Return the status of the name itself, also where it is a link."""
        return os.lstat(path)

    def open_status(self, descriptor: int) -> os.stat_result:
        """Return the status of an open file."""
        return os.fstat(descriptor)

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def free_bytes(self, path: Path) -> int | None:
        """Return the bytes that this user may still write, None where the file system does not say."""
        answer = os.statvfs(path)
        return answer.f_bavail * answer.f_frsize if answer.f_blocks else None


REAL = RealFileSystem()
