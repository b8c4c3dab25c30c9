"""The runner: the lifecycle of a run, and nothing else.

    start -> train -> [cycle ... cycle -> monitor, test, on_epoch, log, save] ... -> finalize

Its own state is (epoch, cycle, cycles of this epoch, pending): a stop after the last cycle of an epoch neither skips
nor repeats the epoch's test and log. What is sampled, learnt and stored is the engine's and the session's business.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from digideep.errors import EXIT_PREEMPTED, CheckpointError
from digideep.pipeline import evaluation, founding, report
from digideep.pipeline.abandon import abandon, leave
from digideep.pipeline.config import RunnerConfig
from digideep.pipeline.jobs import TimeBudget, find_job_end
from digideep.pipeline.resuming import require_components, well_formed
from digideep.pipeline.state import Goal, RunnerState, ScoredTest, numbers_of
from digideep.spec import spec_to_plain
from digideep.types import Counters, Engine, Progress, StateDict
from digideep.utility.imports import BUILT_IN, resolve
from digideep.utility.node import build, configure
from digideep.utility.profiling import get_timer_root, timer_block
from digideep.utility.seeding import rng_state, seed_everything, set_rng_state
from digideep.utility.timertree import graft

if TYPE_CHECKING:
    from digideep.pipeline.session import Session

__all__ = ["Outcome", "Runner"]

logger = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """How a run ended."""

    exit_code: int
    reason: str


class Runner:
    """Sets up the engine and the evaluations of one session, and drives its train cycles.

    Args:
        params: the params tree.
        allowed: packages that the tree may name.
    """

    def __init__(self, params: Mapping[str, Any], allowed: Sequence[str] = BUILT_IN) -> None:
        self.params = params
        self.allowed = tuple(allowed)
        self.config: RunnerConfig = configure(params["runner"], where="/runner", allowed=allowed, expected=RunnerConfig)
        self.state = RunnerState()

    # Setting up

    def start(self, session: Session) -> None:
        """Make every part and, with a checkpoint, give each the state it had; call it before anything else."""
        self.session = session
        self.lazy_init()
        seed_everything(self.config.seed)
        self.instantiate()
        self.load()
        self.override()
        self.lazy_connect_signal()
        session.started(self.engine, reached=self.state.reached(self._goal(), counters=self.engine.counters()))

    def lazy_init(self) -> None:
        """Make what is no part of the state."""
        self._started = self._logged_at = time.monotonic()
        self._frames_at_start = self._logged_frames = self._epochs_of_this_run = 0
        self._ran_a_cycle = False  # an epoch of which only test and log were left does not use up max_iter
        self._budget = TimeBudget(self.config.max_time, grace_s=self.config.grace_s)
        self._evaluator = evaluation.Evaluator(self.params, self.session, seed=self.config.seed)
        self._on_epoch: Callable[[Runner], None] | None = None
        self._blocks = {name: timer_block(name) for name in ("cycle", "test", "log", "save")}

    def instantiate(self) -> None:
        """Make the engine, and with it explorer, memories and agents."""
        params = self.params
        explorer = {**params["explorer"]["train"], "env": params["env"]}
        self.engine: Engine = build(
            params["engine"],
            where="/engine",
            allowed=self.allowed,
            explorer=explorer,
            memories=params["memory"],
            agents=params["agents"],
            session=self.session,
        )
        self._evaluator.spec = self.engine.spec
        if self.config.on_epoch:
            self._on_epoch = resolve(self.config.on_epoch, where="/runner/on_epoch", allowed=self.allowed)

    def load(self) -> None:
        """Give every part its state from the session's checkpoint, or its first one; generators come last."""
        checkpoint = self.session.checkpoint
        if checkpoint is None:
            if self.config.init_from:
                self.engine.load_policies(founding.initial_components(self.config.init_from))
            self._tell_progress()
            self.engine.start()
        else:
            with well_formed(checkpoint.path.name):
                self.load_state_dict(checkpoint.components)
        self._frames_at_start = self._logged_frames = self.frame
        self._fraction_at_start = self._progress().fraction
        self._update_meta()

    def load_memory(self) -> None:
        """Give the memories alone their state from the session's checkpoint."""
        if self.session.checkpoint is None:
            raise CheckpointError("load_memory: expected a session with a checkpoint, found none")
        self.engine.load_memories(self.session.checkpoint.components)

    def override(self) -> None:
        """Change loaded objects in a subclass; nothing here."""

    def lazy_connect_signal(self) -> None:
        """Tell the signal handlers, which stand since the program began, how long a stop may take."""
        self.session.requests.grace_s = self.config.grace_s
        self.session.requests.on_deadline = self._on_deadline

    def on_sigint_received(self, signalNumber: int = signal.SIGINT, frame: FrameType | None = None) -> None:
        """Ask for an end after this cycle, as Ctrl-C does."""
        self.session.requests.request_stop(signalNumber)

    def on_sigusr1_received(self, signalNumber: int = signal.SIGUSR1, frame: FrameType | None = None) -> None:
        """Ask for a save after this cycle, as SIGUSR1 does."""
        self.session.requests.request_save()

    # Training

    @property
    def epoch(self) -> int:
        """Epochs completed since the beginning."""
        return self.state.epoch

    @property
    def frame(self) -> int:
        """Real transitions since the beginning."""
        return self.engine.counters().env_steps

    def train(self) -> Outcome:
        """Run cycles until a goal, a budget or a signal ends them; the final save is durable when this returns."""
        self._budget.heed(find_job_end())
        if self.state.cycle == 0:
            self.save()
        outcome = self.termination_check()
        while outcome is None:
            if not self.state.pending:
                self.train_cycle()
            # A checkpoint of this number is written once: with test and log of an epoch that is over, if time permits.
            if self.state.pending and not self.session.requests.is_urgent():
                self._end_epoch()
                outcome = self.termination_check()
            outcome = outcome or self._after_cycle()
        return self.finalize(outcome)

    def train_cycle(self) -> None:
        """Advance by one chunk."""
        with self._blocks["cycle"]:
            self.engine.cycle()
        self._ran_a_cycle = True
        events = self.engine.events()
        self.state = self.state.after_cycle(
            n_cycles=self.config.n_cycles, goal=self._goal(), counters=self.engine.counters()
        )
        self._update_meta()
        report.monitor_episodes(self.session.monitor, events)
        self.session.count_faults(events)
        if self.session.live.enabled:
            self.session.live.update(self._live_text())

    def termination_check(self) -> Outcome | None:
        """Return why the run ends here, or None: the goal comes before a signal, and a signal before a budget."""
        reached = self.state.reached(self._goal(), counters=self.engine.counters())
        if reached and not self.state.pending:
            return Outcome(0, reached)
        used_up = 0 < (limit := self.config.max_iter) <= self._epochs_of_this_run
        by_epochs = Outcome(EXIT_PREEMPTED, f"max_iter: {limit} epochs in this run") if used_up else None
        return self.stopped() or by_epochs or self._out_of_time()

    def _out_of_time(self) -> Outcome | None:
        reason = self._budget.spent(self.session.process_age_s(), advanced=self.frame > self._frames_at_start)
        return Outcome(EXIT_PREEMPTED, reason) if reason else None

    def _goal(self) -> Goal:
        return Goal(self.config.n_epochs, self.config.total_frames, self.config.stop_return)

    def _after_cycle(self) -> Outcome | None:
        """Look at signals and at the time budget, which do not wait for the end of an epoch."""
        stops = False
        self.session.saver.look()
        if self.session.requests.take_save():
            self.save(forced=True)
            stops = self.config.on_sigusr1 == "stop"
        return self.stopped() or (Outcome(EXIT_PREEMPTED, "SIGUSR1") if stops else self._out_of_time())

    def stopped(self) -> Outcome | None:
        """Return how a signal ends this run, or None where none has asked for an end."""
        code = self.session.requests.exit_code
        return None if code is None else Outcome(code, signal.Signals(code - 128).name)

    def _end_epoch(self) -> None:
        """Count the epoch, test, log and save; a stop in the middle of the test leaves the epoch pending."""
        before, is_tested = self.state, False
        self.state = self.state.next_epoch()
        self._update_meta()
        try:
            is_tested = self.test() is not False  # an override that returns nothing has tested
        finally:
            if not is_tested:  # nor where an environment ended it: what is saved then has the epoch before it
                self.state = before
                self._update_meta()
        if not is_tested:
            return
        self._epochs_of_this_run += self._ran_a_cycle
        self._ran_a_cycle = False
        self.monitor_epoch()
        if self._on_epoch is not None:
            self._on_epoch(self)
        self.log()
        self.state = self.state.settled()
        self._tell_progress()
        if self._save_is_due():
            self.save()

    def monitor_epoch(self) -> None:
        """Send the speed of this epoch to the monitor."""
        now = time.monotonic()
        frames, seconds = self.frame - self._logged_frames, now - self._logged_at
        self._logged_at, self._logged_frames = now, self.frame
        self.session.monitor.monitor("time/frames_per_s", frames / max(seconds, 1e-9))

    def test(self) -> bool:
        """Evaluate the policy with frozen normalisers and its own seeds, where a test is due.

        Returns:
            False where a signal asked for an end before the test was over; nothing is kept of it then.
        """
        if not self.config.test_act or not self._test_is_due():
            return True
        with self._blocks["test"]:
            result = self._evaluator.test(self.engine.actors())
        if result is None:
            return False
        self.state = self.state.tested(ScoredTest.of(result, epoch=self.epoch, frame=self.frame))
        report.monitor_test(self.session.monitor, result)
        return True

    def _test_is_due(self) -> bool:
        last = bool(self.state.reached(self._goal(), counters=self.engine.counters()))
        return last or self.epoch % self.config.test_int == 0

    def log(self) -> None:
        """Write one row of metrics, of the profile and of the machine, and print the epoch's lines."""
        with self._blocks["log"]:
            for path, node in {**self.engine.timings(), **self._evaluator.timings()}.items():
                graft(get_timer_root(), path, node)
            row = self.session.log_epoch()
            report.print_epoch(
                row, epoch=self.epoch, frame=self.frame, done=self._progress().fraction, result=self.state.last_test
            )

    def custom(self) -> None:
        """Do something else with a loaded session in a subclass; nothing here."""
        logger.warning("custom: this runner overrides nothing; name one with /runner/type")

    def enjoy(self) -> evaluation.Evaluation:
        """Evaluate the policy as the options of the session say, and keep the results beside it."""
        return self._evaluator.play(self.engine.actors())

    # Saving

    def save(self, forced: bool = False) -> None:
        """Copy the state of everything and let it be committed while training goes on.

        A failed save leaves what stood before and training goes on; the third in a row ends the run.

        Args:
            forced: whether somebody asked for it, rather than the calendar.

        Raises:
            StorageError: three saves in a row have failed.
            NonFiniteError: the state holds NaN or infinity; nothing was written.
        """
        self._commit(wait=False)

    def save_final_checkpoint(self) -> None:
        """Commit a checkpoint of everything and wait for it; a failure is raised, since nothing comes after it.

        Raises:
            StorageError: it could not be made durable.
            NonFiniteError: the state holds NaN or infinity; nothing was written.
        """
        self._commit(wait=True)

    def _commit(self, *, wait: bool) -> None:
        begun_at, session = time.monotonic(), self.session
        with self._blocks["save"]:
            self.engine.drain()
            self.engine.flush()
            self._evaluator.flush()
            with self.engine.lending():  # what a save copies anyway need not be copied before
                state = self.state_dict()
            progress, exactness = self._summary(), self.engine.exactness
            session.save(self.state.cycle, state, progress, exactness=exactness, begun_at=begun_at, wait=wait)

    def finalize(self, outcome: Outcome, save: bool = True) -> Outcome:
        """Save for the last time and, where the goal is reached, mark the session as done."""
        if save:
            self.save_final_checkpoint()
        if outcome.exit_code == 0:
            self.session.mark_as_done(outcome.reason)
        logger.info("ends after epoch %d, frame %d: %s", self.epoch, self.frame, outcome.reason)
        if not self.session.options.dry_run:
            logger.info("the session is in %s", self.session.paths.root)
        return outcome

    def close(self) -> None:
        """End every environment and process of this run."""
        if hasattr(self, "session"):
            self.session.requests.on_deadline = lambda code: leave(self.session, code)
        with contextlib.ExitStack() as stack:
            for part in (getattr(self, "engine", None), getattr(self, "_evaluator", None)):
                if part is not None:
                    stack.callback(part.close)

    def state_dict(self) -> dict[str, StateDict]:
        """Return the state of every part by component, generators included."""
        progress, env_spec = self._told._asdict(), spec_to_plain(self.engine.env_spec)
        return {
            **self.engine.components(),
            "runner": {**self.state.to_plain(), "progress": progress, "env_spec": env_spec},
            "rng": rng_state(),
        }

    def load_state_dict(self, state_dict: Mapping[str, StateDict]) -> None:
        """Take over what `state_dict` returned; generators last, after the objects that draw from them."""
        require_components({*self.engine.component_names(), "runner", "rng"} - self.session.dropped, state_dict)
        # Environments that keep what they were told beside their state are told again, as of the last epoch.
        self._told = numbers_of(Progress, state_dict["runner"]["progress"], where="runner/progress")
        self.engine.set_progress(self._told)
        self.engine.load_components(state_dict)
        self.state = RunnerState.from_plain(state_dict["runner"])
        set_rng_state(state_dict["rng"])

    def _save_is_due(self) -> bool:
        config = self.config
        by_epoch = config.save_int > 0 and self.epoch % config.save_int == 0
        by_clock = config.save_every_s > 0 and time.monotonic() - self.session.saver.saved_at >= config.save_every_s
        return by_epoch or by_clock

    def _summary(self) -> dict[str, Any]:
        counters: Counters = self.engine.counters()
        seconds = time.monotonic() - self._started
        return {
            "epoch": self.epoch,
            "frame": counters.env_steps,
            "episode": counters.episodes,
            "frames_per_s": (counters.env_steps - self._frames_at_start) / max(seconds, 1e-9),
            "last_test": None if self.state.last_test is None else self.state.last_test.to_plain(),
        }

    def _progress(self) -> Progress:
        goal = self._goal()
        done = self.frame / goal.total_frames if goal.total_frames else self.epoch / goal.n_epochs
        return Progress(frame=self.frame, epoch=self.epoch, fraction=min(1.0, done))

    def _tell_progress(self) -> None:
        self._told = self._progress()
        self.engine.set_progress(self._told)

    def _update_meta(self) -> None:
        self.session.set_meta(epoch=self.epoch, frame=self.frame, episode=self.engine.counters().episodes)

    def _live_text(self) -> str:
        elapsed = time.monotonic() - self._started
        return report.live_text(
            epoch=self.epoch,
            frame=self.frame,
            frames_per_s=(self.frame - self._frames_at_start) / max(elapsed, 1e-9),
            progress=self._progress().fraction,
            began_at=self._fraction_at_start,
            elapsed_s=elapsed,
            mean_return=report.mean_return(self.session.monitor),
        )

    def _on_deadline(self, code: int) -> None:
        """Say, from the watchdog's thread, what stands and what is lost, while the main thread is stuck."""
        abandon(self.session, code, frame=self.frame + self.engine.frames_underway())
