"""What happens at a save: the state is copied, and while training goes on it is committed, announced and cleared up.

The thread that trains copies the state and notes how long the logs are. The writer's thread makes the logs durable,
writes the checkpoint and, once that is durable, announces it, removes older ones and rewrites the summary. All of this
happens there, and not when training comes to look: a cycle may take minutes, and a kill in the meantime would leave a
summary that does not know of a checkpoint which was announced. Training learns of a failure at its next look.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from digideep.errors import CheckpointError, StorageError
from digideep.pipeline import founding
from digideep.pipeline.checkpoint import CheckpointStore
from digideep.pipeline.exactness import device_name, thread_counts, versions
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.logs import SessionLogs
from digideep.pipeline.manifest import CheckpointMeta, Component
from digideep.pipeline.report import mean_return
from digideep.pipeline.summary import Summary
from digideep.pipeline.writer import Job, Writer
from digideep.types import StateDict
from digideep.utility.profiling import TimerStack, get_timer_root
from digideep.utility.timertree import graft

__all__ = ["FAILURES", "Origin", "Saver"]

logger = logging.getLogger(__name__)

FAILURES = 3  # in a row, after which a run ends rather than go on without checkpoints


class Origin(NamedTuple):
    """What a checkpoint says about where it was made."""

    params: Mapping[str, Any]
    device: str
    exactness: str


class _Save(NamedTuple):
    """A save that was handed over: what is left to do, whether that needs a copy only, and since when it goes on."""

    job: Job
    is_copy: bool
    begun_at: float


class Saver:
    """Saves the checkpoints of one session, one at a time.

    Args:
        paths: of the session.
        store: where checkpoints go.
        logs: whose lengths stand in each checkpoint.
        summary: follows each save.
        say: prints one of the documented lines; called from the writer's thread.
        level: how deep blocks are timed; see the profiler.
    """

    def __init__(
        self,
        paths: SessionPaths,
        *,
        store: CheckpointStore,
        logs: SessionLogs,
        summary: Summary,
        say: Callable[[str], None],
        level: int = -1,
    ) -> None:
        self._paths = paths
        self._store = store
        self._logs = logs
        self._summary = summary
        self._say = say
        self._level = level
        self._writer = Writer(level=-1 if level < 0 else max(0, level - 2))
        self._under_way: _Save | None = None
        self._blocked_s = 0.0  # by the save that is under way
        self._failures = 0
        self._versions: dict[str, str] | None = None
        self._saved_at = time.monotonic()

    @property
    def saved_at(self) -> float:
        """When the last save began that has not failed (monotonic); one that is under way counts."""
        return self._saved_at if self._under_way is None else self._under_way.begun_at

    def prepare(self) -> None:
        """Touch the memory that the first save will copy into, beside what the run does until then."""
        self.look(wait=True)
        self._writer.start(lambda stack: self._store.make_room())

    def begin(
        self,
        number: int,
        components: Mapping[str, StateDict],
        progress: Mapping[str, Any],
        *,
        origin: Origin,
        begun_at: float,
    ) -> None:
        """Copy the state and hand it over; what happens to it afterwards does not reach the checkpoint.

        A save that is under way is waited for. A failure is counted, now or at a later look.

        Args:
            number: cycles completed since the beginning.
            components: the state of every part but the logs.
            progress: epoch, frame, episode and what else the summary shows.
            origin: goes into the manifest.
            begun_at: since when training has been waiting (monotonic).

        Raises:
            StorageError: it was the third failure in a row.
            NonFiniteError: weights or statistics hold NaN or infinity.
        """
        self.look(wait=True)
        try:
            save = self._copy(number, components, progress, origin=origin, begun_at=begun_at)
        except StorageError as error:
            self._count(error)
            return
        self._hand_over(save)
        if not save.is_copy:
            self._writer.join()
            self._blocked_s = time.monotonic() - begun_at
            self.look(wait=True)

    def save(
        self,
        number: int,
        components: Mapping[str, StateDict],
        progress: Mapping[str, Any],
        *,
        origin: Origin,
        begun_at: float,
    ) -> None:
        """Commit a checkpoint and wait for it; arguments as `begin`.

        A save that is under way is waited for; where that failed, it is told, and this one decides.

        Raises:
            StorageError: it could not be made durable; what stood before stands.
            NonFiniteError: weights or statistics hold NaN or infinity.
        """
        error = self._end(wait=True)
        if isinstance(error, StorageError):
            self._tell(error)
        elif error is not None:
            raise error
        self._hand_over(self._copy(number, components, progress, origin=origin, begun_at=begun_at))
        self._writer.join()
        self._blocked_s = time.monotonic() - begun_at
        error = self._end(wait=True)
        if error is not None:
            raise error

    def look(self, *, wait: bool = False) -> None:
        """See whether a save has ended, and count it where it failed.

        Args:
            wait: for one that is under way.

        Raises:
            StorageError: it was the third failure in a row.
        """
        error = self._end(wait=wait)
        if isinstance(error, StorageError):
            self._count(error)
        elif error is not None:
            raise error

    def close(self) -> None:
        """Wait for a save that is under way; how it ended is told, and changes nothing more."""
        error = self._end(wait=True)
        if isinstance(error, StorageError):
            self._tell(error)
        elif error is not None:
            logger.error("a save has failed by a fault of ours", exc_info=error)

    def _hand_over(self, save: _Save) -> None:
        self._under_way = save
        self._writer.start(save.job)
        self._blocked_s = time.monotonic() - save.begun_at

    def _end(self, *, wait: bool) -> BaseException | None:
        """Take how a save ended, once, and return its error; None too where none has ended."""
        written = self._writer.take(wait=wait)
        save = self._under_way
        if written is None or save is None:
            return None if written is None else written.error
        self._under_way = None
        if self._level < 0 or self._level > 1:
            graft(get_timer_root(), "/save/write", written.timers)
        if written.error is None:
            self._failures = 0
            self._saved_at = save.begun_at
            self._logs.monitor.monitor("time/save_s", self._blocked_s)
        return written.error

    def _count(self, error: StorageError) -> None:
        self._tell(error)
        if self._failures >= FAILURES:
            raise error

    def _tell(self, error: StorageError) -> None:
        self._failures += 1
        logger.error("save %d of %d failed: %s", self._failures, FAILURES, error)

    # What is done in which thread

    def _copy(
        self,
        number: int,
        components: Mapping[str, StateDict],
        progress: Mapping[str, Any],
        *,
        origin: Origin,
        begun_at: float,
    ) -> _Save:
        """Return what the writer's thread has to do, with all that it needs as of now."""
        meta = self._describe(number, progress, origin=origin)
        keep = {key: origin.params["runner"][key] for key in ("keep_last", "keep_best", "keep_every")}
        train_return, clock_s = mean_return(self._logs.monitor), self._logs.clock_s
        lengths, timers = self._logs.lengths(), self._logs.timers()
        content = None
        if not self._store.stands(number):
            monitor, clocks = self._logs.state_dict()
            parts = [Component(name, name.partition(".")[0], 1, state) for name, state in components.items()]
            parts += [Component("monitor", "monitor", 1, monitor), Component("clocks", "clocks", 1, clocks)]
            content = self._store.gather(parts)

        def write(stack: TimerStack) -> None:
            path = self._store.path(number)
            if content is not None:
                with stack.block("logs"):
                    self._logs.sync()
                with stack.block("files"):
                    self._store.commit(number, content, meta=meta, logs=lengths)
            self._say(f"saved {path}")
            self._summary.update({**progress, "exactness": meta.exactness, "wall_s": clock_s})
            self._summary.record_checkpoint(number, epoch=meta.epoch, frame=meta.frame, train_return=train_return)
            with stack.block("retention"):
                self._follow(path.name, keep, timers)
            with stack.block("room"):
                self._store.make_room()

        return _Save(write, is_copy=content is None or content.is_copy, begun_at=begun_at)

    def _follow(self, name: str, keep: Mapping[str, Any], timers: Mapping[str, Any]) -> None:
        """Let older checkpoints go, and rewrite what says how the session stands."""
        with _only_told(name):
            self._store.retain(**keep, best=self._summary.best())
        with _only_told(name):
            self._summary.keep_only(self._store.numbers())
            self._summary.write(self._paths)
        self._logs.write_timers(timers)

    def _describe(self, number: int, progress: Mapping[str, Any], *, origin: Origin) -> CheckpointMeta:
        earlier = [entry["name"] for entry in self._summary.checkpoints if entry["name"] != f"checkpoint-{number}"]
        self._versions = self._versions or versions()
        return CheckpointMeta(
            epoch=progress["epoch"],
            cycle=number,
            frame=progress["frame"],
            episode=progress["episode"],
            exactness=origin.exactness,
            parent=earlier[-1] if earlier else None,
            versions=self._versions,
            threads=thread_counts(),
            device=device_name(origin.device),
            params_sha256=founding.params_hash(origin.params),
        )


@contextlib.contextmanager
def _only_told(name: str) -> Iterator[None]:
    """Tell of a failure after checkpoint `name`, which is durable and announced; the next save tries that again."""
    try:
        yield
    except (StorageError, CheckpointError) as error:
        logger.warning("%s stands, but what follows a save failed: %s", name, error)
