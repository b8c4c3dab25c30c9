"""Reading the checkpoints of a session: which ones there are, whether they are whole, and the one to go on from."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from digideep.errors import CheckpointError, UsageError, one_line
from digideep.pipeline.fsio import REAL, FileSystem, kind_of
from digideep.pipeline.layout import checkpoint_number
from digideep.pipeline.manifest import NewerFormatError, is_identifier
from digideep.pipeline.spoilt import advice, first_that_may_go, spoilt_memories
from digideep.pipeline.verified import Checkpoint, Vouched, find_damage, read_checkpoint

__all__ = ["CheckpointReader", "NoCheckpointError"]

logger = logging.getLogger(__name__)


class NoCheckpointError(CheckpointError):
    """No checkpoint was ever committed here."""


class CheckpointReader:
    """The checkpoints of one session, to be looked at; needs no lock.

    Args:
        directory: `checkpoints/` of the session.
        session_id: what each manifest has to say; empty: any id.
        fs: the file system.
    """

    def __init__(self, directory: Path | str, *, session_id: str, fs: FileSystem = REAL) -> None:
        if not is_identifier(session_id or "any"):
            found = f"found {session_id!r}"
            raise UsageError(one_line(f"session id: expected letters, digits, '_', '.' and '-', {found}"))
        self.directory = Path(directory)
        self.session_id = session_id
        self._fs = fs

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

    def impostors(self) -> list[tuple[str, str]]:
        """Return (name, kind) of every entry that has the name of a checkpoint and is no directory.

        Raises:
            CheckpointError: the directory cannot be read.
        """
        numbers, found = set(self.numbers()), []
        with contextlib.suppress(FileNotFoundError):  # nothing was ever saved
            for name in self._fs.listdir(self.directory):
                number = checkpoint_number(name)
                if number is not None and number not in numbers:
                    found.append((name, kind_of(self._fs.status(self.path(number)).st_mode)))
        return found

    def verify(self, number: int, *, vouched: Vouched | None = None) -> list[str]:
        """Return every reason why a checkpoint is damaged, none if it is whole. Reads only.

        Args:
            number: which one.
            vouched: files that were read before and need not be read again; those found whole are added.
        """
        return find_damage(self.path(number), number=number, session_id=self.session_id, vouched=vouched, fs=self._fs)

    def load(
        self, number: int | None = None, *, droppable: Collection[str] = (), vouched: Vouched | None = None
    ) -> Checkpoint:
        """Return a checkpoint, all of whose bytes were verified.

        Args:
            number: exactly this one. None: the newest that is whole; each damaged one above it gives one warning.
            droppable: components that are left out, with one warning, where nothing else is damaged.
            vouched: segments that were read before and need not be again, for one who looks at many checkpoints.

        Raises:
            NoCheckpointError: none was ever committed (only without a number).
            NewerFormatError: the newest was written by a later digideep; an older one would lose its work.
            CheckpointError: the one asked for, or every one, is missing or damaged; with each reason.
        """
        seen: Vouched = {} if vouched is None else vouched
        if number is not None:
            return self._load_named(number, droppable=droppable, vouched=seen)
        numbers = self.numbers()
        rejected: dict[int, str] = {}
        while candidates := [candidate for candidate in numbers if candidate not in rejected]:
            try:
                return self._read(candidates[-1], vouched=seen)
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
        try:
            return self._read_without(rejected, droppable=droppable, vouched=seen)
        except CheckpointError as error:
            found = f"all {len(rejected)} damaged: {error}"
            text = one_line(f"{self.directory}: expected a usable checkpoint, found {found}", limit=10_000)
            raise CheckpointError(text) from error

    def _load_named(self, number: int, *, droppable: Collection[str], vouched: Vouched) -> Checkpoint:
        if number not in (numbers := self.numbers()):
            there = ", ".join(map(str, numbers)) or "none"
            raise CheckpointError(one_line(f"{self.path(number)}: expected a checkpoint, found only: {there}"))
        try:
            return self._read(number, vouched=vouched)
        except NewerFormatError:
            raise
        except CheckpointError as error:
            return self._read_without({number: str(error)}, droppable=droppable, vouched=vouched)

    def _read(self, number: int, *, without: Collection[str] = (), vouched: Vouched | None = None) -> Checkpoint:
        """Read one checkpoint; errors begin with its path."""
        path = self.path(number)
        try:
            return read_checkpoint(
                path, number=number, session_id=self.session_id, without=without, vouched=vouched, fs=self._fs
            )
        except CheckpointError as error:
            raise type(error)(one_line(f"{path}: {error}")) from error

    def _read_without(
        self, rejected: Mapping[int, str], *, droppable: Collection[str], vouched: Vouched | None
    ) -> Checkpoint:
        """Read the latest of the damaged checkpoints that is whole apart from memories which may go.

        Raises:
            CheckpointError: none is; with each reason, and what would let the run go on.
        """
        paths = {number: self.path(number) for number in rejected}
        spoilt = list(spoilt_memories(paths, session_id=self.session_id, vouched=vouched, fs=self._fs))
        chosen = first_that_may_go(spoilt, droppable)
        if chosen is not None:
            loaded = self._read(chosen.number, without=tuple(chosen.reasons), vouched=vouched)
            found = " and ".join(chosen.reasons.values())
            logger.warning("%s: goes on without what was in %s", loaded.path, one_line(found, limit=10_000))
            return loaded
        reasons = [*rejected.values(), *([advice(spoilt[0])] if spoilt else [])]
        raise CheckpointError("; ".join(reasons))
