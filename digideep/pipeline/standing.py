"""Files of segments that stand in a checkpoint already, and how they get into the next one: by a second name."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from digideep.errors import one_line
from digideep.pipeline.fsio import FileSystem, HashingReader, Stamp, Written, open_regular, write_stamped
from digideep.pipeline.segments import Known
from digideep.pipeline.verified import Checkpoint, Vouched

__all__ = ["StandingSegments"]

logger = logging.getLogger(__name__)

# What a file system answers that has no hard links, or none between these two places.
_NO_LINKS = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_PIECE_BYTES = 1 << 20

T = TypeVar("T")


class StandingSegments:
    """The segments of the checkpoint that this process has loaded or committed last.

    Args:
        fs: the file system.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._known: dict[str, Known] = {}
        self._next: dict[str, Known] = {}  # of the checkpoint that is being written
        self._can_link = True

    def usable(self) -> Mapping[str, Known]:
        """Return the known files by name; none where somebody has removed their checkpoint."""
        for known in self._known.values():
            try:
                self._fs.status(known.path.parent)
            except OSError:
                self._known = {}
            break
        return self._known

    def loaded(self, checkpoint: Checkpoint, *, vouched: Vouched) -> None:
        """Take over the segments of a checkpoint that was verified; `vouched` says by which stamps they were read."""
        self._known = {}
        entries = checkpoint.manifest["components"].items()
        own = [(name, file) for name, entry in entries for file in entry["files"] if name not in checkpoint.dropped]
        for name, file in own:
            path, record = checkpoint.path / file, Written(**checkpoint.manifest["files"][file])
            if file == f"{name}.safetensors":
                continue
            with contextlib.suppress(OSError):  # it was there a moment ago; without it the segment is written again
                stamp = Stamp.of(self._fs.status(path))
                if vouched.get(stamp) == record.sha256:
                    # Whoever copied this session here need not have synchronised it.
                    self._known[file] = Known(path, record, stamp, is_durable=False)

    def needed(self, links: Mapping[str, Known]) -> int:
        """Return the bytes that the disk needs for these files: none, unless it is known to have no links."""
        return 0 if self._can_link else sum(known.record.bytes for known in links.values())

    def begin(self) -> None:
        """Forget what an attempt that failed has written."""
        self._next = {}

    def wrote(self, name: str, record: Written, stamp: Stamp) -> None:
        """Note a segment that was written for the checkpoint under way."""
        self._next[name] = Known(Path(name), record, stamp, is_durable=True)

    def committed(self, path: Path) -> None:
        """Take over what was linked and written: the checkpoint under way stands now, at `path`."""
        self._known = {name: known._replace(path=path / name) for name, known in self._next.items()}
        self._next = {}

    def link(self, known: Known, target: Path) -> tuple[Written, Stamp]:
        """Give a known file a second name, or copy it where there are no links; return what it holds and its stamp.

        Raises:
            OSError: as it came; or EIO where the file is not any more what it was. The next save writes it again.
        """
        stamp = self._link(known, target) if self._can_link else None
        if stamp is None:
            stamp = self._copy(known, target)
        self.wrote(target.name, known.record, stamp)
        return known.record, stamp

    def _link(self, known: Known, target: Path) -> Stamp | None:
        """Return None where there are no links."""
        if not known.is_durable:
            self._checked(known, lambda: self._synchronise(known))
        try:
            self._fs.link(known.path, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                self._forget_changed()
                raise
            if error.errno != errno.EMLINK:  # that is the answer for one file only
                self._can_link = False
                logger.info("%s: no hard links here (%s); segments are copied", one_line(target.parent), error.strerror)
            return None
        stamp = Stamp.of(self._fs.status(target))
        if stamp != known.stamp:
            self._forget_changed()
            raise OSError(errno.EIO, "it was changed since it was written or read", str(known.path))
        return stamp

    def _synchronise(self, known: Known) -> None:
        descriptor, _ = open_regular(known.path, fs=self._fs)
        try:
            self._fs.fsync(descriptor)
        finally:
            self._fs.close(descriptor)

    def _copy(self, known: Known, target: Path) -> Stamp:
        def copy() -> Stamp:
            descriptor, _ = open_regular(known.path, fs=self._fs)
            try:
                reader = HashingReader(descriptor, fs=self._fs)
                pieces = iter(lambda: reader.read(_PIECE_BYTES), b"")
                record, stamp = write_stamped(target, pieces, fs=self._fs)
            finally:
                self._fs.close(descriptor)
            if record != known.record:
                raise OSError(errno.EIO, "it was changed since it was written or read", str(known.path))
            return stamp

        return self._checked(known, copy)

    def _checked(self, known: Known, action: Callable[[], T]) -> T:
        """Return what `action` does; where it fails, the segment is written from memory the next time."""
        try:
            return action()
        except OSError:
            self._known.pop(known.path.name, None)
            self._forget_changed()
            raise

    def _forget_changed(self) -> None:
        """Forget every file that is not any more what it was."""
        self._known = {name: known for name, known in self._known.items() if self._is_unchanged(known)}

    def _is_unchanged(self, known: Known) -> bool:
        try:
            return Stamp.of(self._fs.status(known.path)) == known.stamp
        except OSError:
            return False
