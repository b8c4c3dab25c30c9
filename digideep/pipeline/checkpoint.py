"""CheckpointStore: checkpoints that are complete or absent, verified before use, and never older than announced.

Everything goes into `.tmp-<n>-<run>`, each file is synchronised, the manifest comes last, the directory is
synchronised, renamed to `checkpoint-<n>`, and the directory above is synchronised. `save` returns only then. Segments
that stand in the checkpoint before get a second name instead of a second copy. `reader.py` is the other half.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from digideep.errors import UsageError, one_line
from digideep.pipeline import retention
from digideep.pipeline.contents import Contents, gather
from digideep.pipeline.fsio import REAL, FileSystem, Stamp, remove_tree, storage_error, write_new, write_stamped
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
from digideep.pipeline.reader import CheckpointReader, NoCheckpointError
from digideep.pipeline.segments import KeptBuffers
from digideep.pipeline.standing import StandingSegments
from digideep.pipeline.verified import Checkpoint, Vouched

__all__ = ["Checkpoint", "CheckpointMeta", "CheckpointStore", "Component", "NewerFormatError", "NoCheckpointError"]

logger = logging.getLogger(__name__)


class CheckpointStore(CheckpointReader):
    """The checkpoints of one session.

    Args:
        directory: `checkpoints/` of the session; made by the first save of a session that has none, never again.
        session_id: stands in each manifest; one with another id is refused. Empty, for reading only: any id.
        run_id: distinguishes this process from others that wrote here before.
        fs: the file system.

    Whoever calls anything but `numbers`, `verify` and `load` holds the lock of the session. Nothing here is locked:
    one thread may use a store at a time.
    """

    def __init__(self, directory: Path | str, *, session_id: str, run_id: str, fs: FileSystem = REAL) -> None:
        super().__init__(directory, session_id=session_id, fs=fs)
        if not is_identifier(run_id):
            raise UsageError(one_line(f"run id: expected letters, digits, '_', '.' and '-', found {run_id!r}"))
        self.run_id = run_id
        self._buffers = KeptBuffers()
        self._segments = StandingSegments(fs)
        self._vouched: Vouched = {}  # of the newest checkpoint, which retention looks at after each save
        # Renamed, but an fsync after it failed: these may look complete now and be gone after a crash.
        self._uncertain: set[int] = set()
        self._home: tuple[int, int] | None = None  # device and inode of the session, once it is known
        self._is_founded = False  # whether this process has seen the directory

    def load(
        self, number: int | None = None, *, droppable: Collection[str] = (), vouched: Vouched | None = None
    ) -> Checkpoint:
        """Return a checkpoint as `CheckpointReader.load` does; what is whole in it will be linked, not written."""
        seen: Vouched = {} if vouched is None else vouched
        loaded = super().load(number, droppable=droppable, vouched=seen)
        self._segments.loaded(loaded, vouched=seen)
        self._buffers.expect(loaded.layout)
        self._vouched = seen
        self._is_founded = True
        return loaded

    # Writing

    def save(
        self, number: int, components: Sequence[Component], *, meta: CheckpointMeta, logs: Mapping[str, int]
    ) -> Path:
        """Commit a checkpoint and return its path: `stands`, `gather` and `commit` one after the other.

        Where a valid checkpoint of this number stands, nothing is written and its path is returned.
        """
        if self.stands(number):
            return self.path(number)
        return self.commit(number, self.gather(components), meta=meta, logs=logs)

    def stands(self, number: int) -> bool:
        """Whether a valid checkpoint of this number is there and surely durable, so that it need not be written.

        Raises:
            StorageError: the disk does not say.
        """
        try:
            if number in self._uncertain or not self._exists(self.path(number)) or not self._is_whole(number):
                return False
            try:
                # Committed by a process that may have been killed before its last fsync.
                self._fs.fsync_directory(self.directory)
            except OSError:
                self._uncertain.add(number)  # a second fsync might succeed and mean nothing
                raise
        except OSError as error:
            raise storage_error(error, self.path(number), fs=self._fs) from error
        return True

    def gather(self, components: Sequence[Component]) -> Contents:
        """Return what `commit` is to write, copied into buffers that the next call writes over.

        Args:
            components: the whole state.

        Raises:
            NonFiniteError: weights or statistics hold NaN or infinity.
            CodecError: a state holds what cannot be stored.
        """
        return gather(components, buffers=self._buffers, known=self._segments.usable())

    def commit(self, number: int, content: Contents, *, meta: CheckpointMeta, logs: Mapping[str, int]) -> Path:
        """Write what `gather` returned and return the path of the checkpoint; no crash can take it away after that.

        Args:
            number: cycles completed since the beginning; no valid checkpoint of this number may stand.
            content: of the last call of `gather`.
            meta: goes into the manifest.
            logs: relative file name to the length in bytes up to which this checkpoint knows it.

        Raises:
            StorageError: the disk; nothing is left of this save, and what stood before stands.
        """
        target = self.path(number)
        temporary = self.directory / f".tmp-{number}-{self.run_id}"
        needed = content.needed + self._segments.needed(content.links)
        check_logs(logs)
        try:
            self._prepare(temporary, needed=needed)
            stamps = self._fill(temporary, content, number=number, meta=meta, logs=logs)
            self._replace(number, temporary, target)
        except BaseException as error:
            self._clear(temporary)
            if isinstance(error, OSError):
                raise storage_error(error, target, needed=needed, fs=self._fs) from error
            raise
        self._vouched = stamps
        self._segments.committed(target)
        return target

    def make_room(self) -> None:
        """Touch the memory that the next save will copy into; for a thread that has time, after a load or a save."""
        self._buffers.touch()

    def _exists(self, path: Path) -> bool:
        try:
            self._fs.status(path)
        except FileNotFoundError:
            return False
        return True

    def _prepare(self, temporary: Path, *, needed: int) -> None:
        self._found()
        remove_tree(temporary, fs=self._fs)  # of an attempt whose cleaning up failed too
        free = self._fs.free_bytes(self.directory)
        if free is not None and free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.directory))
        self._fs.mkdir(temporary)

    def _found(self) -> None:
        """Make the directory where the session never had one; a session that is gone is not begun again.

        Raises:
            OSError: the session, or the directory, has gone since, or another one stands in its place.
        """
        status = self._fs.status(self.directory.parent)
        home = (status.st_dev, status.st_ino)
        self._home = self._home or home
        is_there = self._exists(self.directory)
        if home != self._home or (self._is_founded and not is_there):
            raise OSError(errno.ENOENT, "the directory of the session was removed or replaced", str(self.directory))
        if not is_there:
            self._fs.mkdir(self.directory)
            self._fs.fsync_directory(self.directory.parent)
        self._is_founded = True

    def _fill(
        self, temporary: Path, content: Contents, *, number: int, meta: CheckpointMeta, logs: Mapping[str, int]
    ) -> Vouched:
        """Write every file of a checkpoint, the manifest last, and return what this process can vouch for."""
        files, stamps = {}, dict[Stamp, str]()
        self._segments.begin()
        for name, known in content.links.items():
            files[name], stamp = self._segments.link(known, temporary / name)
            stamps[stamp] = files[name].sha256
        for name, chunks in content.files.items():
            files[name], stamp = write_stamped(temporary / name, chunks, fs=self._fs)
            stamps[stamp] = files[name].sha256
            if name in content.segments:
                self._segments.wrote(name, files[name], stamp)
        manifest = dump_manifest(
            number=number, session_id=self.session_id, meta=meta, files=files, components=content.components, logs=logs
        )
        # What the reader would refuse must not be announced.
        parse_manifest(manifest, number=number, session_id=self.session_id)
        write_new(temporary / MANIFEST_NAME, [manifest], fs=self._fs)
        self._fs.fsync_directory(temporary)
        return stamps

    def _replace(self, number: int, temporary: Path, target: Path) -> None:
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

    def _is_whole(self, number: int) -> bool:
        """Whether a checkpoint is whole; what this process has itself written or loaded is not read again."""
        return not self.verify(number, vouched=self._vouched)

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
                newest = next((number for number in sorted(kept, reverse=True) if self._is_whole(number)), None)
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
                newest = next((number for number in reversed(numbers) if self._is_whole(number)), -1)
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
