"""SIGTERM and SIGHUP end a run within the grace period, saved, wherever they hit it."""

from __future__ import annotations

import functools
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fakes import Ended, Program, checkpoints, differences, read, wait_until
from signalling import hang_in, signal_in, workers_of

Run = Callable[..., Ended]
Start = Callable[..., Program]
Toy = Callable[..., list[str]]

ENDLESS = ["number_epochs=100000", "test_activate=false", "save_interval=0"]
PLACES = {
    "start": ("digideep.pipeline.engine:SerialEngine.__init__", 1),
    "first save": ("digideep.pipeline.checkpoint:CheckpointStore.gather", 1),
    "rollout": ("digideep.environment.explorer:Explorer.update", 3),
    "environment": ("digideep.testing.environments:ToyEnv.step", 150),
    "update": ("digideep.agent.ppo.agent:PPOAgent.update", 3),
    "test": ("digideep.environment.evaluation:Evaluation.play", 2),
    "log": ("digideep.pipeline.session:Session.log_epoch", 2),
    "save": ("digideep.pipeline.checkpoint:CheckpointStore.gather", 3),
    "save in flight": ("digideep.pipeline.checkpoint:CheckpointStore.commit", 3),
    "writing": ("os:fsync", 60),
    "retention": ("digideep.pipeline.checkpoint:CheckpointStore.retain", 2),
}
HANGS = {
    "start": ("digideep.environment.vec.stepper:Stepper.__init__", 1),
    "update": ("digideep.agent.ppo.agent:PPOAgent.update", 2),
    "test": ("digideep.environment.evaluation:Evaluation.play", 1),
    "log": ("digideep.pipeline.session:Session.log_epoch", 1),
    "save": ("digideep.pipeline.session:Session.save", 2),
    "save in flight": ("digideep.pipeline.checkpoint:CheckpointStore.commit", 2),
    "exit": ("digideep.environment.explorer:Explorer.close", 1),
}


def _hanging(tmp_path: Path, **knobs: object) -> list[str]:
    """Return the knobs of an environment that hangs in its second episode, once it has made a file."""
    faulty = {"fault": "hang", "at": 2, "episode": 1, "once": str(tmp_path / "hangs")}
    return ["--cpanel", json.dumps({"model_name": "digideep.testing:Faulty-v0", "env_kwargs": faulty, **knobs})]


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_D4_a_stopping_signal_saves_where_it_stands(start: Start, toy: Toy, name: str, code: int) -> None:
    program = start(*toy("stopped", *ENDLESS))
    program.wait_for("saved ")

    program.send(signal.Signals[name])
    ended = program.end()

    assert ended.code == code
    session = ended.session
    last = checkpoints(session)[-1]
    assert ended.out[-1] == f"saved {session}/checkpoints/checkpoint-{last}"
    summary = read(session / "summary.json")
    assert (summary["state"], summary["exit_code"], summary["reason"]) == ("stopped", code, name)
    assert read(session / "meta.json")["runs"][0]["exit_code"] == code
    assert not (session / "done.lock").exists()
    assert "Traceback" not in ended.err


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed, for all comparisons of this file."""
    from fakes import TOY

    import digideep

    place = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        session = digideep.run(TOY, {"test_win_size": 1}, session_path=str(place), log_level="fatal")
    return session.paths.root


@pytest.mark.parametrize("phase", list(PLACES))
def test_D4_sigterm_in_any_phase_is_143_saved_and_changes_no_bit(
    start: Start, command: Run, toy: Toy, straight: Path, phase: str
) -> None:
    place, call = PLACES[phase]
    before = functools.partial(signal_in, place, number=signal.SIGTERM, call=call)

    ended = start(*toy("stopped", "test_win_size=1"), before=before).end()

    assert ended.code == 143, ended
    assert ended.out[-1] == f"saved {ended.session}/checkpoints/checkpoint-{checkpoints(ended.session)[-1]}"
    command("--load-checkpoint", str(ended.session), "--resume")
    assert differences(straight, ended.session) == []


@pytest.mark.parametrize(
    "place", ["digideep.pipeline.session:Session.finish", "digideep.pipeline.logs:SessionLogs.stop"]
)
def test_D4_a_signal_on_the_way_out_does_not_change_the_exit_code(start: Start, toy: Toy, place: str) -> None:
    before = functools.partial(signal_in, place, number=signal.SIGTERM)

    ended = start(*toy("done", "number_epochs=1", "test_activate=false"), before=before).end()

    assert ended.code == 0, ended
    assert read(ended.session / "summary.json")["state"] == "done"


@pytest.mark.parametrize("phase", list(HANGS))
def test_D4_what_hangs_is_left_within_the_grace_period(start: Start, toy: Toy, tmp_path: Path, phase: str) -> None:
    place, call = HANGS[phase]
    flag = tmp_path / "hangs"
    before = functools.partial(hang_in, place, flag=str(flag), call=call)
    program = start(*toy("hung", "grace_s=1", "number_epochs=1"), before=before)
    wait_until(flag.exists)

    program.send(signal.SIGTERM)
    began = time.monotonic()
    ended = program.end()

    assert ended.code == 143
    assert time.monotonic() - began < 5.0  # the grace period is 1 s; the machine may be busy
    last = ended.err.splitlines()[-1]
    if phase == "exit":  # all is saved by then: nothing is repeated, and nobody is told that it is
        assert "the session is in" in ended.err
        assert "frames will be repeated" not in ended.err
    else:
        wanted = "stopped by SIGTERM before training had begun" if phase == "start" else "frames will be repeated"
        assert wanted in last


@pytest.mark.parametrize("workers", [0, 2])
def test_D4_a_hung_environment_is_left_within_the_grace_period(
    start: Start, resume: Run, toy: Toy, tmp_path: Path, workers: int
) -> None:
    program = start(*toy("hung"), *_hanging(tmp_path, num_workers=workers, grace_s=1.0))
    program.wait_for("saved ")
    wait_until((tmp_path / "hangs").exists)
    left = workers_of(program.pid)

    program.send(signal.SIGTERM)
    began = time.monotonic()
    ended = program.end()

    assert ended.code == 143
    assert time.monotonic() - began < 5.0  # the grace period is 1 s; the machine may be busy
    number = checkpoints(ended.session)[-1]
    words = ended.err.splitlines()[-1].partition("stopped inside a cycle: ")[2]
    assert words.startswith(f"checkpoint-{number} stands, ") and words.endswith(" frames will be repeated")
    # Of each of the four environments at least the first episode and the reset after it are over.
    assert int(words.split()[2]) > 4 * 5
    assert len(left) == workers
    psutil.wait_procs(left, timeout=10)
    assert [process for process in left if process.is_running()] == []
    assert read(ended.session / "summary.json")["state"] == "stopped"
    resume(ended.session)


def test_D4_a_hangup_that_was_ignored_stays_ignored(digideep: Run, toy: Toy) -> None:
    ended = digideep(*toy("nohup", "number_epochs=1"), moments={"cycle 1": ["SIGHUP"]}, ignored=[signal.SIGHUP])

    assert read(ended.session / "summary.json")["reason"] == "goal: 1 epochs"
