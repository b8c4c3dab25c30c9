"""Every row of the table of modes, from the command line to what is on disk afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import TOY, Ended, checkpoints, read, rows, tree

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

CREATE = "--create-session-only"
QUICK = ["number_epochs=2", "test_win_size=2"]


@pytest.fixture
def done(command: Run, toy: Toy) -> Path:
    """A session that has reached its goal."""
    return command(*toy("done", *QUICK)).session


def test_a_training_says_where_it_is_and_what_it_saved_and_is_done(command: Run, toy: Toy, tmp_path: Path) -> None:
    ended = command(*toy("one", *QUICK), "--msg", "a trial")

    session = tmp_path / "one"
    saved = [f"saved {session}/checkpoints/checkpoint-{n}" for n in (0, 2, 4, 4)]
    assert ended.out == [f"session: {session}", *saved]
    assert (session / "done.lock").exists()
    summary = read(session / "summary.json")
    assert (summary["state"], summary["exit_code"], summary["reason"]) == ("done", 0, "goal: 2 epochs")
    assert (summary["epoch"], summary["exactness"], summary["env_errors"], summary["restarts"]) == (2, "exact", 0, 0)
    assert summary["frame"] == rows(session / "varlog.jsonl")[-1]["meta"]["frame"]
    meta = read(session / "meta.json")
    assert (meta["format"], meta["version"], meta["message"]) == ("digideep-session", 1, "a trial")
    (run,) = meta["runs"]
    assert (run["exit_code"], run["reason"]) == (0, "goal: 2 epochs")
    assert {"command_line", "host", "cpu", "device", "threads", "versions", "start", "end"} <= run.keys()
    assert "--msg" in run["command_line"]


def test_a_session_has_the_files_of_the_contract_and_no_others(done: Path) -> None:
    assert {path.name for path in done.iterdir()} == {
        "__init__.py", "saam.py", "README.md", "meta.json", "cpanel.json", "params.yaml", "repeal.json", "summary.json",
        "report.log", "varlog.jsonl", "prolog.jsonl", "timers.json", "running.lock", "done.lock", "signature.json",
        "checkpoints", "modules", "monitor", "tensorboard",
    } | {path.name for path in done.iterdir()} & {"monlog.jsonl", "provenance.patch"}  # fmt: skip
    assert [entry["path"] for entry in read(done / "repeal.json")] == ["/engine/chosen"]
    carried = {path.name for path in (done / "modules").iterdir()}
    # What lies beside the parameters goes along where this process has imported it, as other tests may have made it do.
    beside = {path.name for path in Path(TOY).parent.glob("*.py")}
    needed = {"contents.json", "digideep", "toy_params.py", "toy_parts.py", "toy_runner.py"}
    assert needed <= carried <= needed | beside


def test_a_dry_run_trains_and_leaves_nothing(
    command: Run, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = tree(tmp_path)

    ended = command(*toy("none", *QUICK), "--dry-run")

    assert ended.out == ["session: none (dry run)"]
    assert "epoch 2" in ended.err
    assert tree(tmp_path) == before


def test_a_barebone_session_trains_when_it_is_resumed(command: Run, resume: Run, toy: Toy) -> None:
    made = command(*toy("bare", *QUICK), "--create-session-only")
    session = made.session
    assert made.out == [f"session: {session}"]
    assert not (session / "checkpoints").exists()
    assert read(session / "summary.json")["state"] == "stopped"

    ended = command("--load-checkpoint", str(session), "--resume")

    assert ended.out[0] == f"session: {session}"
    assert ended.saved == ["checkpoint-0", "checkpoint-2", "checkpoint-4", "checkpoint-4"]
    assert ended.err.count("it starts anew") == 1
    assert read(session / "summary.json")["state"] == "done"


def test_a_barebone_session_keeps_its_changes_by_path(command: Run, toy: Toy) -> None:
    argv = [*toy("bare", "test_win_size=1", "/runner/n_epochs=1"), "--repeal", '{"/agents/agent/lr": 0.002}']
    session = command(*argv, CREATE).session

    made = read(session / "repeal.json")
    changed = {"/agents/agent/lr": (0.001, 0.002), "/runner/n_epochs": (4, 1)}
    assert {entry["path"]: (entry["old"], entry["new"]) for entry in made} == changed
    assert all(set(entry) == {"path", "old", "new", "epoch", "time"} and entry["time"] for entry in made)
    command("--load-checkpoint", str(session), "--resume")
    assert read(session / "summary.json")["reason"] == "goal: 1 epochs"
    assert read(session / "repeal.json")[:-1] == made


def test_a_barebone_session_refuses_the_changes_that_a_start_refuses(command: Run, toy: Toy, tmp_path: Path) -> None:
    ended = command(*toy("bare", "/agents/agent/lr=-1.0"), CREATE, expect=2)

    assert "/agents/agent/lr" in ended.err
    assert not (tmp_path / "bare").exists()


@pytest.mark.parametrize("more", [[], ["--play"], ["--autoresume"]])
def test_a_start_that_is_refused_prints_no_path_and_leaves_none(
    command: Run, toy: Toy, tmp_path: Path, more: list[str]
) -> None:
    ended = command(*toy("refused", 'critic_observations=["velocity"]'), *more, expect=2)

    assert ended.out == []
    assert ended.err.splitlines()[-1].startswith("digideep: error: ") and "velocity" in ended.err
    assert not (tmp_path / "refused").exists()


def test_a_session_whose_start_fails_and_stays_is_named(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digideep.pipeline.runner.seed_everything", None)

    ended = command(*toy("failed"), expect=1)

    assert len(ended.out) == 1 and ended.session.is_dir()


def test_a_session_that_cannot_be_opened_goes_away_and_is_not_named(
    command: Run, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digideep.pipeline.session.SessionLogs", None)

    ended = command(*toy("failed"), expect=1)

    assert ended.out == []
    assert "Traceback" in ended.err
    assert not (tmp_path / "failed").exists()


def test_a_name_that_exists_is_refused_and_left_alone(command: Run, toy: Toy, done: Path) -> None:
    before = tree(done)

    ended = command(*toy("done", *QUICK), expect=2)

    assert ended.out == []
    assert (ended.err.count("\n"), "done" in ended.err) == (1, True)
    assert tree(done) == before


def test_a_done_session_exits_3_and_says_how_to_go_on(command: Run, done: Path) -> None:
    before = tree(done)

    ended = command("--load-checkpoint", str(done), "--resume", expect=3)

    assert ended.err.startswith("digideep: error: ")
    assert (ended.err.count("\n"), "/runner/n_epochs" in ended.err) == (1, True)
    assert [entry for entry in tree(done) if entry[0] != "running.lock"] == [
        e for e in before if e[0] != "running.lock"
    ]


def test_a_change_that_raises_no_goal_leaves_a_session_done(command: Run, done: Path) -> None:
    command("--load-checkpoint", str(done), "--resume", "--set", "/runner/keep_last=2", expect=3)

    assert (done / "done.lock").exists()
    assert [entry["path"] for entry in read(done / "repeal.json")] == ["/engine/chosen"]
    assert read(done / "summary.json")["state"] == "done"


def test_a_raised_goal_reopens_a_done_session(command: Run, done: Path) -> None:
    ended = command("--load-checkpoint", str(done), "--resume", "--set", "/runner/n_epochs=3")

    assert ended.saved == ["checkpoint-6", "checkpoint-6"]
    # The horizon of a schedule stays where it was; its final value of 0 holds, and the leaf is named.
    assert ended.err.count("/agents/agent/lr_horizon: the learning rate is 0 from frame 256 on") == 1
    last = read(done / "repeal.json")[-1]
    assert (last["path"], last["old"], last["new"], last["epoch"]) == ("/runner/n_epochs", 2, 3, 2)
    assert set(last) == {"path", "old", "new", "epoch", "time"}
    assert [row["meta"]["epoch"] for row in rows(done / "varlog.jsonl")] == [1, 2, 3]
    assert read(done / "summary.json")["state"] == "done"


def test_an_earlier_checkpoint_reopens_and_later_ones_move_aside(command: Run, done: Path) -> None:
    ended = command("--load-checkpoint", str(done), "--checkpoint", "2", "--resume")

    assert ended.saved == ["checkpoint-4", "checkpoint-4"]
    assert checkpoints(done) == [0, 2, 4]
    assert [row["meta"]["epoch"] for row in rows(done / "varlog.jsonl")] == [1, 2]
    assert read(done / "summary.json")["state"] == "done"


def test_later_checkpoints_are_kept_until_they_are_passed_by(command: Run, toy: Toy) -> None:
    session = command(*toy("long", "number_epochs=3", "test_win_size=2")).session
    path = session / "checkpoints" / "checkpoint-2"

    command("--load-checkpoint", str(path), "--resume", "--set", "/runner/max_iter=1", expect=75)

    names = sorted(entry.name.split("-")[0:2] for entry in (session / "checkpoints").iterdir())
    assert [".superseded", "6"] in names
    assert checkpoints(session)[-1] == 4
    assert not (session / "done.lock").exists()
    assert read(session / "summary.json")["state"] == "stopped"


def test_custom_runs_what_a_subclass_says(command: Run, done: Path) -> None:
    ended = command("--load-checkpoint", str(done), "--custom")

    assert ended.out == [f"session: {done}"]
    frame = rows(done / "varlog.jsonl")[-1]["meta"]["frame"]
    assert (done / "customs.txt").read_text() == f"frame {frame}\n"


def test_another_goal_may_replace_the_first(command: Run, done: Path) -> None:
    frame = rows(done / "varlog.jsonl")[-1]["meta"]["frame"]

    ended = command(
        "--load-checkpoint", str(done), "--resume", "--set", "/runner/n_epochs=0", f"/runner/total_frames={frame + 1}"
    )

    assert ended.saved[-1] == "checkpoint-5"
    assert read(done / "summary.json")["reason"] == f"goal: {frame + 1} frames"


def test_a_knob_on_resume_is_refused_with_the_line_to_paste(command: Run, done: Path) -> None:
    ended = command("--load-checkpoint", str(done), "--resume", "--set", "number_epochs=5", expect=2)

    assert "--set /runner/n_epochs=5" in ended.err
    assert ended.out == []


def test_frames_of_all_environments_are_the_goal_and_an_epoch_ends_there(command: Run, toy: Toy) -> None:
    ended = command(*toy("frames", "number_epochs=0", "total_frames=70", "test_win_size=1"))

    summary = read(ended.session / "summary.json")
    assert 70 <= summary["frame"] < 128
    assert (summary["reason"], summary["epoch"]) == ("goal: 70 frames", 1)
    assert ended.saved[-1] == "checkpoint-2"


def test_a_mean_return_is_a_goal_too(command: Run, toy: Toy) -> None:
    ended = command(*toy("good", "stop_return=-1e6", "test_win_size=1"))

    summary = read(ended.session / "summary.json")
    assert (summary["epoch"], summary["state"]) == (1, "done")
    assert summary["reason"].startswith("goal: mean return -")


def test_the_session_of_the_default_name_is_stamped_with_the_time(command: Run, tmp_path: Path) -> None:
    argv = ["--params", TOY, "--session-path", str(tmp_path), "--create-session-only"]

    first, second = command(*argv).session, command(*argv).session

    assert first.name.startswith("session_2") and len(first.name.split("_")[1]) == 14
    assert first != second
    assert os.stat(first).st_mode & 0o777 in (0o700, 0o755)
