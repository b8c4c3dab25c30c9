"""The session: a directory, and the resources that live exactly as long as it is open.

Entering makes or locks the directory, then opens logs, TensorBoard and the thread that watches the machine, in this
order; leaving closes them in the reverse order, even after a failure. Everything durable goes through here.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from digideep.errors import (
    EXIT_PREEMPTED,
    DigideepError,
    SessionDoneError,
    SessionLockedError,
    one_line,
)
from digideep.pipeline import founding, meta, resuming, stdout
from digideep.pipeline.checkpoint import Checkpoint, CheckpointStore, NoCheckpointError
from digideep.pipeline.destination import REFUSALS, Removal, find_destination, remove_tree
from digideep.pipeline.exactness import EXACT, Warner, device_name, differences, lessened, thread_counts, versions
from digideep.pipeline.experiment import Experiment
from digideep.pipeline.failure import keep_crash, recorded_failure
from digideep.pipeline.fsio import sweep_temporaries
from digideep.pipeline.layout import (
    SessionPaths,
    is_default_root,
    new_session_directory,
    read_meta,
    resolve_checkpoint,
    session_root,
)
from digideep.pipeline.locks import SessionLock, clear_done, is_done, mark_done
from digideep.pipeline.logs import SessionLogs
from digideep.pipeline.options import Mode, SessionOptions
from digideep.pipeline.places import missing_directories
from digideep.pipeline.saving import Origin, Saver
from digideep.pipeline.signals import StopRequest
from digideep.pipeline.supervising import supervise
from digideep.types import EngineEvents, StateDict
from digideep.utility.logging import open_report
from digideep.utility.profiling import set_profiler_level
from digideep.utility.tensorboard import TensorBoardServer, serve

if TYPE_CHECKING:
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
            from digideep.pipeline.cli import options_of_command_line

            options = options_of_command_line()
        self.root_path = Path(root_path)
        self.options = options
        self.requests = requests or StopRequest()
        self.supervision = supervise(self)
        self.experiment: Experiment | None = None
        self.checkpoint: Checkpoint | None = None
        self.is_new = options.load_checkpoint is None
        self.exactness, self._warner = EXACT, Warner()
        self._stack = contextlib.ExitStack()
        self._scratch: Path | None = None  # where a dry run lives
        self._removal = Removal(None)
        self._founded = founding.Founded()  # what this start has made and may not be on the disk yet
        self._superseded: str | None = None  # name of the code that this start has replaced
        self._unsaid: list[str] | None = []  # lines that wait until what they name is sure to stay
        self._run: int | None = None  # index of this process among the runs of meta.json

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
            try:
                self._open_directory(stack)
            except BaseException as error:
                self._announce_what_stays(error)
                raise
            self._stack, self._removal.is_whole = stack.pop_all(), True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._announce_what_stays(error)
        self._stack.__exit__(kind, error, traceback)

    @property
    def _writes(self) -> bool:
        """Whether this start changes the session itself, rather than only play from it."""
        return self.is_new or (self.options.mode is not Mode.PLAY and not self.options.dry_run)

    def _open_directory(self, stack: contextlib.ExitStack) -> None:
        options = self.options
        if options.dry_run:
            self._scratch = Path(tempfile.mkdtemp(prefix="digideep-dry-run-"))
            stack.callback(remove_tree, self._scratch)
        if self.is_new:
            around = () if self._scratch else missing_directories(session_root(options.session_path, create=False))
            self._removal = stack.push(Removal(None, around=around, is_whole=False))
            root = self._scratch or session_root(options.session_path)
            self.paths = SessionPaths(new_session_directory(root, options.session_name, datetime.now(UTC)))
            self._removal.directory, self._removal.unless = self.paths.root, self.paths.checkpoints
        else:
            self.paths, self._number = resolve_checkpoint(options.load_checkpoint or "")
        if self._writes:
            wait_s, asked = options.lock_wait_s or 0.0, self.requests
            self._lock = SessionLock(self.paths.root, wait_s=wait_s, stop_signal=lambda: asked.stop_signal)
            stack.enter_context(self._lock)
            stack.push(self._removal)  # before the lock is released, for which another start may wait
            sweep_temporaries(self.paths.root)
            resuming.check_logs(self.paths)  # before any of them is opened
        if not self.is_new and options.mode is Mode.RESUME:
            named = self._number if self._number is not None else options.checkpoint
            resuming.refuse_if_done(
                self.paths, named=named, is_changed=bool(self.experiment and self.experiment.changes)
            )
        destination = find_destination(self.paths, options, scratch=self._scratch)
        self.evaluation_directory = destination.directory
        if destination.made:
            stack.push(Removal(destination.made[0], around=destination.made[1:]))
        self.say(destination.line)
        if self._scratch is not None or not (self.is_new or destination.made):
            self.announce()
        report = self.paths.root if self._writes else destination.directory
        self._report_path = report / self.paths.report_log.name
        opened = stack.enter_context(contextlib.closing(open_report(self._report_path, options.log_level)))
        self.live = opened.live
        if self.is_new and self._scratch is None and is_default_root(options.session_path):
            logger.warning("%s does not outlive a reboot; set DIGIDEEP_SESSIONS or --session-path", self.paths.root)
        self._open_logs(stack)

    def _open_logs(self, stack: contextlib.ExitStack) -> None:
        assert self.experiment is not None
        options = self.options
        if self.is_new:
            self._founded = founding.found(self.paths, self.experiment, options)
            stack.callback(self._founded.close)
        elif self.experiment.replaces_code and self._writes:
            self._superseded = founding.replace_code(self.paths, self.experiment)
        if self.experiment.notice:
            logger.warning("%s", self.experiment.notice)
        facts = {"command_line": list(options.command_line), "versions": versions(), "session": self.paths.name}
        self.logs = SessionLogs(self.paths, cpu=options.monitor_cpu, gpu=options.monitor_gpu, facts=facts)
        self.monitor = self.logs.monitor
        set_profiler_level(level := options.profiler_level)
        self.store = CheckpointStore(
            self.paths.checkpoints, session_id=read_meta(self.paths)["id"], run_id=uuid.uuid4().hex[:12]
        )
        self.summary = resuming.read_summary(self.paths)
        self.saver = Saver(
            self.paths, store=self.store, logs=self.logs, summary=self.summary, say=self.say, level=level
        )
        if not self.is_new:
            self._read_checkpoint()
        if options.autoresume:
            self._tell_autoresume()
        if self._writes and options.mode is not Mode.CREATE:
            self._run = founding.begin_run(
                self.paths,
                options,
                commits=self._founded.commits,
                superseded_modules=self._superseded,
                trusted=self.experiment.trusted,
            )
            stack.callback(self.logs.stop)
            stack.callback(self.saver.close)
            if options.tensorboard:
                stack.callback(self._serve().close)

    def reporting(self) -> AbstractContextManager[None]:
        """Return a context that records an error of the run in summary and report.log on its way out."""
        ways: dict[str, Any] = {"finish": self.finish, "keep": self._keep_crash, "stays": self._stays}
        return recorded_failure(**ways, report=self._report_path, is_dry=self._scratch is not None)

    def _stays(self, error: BaseException) -> bool:
        """Whether report.log is still there after a start that `error` has ended: see `Removal`."""
        if self.is_new:
            return not self._removal.removes(error)
        return self.options.mode is not Mode.PLAY or not isinstance(error, REFUSALS)

    def _keep_crash(self, error: DigideepError) -> None:
        if self._run is not None:
            assert self.experiment is not None
            keep_crash(error, paths=self.paths, params=self.experiment.params, allowed=self.allowed)

    def _read_checkpoint(self) -> None:
        assert self.experiment is not None
        options, is_play = self.options, self.options.mode is Mode.PLAY
        number = self._number
        if number is None:
            number = resuming.number_of(options.checkpoint, self.summary, session=self.paths)
        droppable = resuming.droppable(self.experiment.params, is_play=is_play)
        try:
            self.checkpoint = self.store.load(number, droppable=droppable)
        except NoCheckpointError:
            if options.mode is not Mode.RESUME:
                raise
            resuming.check_never_saved(self.paths, self.summary)
            logger.warning("%s has no checkpoint yet: it starts anew", self.paths.name)
        if options.mode is Mode.RESUME and self.checkpoint is not None:
            resuming.load_logs(self.checkpoint, self.logs)
            logger.info("resumes from %s, frame %d", self.checkpoint.path.name, self.checkpoint.manifest["frame"])

    @property
    def dropped(self) -> frozenset[str]:
        """Components of the checkpoint that were damaged, and that the session goes on without."""
        return frozenset() if self.checkpoint is None else frozenset(self.checkpoint.dropped)

    def _tell_autoresume(self) -> None:
        """Print the second line, which says what --autoresume has found."""
        if self.is_new:
            self.say("autoresume: new")
        elif self.checkpoint is None:
            self.say("autoresume: restarted, no checkpoint yet")
        else:
            self.say(f"autoresume: resumed {self.checkpoint.path.name}")

    def _serve(self) -> TensorBoardServer:
        self.paths.tensorboard.mkdir(exist_ok=True)
        host = self.options.tensorboard_host
        return serve(self.paths.tensorboard, host=host, on_ready=lambda url: logger.info("TensorBoard: %s", url))

    # What a run says and asks

    def say(self, line: str) -> None:
        """Print one of the documented lines on standard output, once it is sure that what the first one names stays."""
        if self._unsaid is not None:
            self._unsaid.append(line)
        elif not self.options.from_python:
            stdout.say(line)

    def announce(self) -> None:
        """Print what was said until now: this start is not refused any more, and from here on every line at once."""
        lines, self._unsaid = self._unsaid or [], None
        for line in lines:
            self.say(line)

    def _announce_what_stays(self, error: BaseException | None) -> None:
        if error is not None and self._unsaid and self._stays(error):
            self.announce()

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
        self.summary.restarts += events.restarts
        self.summary.env_errors += events.env_errors

    def started(self, engine: Engine, *, reached: str) -> None:
        """Record, once every part stands, what this start has changed and chosen.

        Raises:
            SessionDoneError: the session was done, and nothing that changed since leaves anything to do.
        """
        assert self.experiment is not None
        with self._removal.of_any_error():
            self._founded.settle()
            if self.options.mode is Mode.RESUME and is_done(self.paths.root):
                if reached:
                    raise resuming.done_error(self.paths.root)
                clear_done(self.paths.root)
            if self.options.mode is Mode.RESUME:
                resuming.rewind(
                    self.checkpoint, paths=self.paths, store=self.store, logs=self.logs, summary=self.summary
                )
            self._device = str(engine.chosen.get("device", "cpu"))
            if self.checkpoint is not None:
                found = differences(self.checkpoint.manifest, device=self._device)
                for sentence in found.values():
                    logger.warning("resume is not exact: %s", sentence)
                kinds = set(found) | ({"code"} if self.exactness != EXACT else set())
                kinds |= {"memory"} if self.dropped else set()
                self.exactness = lessened(str(self.checkpoint.manifest["exactness"]), kinds)
            self._warner.tell(engine.exactness)
            if self._run is not None:
                self.logs.start()
                founding.append_changes(self.paths, self._changes(engine))
                meta.update_run(self.paths, self._run, device=device_name(self._device), threads=thread_counts())
                if self.checkpoint is not None:
                    self.saver.prepare()
        self.announce()

    def _changes(self, engine: Engine) -> list[Mapping[str, Any]]:
        assert self.experiment is not None
        at = {"epoch": int(self.monitor.meta["epoch"]), "time": meta.now_text()}
        changes: list[Mapping[str, Any]] = [{**change, **at} for change in self.experiment.changes]
        chosen = self.experiment.params["engine"].get("chosen")
        if chosen != engine.chosen:
            changes.append({"path": "/engine/chosen", "old": chosen, "new": dict(engine.chosen), **at})
        return changes

    # Saving

    def save(
        self,
        number: int,
        components: Mapping[str, StateDict],
        progress: Mapping[str, Any],
        *,
        exactness: str,
        begun_at: float | None = None,
        wait: bool = True,
    ) -> None:
        """Commit a checkpoint as `Saver.save` does or, without `wait`, as `Saver.begin`; a dry run notes `progress`.

        `exactness` is the engine's; training has been waiting since `begun_at` (monotonic; None: now).
        """
        assert self.experiment is not None
        lessened_by_engine = self.exactness if exactness == EXACT else lessened(self.exactness, {"environment"})
        if self.options.dry_run:
            self.summary.update({**progress, "exactness": lessened_by_engine})
            return
        self._lock.check()
        self._warner.tell(exactness)
        origin = Origin(self.experiment.params, self._device, lessened_by_engine)
        save = self.saver.save if wait else self.saver.begin
        save(number, components, progress, origin=origin, begun_at=begun_at or time.monotonic())

    def mark_as_done(self, reason: str) -> None:
        """Record that the goal is reached; the final checkpoint is durable by now, but in a dry run."""
        if self._writes:
            mark_done(self.paths.root, reason)

    def finish(self, exit_code: int, reason: str, wait: bool = True) -> None:
        """Write how this start ended: summary, timers, and the run's entry in meta.json.

        A save that is under way is waited for first, but where time is over (`wait`) and the process ends right after.
        """
        if wait:
            self.saver.close()
        else:
            self.announce()  # nothing is removed any more
            if self._scratch is not None:
                remove_tree(self._scratch)
                return
        if self._run is None or exit_code == SessionLockedError.exit_code:  # another process writes here now
            return
        if exit_code == SessionDoneError.exit_code:  # it stays what it was
            meta.end_run(self.paths, self._run, exit_code=exit_code, reason=reason)
            return
        stopped = exit_code in (0, EXIT_PREEMPTED) or exit_code > 128
        state = "done" if exit_code == 0 and is_done(self.paths.root) else "stopped" if stopped else "failed"
        self.summary.update(
            {"state": state, "exit_code": exit_code, "reason": one_line(reason), "wall_s": self.logs.clock_s}
        )
        self.summary.write(self.paths)
        self.logs.write_timers(self.logs.timers())
        meta.end_run(self.paths, self._run, exit_code=exit_code, reason=reason)
