"""The session: a directory, and the resources that live exactly as long as it is open.

Entering makes or locks the directory, then opens logs, TensorBoard and the thread that watches the machine, in this
order; leaving closes them in the reverse order, even after a failure. Everything durable goes through here.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from digideep.errors import CheckpointError, DigideepError, SessionDoneError, UsageError
from digideep.pipeline import records, stdout
from digideep.pipeline.checkpoint import Checkpoint, CheckpointStore, NoCheckpointError
from digideep.pipeline.exactness import EXACT, device_name, differences, lessened, thread_counts, versions
from digideep.pipeline.experiment import Experiment
from digideep.pipeline.layout import SessionPaths, new_directory, new_session_directory, resolve_checkpoint, session_root
from digideep.pipeline.locks import SessionLock, clear_done, is_done, mark_done
from digideep.pipeline.logs import SessionLogs
from digideep.pipeline.manifest import CheckpointMeta, Component
from digideep.pipeline.options import Mode, SessionOptions
from digideep.pipeline.signals import StopRequest
from digideep.spec import spec_to_plain
from digideep.types import EngineEvents, StateDict
from digideep.utility.logging import LiveLine, open_report
from digideep.utility.tensorboard import serve

if TYPE_CHECKING:
    from digideep.spec import EnvSpec
    from digideep.types import Engine

__all__ = ["Session"]

logger = logging.getLogger(__name__)


class Session:
    """One session, opened for what its options say.

    Args:
        root_path: directory of the digideep package.
        options: what to do; None reads the command line.
        requests: the signal handlers that stand already; None: without handlers.

    Attributes:
        paths: where everything lies.
        checkpoint: what is resumed or played; None at the beginning of a session.
        allowed: packages that the params tree may name.
        evaluation_directory: where a play puts its results.
    """

    def __init__(
        self, root_path: Path | str, options: SessionOptions | None = None, *, requests: StopRequest | None = None
    ) -> None:
        if options is None:
            from digideep.pipeline.cli import parse_session

            options = parse_session(sys.argv[1:])
        self.root_path = Path(root_path)
        self.options = options
        self.requests = requests or StopRequest()
        self.experiment: Experiment | None = None
        self.checkpoint: Checkpoint | None = None
        self.is_new = options.load_checkpoint is None
        self.exactness = EXACT
        self.live = LiveLine()
        self._stack = contextlib.ExitStack()
        self._run: records.Run | None = None

    # Opening and closing

    def take(self, experiment: Experiment) -> None:
        """Take over the parameters, before the session is entered."""
        self.experiment = experiment
        self.allowed = experiment.allowed
        self.seed = int(experiment.params["runner"]["seed"])
        self.exactness = experiment.exactness

    def __enter__(self) -> Self:
        if self.experiment is None:
            raise DigideepError("session: expected parameters before it is entered, found none; call take() first")
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self._open_directory(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    @property
    def _writes(self) -> bool:
        """Whether this start changes the session itself, rather than only play from it."""
        return self.is_new or self.options.mode is not Mode.PLAY

    def _open_directory(self, stack: contextlib.ExitStack) -> None:
        options = self.options
        if options.dry_run:
            scratch = Path(tempfile.mkdtemp(prefix="digideep-dry-run-"))
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        if self.is_new:
            root = scratch if options.dry_run else session_root(options.session_path)
            self.paths = SessionPaths(new_session_directory(root, options.session_name))
            stack.push(self._remove_if_unused)
        else:
            self.paths, self._number = resolve_checkpoint(options.load_checkpoint or "")
        if self._writes:
            stack.enter_context(SessionLock(self.paths.root, wait_s=options.lock_wait_s or 0.0))
        if not self.is_new and options.mode is Mode.RESUME:
            self._refuse_if_done()
        self._announce(scratch if options.dry_run else None)
        report = self.paths.report_log if self._writes else self.evaluation_directory / self.paths.report_log.name
        self._report = stack.enter_context(contextlib.closing(open_report(report, options.log_level)))
        self._open_logs(stack)

    def _open_logs(self, stack: contextlib.ExitStack) -> None:
        options = self.options
        self.logs = SessionLogs(self.paths, cpu=options.monitor_cpu, gpu=options.monitor_gpu)
        self.monitor = self.logs.monitor
        self.store = CheckpointStore(
            self.paths.checkpoints, session_id=self._identify(), run_id=uuid.uuid4().hex[:12]
        )
        if not self.is_new:
            self._read_checkpoint()
        if self._writes:
            self.summary = records.Summary(self.paths, is_new=self.is_new)
            self._run = records.Run(self.paths, options=options)
            self.logs.start()
            stack.callback(self.logs.stop)
            if options.tensorboard:
                stack.callback(serve(self.paths.tensorboard, options.tensorboard_host).close)

    def _identify(self) -> str:
        if self.is_new:
            assert self.experiment is not None
            return records.create(self.paths, self.experiment, self.options)
        return records.session_id(self.paths)

    def _announce(self, scratch: Path | None) -> None:
        """Print the first line, which says where the results of this start go."""
        options = self.options
        if options.mode is not Mode.PLAY:
            self.say(f"session: {self.paths.root}" if scratch is None else "session: none (dry run)")
            return
        if scratch is not None and not self.is_new:
            self.evaluation_directory = scratch
        elif options.output is not None:
            self.evaluation_directory = Path(options.output).expanduser().absolute()
            self.evaluation_directory.mkdir(parents=True, exist_ok=True)
        else:
            self.paths.evaluations.mkdir(exist_ok=True)
            self.evaluation_directory = new_directory(self.paths.evaluations, "evaluation")
        self.say("evaluation: none (dry run)" if scratch else f"evaluation: {self.evaluation_directory}")

    def _refuse_if_done(self) -> None:
        assert self.experiment is not None
        raised = bool(self.experiment.changes) or self._number is not None or self.options.checkpoint_named
        if is_done(self.paths.root) and not raised:
            raise SessionDoneError(
                f"{self.paths.root}: expected a session with something left to do, found it done; "
                f"raise its goal (--set /runner/n_epochs=N) or play it (--play)"
            )

    def _remove_if_unused(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave nothing behind where the user's input was wrong."""
        if isinstance(error, UsageError) and not self.paths.checkpoints.exists():
            shutil.rmtree(self.paths.root, ignore_errors=True)

    def _read_checkpoint(self) -> None:
        options = self.options
        number = self._number if self._number is not None else self._numbered(options.checkpoint)
        try:
            self.checkpoint = self.store.load(number)
        except NoCheckpointError:
            if options.mode is not Mode.RESUME:
                raise
            logger.warning("%s has no checkpoint yet: it starts anew", self.paths.name)
        if options.mode is Mode.RESUME:
            self._continue_from(number)

    def _numbered(self, name: str | int) -> int | None:
        if name == "last":
            return None
        if name == "best":
            best = records.best_checkpoint(self.paths)
            if best is None:
                raise CheckpointError(f"{self.paths.root}: expected a best checkpoint, found none with a score")
            return best
        return int(name)

    def _continue_from(self, number: int | None) -> None:
        """Make directory and logs what they were when the checkpoint was saved."""
        checkpoint = self.checkpoint
        clear_done(self.paths.root)
        self.store.sweep()
        if checkpoint is not None:
            moved = self.store.supersede(checkpoint.number)
            if moved:
                logger.warning("later checkpoints were moved aside: %s", ", ".join(moved))
            components = checkpoint.components
            self.logs.load_state_dict(components["monitor"], components["clocks"])
            logger.info("resumes from %s, frame %d", checkpoint.path.name, checkpoint.manifest["frame"])
        self.logs.cut({} if checkpoint is None else checkpoint.manifest["logs"])

    # What a run says and asks

    def say(self, line: str) -> None:
        """Print one of the documented lines on standard output."""
        if not self.options.from_python:
            stdout.say(line)

    def set_meta(self, *, epoch: int, frame: int, episode: int) -> None:
        """Say where the run stands; rows of every log carry it."""
        self.monitor.set_meta(epoch=epoch, frame=frame, episode=episode)

    def log_epoch(self) -> Mapping[str, Any]:
        """Write the rows of one epoch and return that of the metrics."""
        return self.logs.log_epoch()

    def process_age_s(self) -> float:
        """Return the seconds since this process began to work on the session."""
        return time.monotonic() - self.requests.created

    def count_faults(self, events: EngineEvents) -> None:
        """Add restarts and errors of environments to the summary."""
        self.summary.add_faults(restarts=events.restarts, env_errors=events.env_errors)

    def env_spec_plain(self, spec: EnvSpec) -> dict[str, Any]:
        """Return what the environment shows and takes, so that a policy can be rebuilt without the environment."""
        return spec_to_plain(spec)

    def initial_components(self, path: str) -> Mapping[str, StateDict]:
        """Return the components of the checkpoint that `init_from` names."""
        return records.foreign_checkpoint(path).components

    def started(self, engine: Engine) -> None:
        """Record, once every part stands, what this start has changed and chosen."""
        assert self.experiment is not None
        self._device = engine.chosen.get("device", "cpu")
        if self.checkpoint is not None:
            found = differences(self.checkpoint.manifest, device=self._device)
            for sentence in found.values():
                logger.warning("resume is not exact: %s", sentence)
            before = lessened(self.checkpoint.manifest["exactness"], set(found))
            self.exactness = before if self.exactness == EXACT else lessened(before, {"code"})
        if engine.exactness != EXACT:
            logger.warning("%s", engine.exactness)
        if self._writes:
            records.append_changes(self.paths, self.experiment, chosen=engine.chosen, at=self.monitor.meta)
        if self._run is not None:
            self._run.chosen(device=self._device, threads=thread_counts(), versions=versions())

    # Saving

    def save(
        self, number: int, components: Mapping[str, StateDict], progress: Mapping[str, Any], *, exactness: str
    ) -> None:
        """Commit a checkpoint, announce it, and let older ones go.

        Args:
            number: cycles completed since the beginning.
            components: the state of every part but the logs.
            progress: epoch, frame, episode and what else the summary shows.
            exactness: of the engine.

        Raises:
            StorageError: it could not be made durable; what stood before stands.
            NonFiniteError: weights or statistics hold NaN or infinity.
        """
        assert self.experiment is not None
        if self.options.dry_run:
            return
        began = time.monotonic()
        monitor, clocks = self.logs.state_dict()
        parts = [Component(name, name.partition(".")[0], 1, state) for name, state in components.items()]
        parts += [Component("monitor", "monitor", 1, monitor), Component("clocks", "clocks", 1, clocks)]
        meta = CheckpointMeta(
            epoch=progress["epoch"],
            cycle=number,
            frame=progress["frame"],
            episode=progress["episode"],
            exactness=self.exactness if exactness == EXACT else lessened(self.exactness, {"environment"}),
            parent=self.summary.newest(below=number),
            versions=versions(),
            threads=thread_counts(),
            device=device_name(self._device),
            params_sha256=records.params_hash(self.experiment.params),
        )
        path = self.store.save(number, parts, meta=meta, logs=self.logs.lengths())
        self.say(f"saved {path}")
        self.monitor.monitor("time/save_s", time.monotonic() - began)
        runner = self.experiment.params["runner"]
        score = records.score(progress, self.monitor)
        best = self.summary.checkpoint_saved(path.name, progress, score=score)
        removed = self.store.retain(
            keep_last=runner["keep_last"], keep_best=runner["keep_best"], keep_every=runner["keep_every"], best=best
        )
        self.summary.forget(removed)
        self.summary.publish(state="running", exactness=meta.exactness, wall_s=self.logs.clock_s)
        self.logs.write_timers(self._timer_metadata())

    def mark_as_done(self, reason: str) -> None:
        """Record that the goal is reached; the final checkpoint is durable by now."""
        if not self.options.dry_run:
            mark_done(self.paths.root, reason)

    def finish(self, exit_code: int, reason: str) -> None:
        """Write how this start ended: summary, timers, and the run's entry in meta.json."""
        if not self._writes or self._run is None:
            return
        state = {0: "done", 75: "stopped"}.get(exit_code, "stopped" if exit_code > 128 else "failed")
        if exit_code == 0 and not is_done(self.paths.root):
            state = "stopped"
        self.summary.publish(state=state, exit_code=exit_code, reason=reason, wall_s=self.logs.clock_s)
        self.logs.write_timers(self._timer_metadata())
        self._run.end(exit_code=exit_code, reason=reason)

    def abandon(self, code: int, *, frame: int) -> None:
        """Say, from the watchdog's thread, what stands and what is lost; the process ends right after."""
        newest = self.summary.newest_entry()
        stands = "no checkpoint" if newest is None else newest["name"]
        lost = frame if newest is None else frame - newest["frame"]
        self.live.clear()
        logger.warning("stopped inside a cycle: %s stands, %d frames will be repeated", stands, lost)
        # The disk may be what hangs: it gets a moment, in a thread that dies with the process.
        writer = threading.Thread(target=self.finish, args=(code, "stopped inside a cycle"), daemon=True)
        writer.start()
        writer.join(0.5)

    def _timer_metadata(self) -> dict[str, Any]:
        return {"command_line": list(self.options.command_line), "versions": versions(), "session": self.paths.name}
