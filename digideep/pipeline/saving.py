"""What happens at a save: the checkpoint is committed and announced, older ones go, the summary follows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from digideep.errors import StorageError
from digideep.pipeline import founding
from digideep.pipeline.checkpoint import CheckpointStore
from digideep.pipeline.exactness import device_name, thread_counts, versions
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.logs import SessionLogs
from digideep.pipeline.manifest import CheckpointMeta, Component
from digideep.pipeline.report import mean_return
from digideep.pipeline.summary import Summary
from digideep.types import StateDict

__all__ = ["Origin", "Saver"]

logger = logging.getLogger(__name__)


class Origin(NamedTuple):
    """What a checkpoint says about where it was made."""

    params: Mapping[str, Any]
    device: str
    exactness: str


class Saver:
    """Commits the checkpoints of one session.

    Args:
        paths: of the session.
        store: where checkpoints go.
        logs: whose lengths stand in each checkpoint.
        summary: follows each save.
        say: prints one of the documented lines.
    """

    def __init__(
        self,
        paths: SessionPaths,
        *,
        store: CheckpointStore,
        logs: SessionLogs,
        summary: Summary,
        say: Callable[[str], None],
    ) -> None:
        self._paths = paths
        self._store = store
        self._logs = logs
        self._summary = summary
        self._say = say

    def save(
        self, number: int, components: Mapping[str, StateDict], progress: Mapping[str, Any], *, origin: Origin
    ) -> None:
        """Commit a checkpoint, announce it, and let older ones go.

        Args:
            number: cycles completed since the beginning.
            components: the state of every part but the logs.
            progress: epoch, frame, episode and what else the summary shows.
            origin: goes into the manifest.

        Raises:
            StorageError: it could not be made durable; what stood before stands.
            NonFiniteError: weights or statistics hold NaN or infinity.
        """
        began = time.monotonic()
        monitor, clocks = self._logs.state_dict()
        parts = [Component(name, name.partition(".")[0], 1, state) for name, state in components.items()]
        parts += [Component("monitor", "monitor", 1, monitor), Component("clocks", "clocks", 1, clocks)]
        meta = self._describe(number, progress, origin=origin)
        path = self._store.save(number, parts, meta=meta, logs=self._logs.lengths())
        self._say(f"saved {path}")
        self._logs.monitor.monitor("time/save_s", time.monotonic() - began)
        self._summary.update({**progress, "exactness": meta.exactness, "wall_s": self._logs.clock_s})
        self._summary.record_checkpoint(
            number, epoch=meta.epoch, frame=meta.frame, train_return=mean_return(self._logs.monitor)
        )
        try:
            self._let_go(origin.params["runner"])
            self._summary.write(self._paths)
        except StorageError as error:
            # The checkpoint is durable and announced: what follows it is tried again at the next save.
            logger.warning("%s stands, but what follows a save failed: %s", path.name, error)

    def _describe(self, number: int, progress: Mapping[str, Any], *, origin: Origin) -> CheckpointMeta:
        earlier = [entry["name"] for entry in self._summary.checkpoints if entry["name"] != f"checkpoint-{number}"]
        return CheckpointMeta(
            epoch=progress["epoch"],
            cycle=number,
            frame=progress["frame"],
            episode=progress["episode"],
            exactness=origin.exactness,
            parent=earlier[-1] if earlier else None,
            versions=versions(),
            threads=thread_counts(),
            device=device_name(origin.device),
            params_sha256=founding.params_hash(origin.params),
        )

    def _let_go(self, runner: Mapping[str, Any]) -> None:
        """Remove the checkpoints that nobody asked to keep."""
        keep = {key: runner[key] for key in ("keep_last", "keep_best", "keep_every")}
        self._store.retain(**keep, best=self._summary.best())
        self._summary.keep_only(self._store.numbers())
