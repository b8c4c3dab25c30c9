"""CheckpointStore: checkpoints that are complete or absent, verified before use, and never older than announced.

Writing: everything goes into `.tmp-<n>-<run>`, each file is synchronised, the manifest comes last, the directory is
synchronised, renamed to `checkpoint-<n>`, and the directory above is synchronised. `save` returns only then. Reading:
sizes and hashes of all files are compared while they are read, and nothing is returned before all of them agree.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from digideep.errors import CheckpointError, UsageError, one_line
from digideep.pipeline import retention
from digideep.pipeline.contents import Contents, gather
from digideep.pipeline.fsio import REAL, FileSystem, remove_tree, storage_error, write_new
from digideep.pipeline.layout import checkpoint_number
from digideep.pipeline.manifest import (
    MANIFEST_NAME,
    CheckpointMeta,
    Component,
    NewerFormatError,
    check_logs,
    dump_manifest,
    is_identifier,
    parse_manifest,
)
from digideep.pipeline.verified import Checkpoint, find_damage, read_checkpoint

__all__ = ["Checkpoint", "CheckpointMeta", "CheckpointStore", "Component", "NewerFormatError", "NoCheckpointError"]

logger = logging.getLogger(__name__)


class NoCheckpointError(CheckpointError):
    """No checkpoint was ever committed here."""


class CheckpointStore:
    """The checkpoints of one session.

    Args:
        directory: `checkpoints/` of the session; made by the first save.
        session_id: stands in each manifest; one with another id is refused. Empty, for reading only: any id.
        run_id: distinguishes this process from others that wrote here before.
        fs: the file system.

    Whoever calls anything but `numbers`, `verify` and `load` holds the lock of the session.
    """

    def __init__(self, directory: Path | str, *, session_id: str, run_id: str, fs: FileSystem = REAL) -> None:
        for what, text in (("session id", session_id or "any"), ("run id", run_id)):
            if not is_identifier(text):
                raise UsageError(one_line(f"{what}: expected letters, digits, '_', '.' and '-', found {text!r}"))
        self.directory = Path(directory)
        self.session_id = session_id
        self.run_id = run_id
        self._fs = fs
        self._buffers: dict[str, dict[str, np.ndarray]] = {}
        # Renamed, but the fsync after it failed: these may look complete now and be gone after a crash.
        self._uncertain: set[int] = set()

    def path(self, number: int) -> Path:
        """Return where checkpoint `number` stands or would stand."""
        return self.directory / f"checkpoint-{number}"

    def numbers(self) -> list[int]:
        """Return the numbers of all checkpoints, damaged ones too, ascending; entries with other names are ignored.

        Raises:
            CheckpointError: the directory cannot be read, or is a link.
        """
        try:
            return self._scan()
        except OSError as error:
            raise CheckpointError(one_line(f"{self.directory}: expected to list it, found {error.strerror}")) from error

    def _scan(self) -> list[int]:
        try:
            if not stat.S_ISDIR(self._fs.status(self.directory).st_mode):
                raise OSError(errno.ENOTDIR, "no directory, or only a link to one", str(self.directory))
            found = [checkpoint_number(name) for name in self._fs.listdir(self.directory)]
        except FileNotFoundError:
            return []
        return sorted(number for number in found if number is not None and self._is_directory(self.path(number)))

    def _is_directory(self, path: Path) -> bool:
        with contextlib.suppress(FileNotFoundError):  # removed since it was listed
            return stat.S_ISDIR(self._fs.status(path).st_mode)
        return False

    # Writing

    def save(
        self, number: int, components: Sequence[Component], *, meta: CheckpointMeta, logs: Mapping[str, int]
    ) -> Path:
        """Commit a checkpoint and return its path; after that no crash can take it away.

        Where a valid checkpoint of this number stands, nothing is written and its path is returned.

        Args:
            number: cycles completed since the beginning.
            components: the whole state; copied before anything is written.
            meta: goes into the manifest.
            logs: relative file name to the length in bytes up to which this checkpoint knows it.

        Raises:
            NonFiniteError: weights or statistics hold NaN or infinity; nothing was written.
            CodecError: a state holds what cannot be stored; nothing was written.
            StorageError: the disk; nothing is left of this save, and what stood before stands.
        """
        target = self.path(number)
        temporary = self.directory / f".tmp-{number}-{self.run_id}"
        content: Contents | None = None
        try:
            if number not in self._uncertain and self._exists(target) and not self.verify(number):
                # Committed by a process that may have been killed before its last fsync.
                self._fs.fsync_directory(self.directory)
                return target
            check_logs(logs)
            content = gather(components, buffers=self._buffers)
            self._prepare(temporary, needed=content.needed)
            self._fill(temporary, content, number=number, meta=meta, logs=logs)
            self._commit(number, temporary, target)
        except BaseException as error:
            if content is not None:
                self._clear(temporary)
            if isinstance(error, OSError):
                needed = None if content is None else content.needed
                raise storage_error(error, target, needed=needed, fs=self._fs) from error
            raise
        return target

    def _exists(self, path: Path) -> bool:
        try:
            self._fs.status(path)
        except FileNotFoundError:
            return False
        return True

    def _prepare(self, temporary: Path, *, needed: int) -> None:
        if not self._exists(self.directory):
            self._fs.mkdir(self.directory)
            self._fs.fsync_directory(self.directory.parent)
        remove_tree(temporary, fs=self._fs)  # of an attempt whose cleaning up failed too
        free = self._fs.free_bytes(self.directory)
        if free is not None and free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.directory))
        self._fs.mkdir(temporary)

    def _fill(
        self, temporary: Path, content: Contents, *, number: int, meta: CheckpointMeta, logs: Mapping[str, int]
    ) -> None:
        files = {name: write_new(temporary / name, chunks, fs=self._fs) for name, chunks in content.files.items()}
        manifest = dump_manifest(
            number=number, session_id=self.session_id, meta=meta, files=files, components=content.components, logs=logs
        )
        # What the reader would refuse must not be announced.
        parse_manifest(manifest, number=number, session_id=self.session_id)
        write_new(temporary / MANIFEST_NAME, [manifest], fs=self._fs)
        self._fs.fsync_directory(temporary)

    def _commit(self, number: int, temporary: Path, target: Path) -> None:
        damaged = None
        if self._exists(target):
            damaged = retention.move_aside(target, retention.TRASH, number=number, run_id=self.run_id, fs=self._fs)
        self._uncertain.add(number)
        try:
            self._fs.rename(temporary, target)
            self._fs.fsync_directory(self.directory)
        except BaseException:
            # Not announced, so it must not look complete to the next reader either. What stood here comes back: to the
            # next start a damaged checkpoint is an error, none at all would be a reason to begin again.
            with contextlib.suppress(OSError):
                self._fs.rename(target, temporary)
            if damaged is not None:
                with contextlib.suppress(OSError):
                    self._fs.rename(damaged, target)
            raise
        self._uncertain.discard(number)
        if damaged is not None:
            self._clear(damaged)

    def _clear(self, path: Path) -> None:
        """Remove what is of no use any more; a failure is told, and left to the next sweep."""
        try:
            remove_tree(path, fs=self._fs)
        except OSError as error:
            logger.warning("%s: expected to remove it, found %s; it stays for now", one_line(path), error.strerror)

    # Reading

    def verify(self, number: int) -> list[str]:
        """Return every reason why a checkpoint is damaged, none if it is whole. Reads only."""
        return find_damage(self.path(number), number=number, session_id=self.session_id, fs=self._fs)

    def load(self, number: int | None = None) -> Checkpoint:
        """Return a checkpoint, all of whose bytes were verified.

        Args:
            number: exactly this one. None: the newest that is whole; each damaged one above it gives one warning.

        Raises:
            NoCheckpointError: none was ever committed (only without a number).
            NewerFormatError: the newest was written by a later digideep; an older one would lose its work.
            CheckpointError: the one asked for, or every one, is missing or damaged; with each reason.
        """
        numbers = self.numbers()
        if number is not None:
            if number not in numbers:
                there = ", ".join(map(str, numbers)) or "none"
                raise CheckpointError(one_line(f"{self.path(number)}: expected a checkpoint, found only: {there}"))
            return self._read(number)
        rejected: dict[int, str] = {}
        while candidates := [candidate for candidate in numbers if candidate not in rejected]:
            try:
                return self._read(candidates[-1])
            except NewerFormatError:
                raise
            except CheckpointError as error:
                # Who plays holds no lock: training may have removed it meanwhile, and saved a later one.
                numbers = self.numbers()
                if candidates[-1] in numbers:
                    rejected[candidates[-1]] = str(error).removeprefix(f"{self.directory}{os.sep}")
                    logger.warning("damaged and passed over: %s", error)
        if not rejected:
            raise NoCheckpointError(one_line(f"{self.directory}: expected a checkpoint, found none was ever saved"))
        found = f"all {len(rejected)} damaged: " + "; ".join(rejected.values())
        raise CheckpointError(one_line(f"{self.directory}: expected a usable checkpoint, found {found}", limit=10_000))

    def _read(self, number: int) -> Checkpoint:
        """Read one checkpoint; errors begin with its path."""
        path = self.path(number)
        try:
            return read_checkpoint(path, number=number, session_id=self.session_id, fs=self._fs)
        except CheckpointError as error:
            raise type(error)(one_line(f"{path}: {error}")) from error

    # Leaving

    def supersede(self, number: int) -> list[str]:
        """Move every checkpoint later than `number` out of the way and return their new names, durably.

        They stay until the line that goes on from `number` has a checkpoint as late as they are.

        Raises:
            StorageError: some may have been moved.
        """
        moved: list[str] = []
        try:
            # From the end, so that a crash in between leaves a shorter line and not one with a gap.
            for later in [found for found in reversed(self._scan()) if found > number]:
                before = [name for name in self._fs.listdir(self.directory) if name.startswith(f".superseded-{later}-")]
                path = self._move_aside(later, retention.SUPERSEDED)
                # One of each number: a run that is sent back again and again does not fill the disk.
                self._remove(before)
                moved.append(path.name)
            if moved:
                self._fs.fsync_directory(self.directory)
        except OSError as error:
            raise storage_error(error, self.directory, action="move later checkpoints", fs=self._fs) from error
        return moved

    def retain(self, *, keep_last: int, keep_best: int | None, keep_every: int, best: Sequence[int]) -> list[int]:
        """Remove the checkpoints that nobody asked to keep and return their numbers.

        Nothing goes unless one of those that stay was read and is whole. Arguments as `retention.kept_numbers`.

        Raises:
            StorageError: what could not be removed is complete, or bears a name that the next sweep removes.
        """
        newest = None
        try:
            numbers = self._scan()
            kept = retention.kept_numbers(
                numbers, keep_last=keep_last, keep_best=keep_best, keep_every=keep_every, best=best
            )
            doomed = [number for number in numbers if number not in kept]
            stale = retention.passed_by(self._names(), newest=numbers[-1] if numbers else -1)
            if doomed or stale:
                newest = next((number for number in sorted(kept, reverse=True) if not self.verify(number)), None)
            if newest is None:
                if doomed:
                    logger.warning(
                        "%s: every checkpoint to keep is damaged; none was removed", one_line(self.directory)
                    )
                return []
            names = [self._move_aside(number, retention.TRASH).name for number in doomed]
            if doomed:
                self._fs.fsync_directory(self.directory)
            self._remove([*names, *retention.passed_by(stale, newest=newest)])
        except OSError as error:
            raise storage_error(error, self.directory, action="remove old checkpoints", fs=self._fs) from error
        return doomed

    def sweep(self) -> None:
        """Remove what killed processes left: unfinished saves, half-removed checkpoints, superseded ones passed by.

        Raises:
            StorageError: something could not be removed.
        """
        try:
            names = self._names()
            self._remove(retention.stale_names(names))
            numbers = self._scan()
            passed = retention.passed_by(names, newest=numbers[-1] if numbers else -1)
            if passed:  # only then is it worth the time to read a checkpoint
                newest = next((number for number in reversed(numbers) if not self.verify(number)), -1)
                self._remove(retention.passed_by(passed, newest=newest))
        except OSError as error:
            raise storage_error(error, self.directory, action="sweep", fs=self._fs) from error

    def _names(self) -> list[str]:
        return self._fs.listdir(self.directory) if self._exists(self.directory) else []

    def _move_aside(self, number: int, kind: str) -> Path:
        return retention.move_aside(self.path(number), kind, number=number, run_id=self.run_id, fs=self._fs)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            remove_tree(self.directory / name, fs=self._fs)
