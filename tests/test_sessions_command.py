"""`python -m digideep.sessions`: what it says of sessions, in which form, and what it ends with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digideep import sessions
from digideep.pipeline import contents as checkpoint_files
from digideep.pipeline import selftest
from digideep.pipeline.checkpoint import CheckpointMeta, CheckpointStore, Component
from digideep.pipeline.inventory import row_of, state_of, tree_bytes
from digideep.pipeline.layout import SessionPaths, read_meta
from digideep.pipeline.locks import SessionLock, mark_done
from digideep.pipeline.meta import begin_run
from digideep.pipeline.summary import Summary
from digideep.pipeline.trust import assess

Maker = Callable[..., SessionPaths]
Output = pytest.CaptureFixture[str]
TEST = {"epoch": 2, "frame": 200, "mean_return": 50.0, "std_return": 1.5, "n": 10}


def _answer(capsys: Output, *arguments: str) -> tuple[int, str, str]:
    code = sessions.main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def _json(capsys: Output, *arguments: str) -> Any:
    code, out, err = _answer(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def _save(paths: SessionPaths, *numbers: int) -> CheckpointStore:
    store = CheckpointStore(paths.checkpoints, session_id=read_meta(paths)["id"], run_id="test")
    for number in numbers:
        meta = CheckpointMeta(number, number, number, 0, "exact", None, {}, {}, "cpu", "")
        component = Component("agents.agent", "agents", 1, {"weights": np.arange(100.0) + number})
        store.save(number, [component], meta=meta, logs={})
    return store


def test_the_list_has_a_line_a_session(new_session: Maker, capsys: Output) -> None:
    done = new_session("second", state="done", exit_code=0, reason="goal: 3 epochs", frame=12345, last_test=TEST)
    mark_done(done.root, "goal")
    paths = new_session("first", best_test={**TEST, "checkpoint": None}, frame=7)
    (paths.root.parent / "no_session").mkdir()
    (paths.root.parent / "file").write_text("")

    code, out, _ = _answer(capsys, "list", str(paths.root.parent))

    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[0] == ["NAME", "STATE", "PRESET", "FRAMES", "LAST", "BEST", "SIZE", "AGE", "REASON"]
    assert lines[1][:6] == ["first", "stopped", "cartpole_ppo", "7", "-", "50.00"]
    assert lines[2][:6] == ["second", "done", "cartpole_ppo", "12345", "50.00", "-"]
    rows = _json(capsys, "list", str(paths.root.parent))
    assert [(row["name"], row["frames"], row["last_return"]) for row in rows] == [
        ("first", 7, None),
        ("second", 12345, 50.0),
    ]
    assert rows[1].keys() == set(row_of(paths.root)._fields)


def test_an_empty_place_and_a_missing_one(tmp_path: Path, capsys: Output) -> None:
    assert _answer(capsys, "list", str(tmp_path))[:2] == (0, f"no sessions in {tmp_path}\n")
    assert _json(capsys, "list") == []  # the default place, where nothing was ever trained
    assert _answer(capsys, "last") == (2, "", _Any("digideep: error: "))
    code, out, err = _answer(capsys, "list", str(tmp_path / "missing"))
    assert (code, out, err.count("\n")) == (2, "", 1)


class _Any(str):
    """Equal to every text that begins with it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.startswith(str(self))

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    "arguments",
    [[], ["lst"], ["list", "--jso"], ["show"], ["show", ""], ["show", "a\0b"], ["show", "/nowhere"], ["fsck", "/etc"]],
)
def test_every_wrong_command_line_is_one_line_and_exit_2(arguments: Sequence[str], capsys: Output) -> None:
    code, out, err = _answer(capsys, *arguments)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("digideep: error: ")


def test_running_is_only_what_a_process_holds(new_session: Maker) -> None:
    paths = new_session(state="running", reason="", exit_code=None)
    assert row_of(paths.root)[1:3] == ("stopped", "never started")

    begin_run(paths, command_line=["--resume"])
    assert row_of(paths.root)[1:3] == ("stopped", "ended without a word: killed, or the machine went down")

    with SessionLock(paths.root):
        assert row_of(paths.root).state == "running"
        assert f"in process {os.getpid()}" in row_of(paths.root).reason


def test_the_last_session_is_the_one_that_wrote_last(new_session: Maker, capsys: Output) -> None:
    older, newer = new_session("z"), new_session("a")
    for paths, moment in ((older, 1_000_000_000), (newer, 1_000_000_100)):
        for file in (paths.meta, paths.summary):
            os.utime(file, (moment, moment))

    assert _answer(capsys, "last", str(older.root.parent))[:2] == (0, f"{newer.root}\n")
    assert _json(capsys, "last", str(older.root.parent))["name"] == "a"


def test_show_tells_how_a_session_stands(new_session: Maker, capsys: Output) -> None:
    checkpoint = {"name": "checkpoint-4", "epoch": 2, "frame": 200, "mean_return": 50.0}
    paths = new_session(frame=200, last_test=TEST, checkpoints=[checkpoint])
    begin_run(paths, command_line=["--resume"])

    code, out, _ = _answer(capsys, "show", str(paths.root))
    found = _json(capsys, "show", str(paths.root))

    assert code == 0
    assert f"session    {paths.root}\n" in out
    assert "last test  50.00 +- 1.50 over 10 episodes (frame 200)\n" in out
    assert "checkpoint-4         frame        200  return 50.00\n" in out
    assert "trust      data: it is not signed\n" in out
    assert (found["message"], found["trust"]["level"], found["summary"]["frame"]) == ("a trial", "data", 200)


@pytest.mark.parametrize("command", ["show", "fsck", "trust"])
def test_a_name_in_the_list_is_a_session_too(
    command: str, new_session: Maker, capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = new_session("named", state="done")
    monkeypatch.setenv("DIGIDEEP_SESSIONS", str(tmp_path))
    (tmp_path / "elsewhere" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert _json(capsys, command, "named")["path"] == str(paths.root)
    code, _, err = _answer(capsys, command, "unnamed")
    assert code == 2 and f"found nothing here, and none of this name in {tmp_path}; give its path" in err
    for other in ("here", "../elsewhere", "./named"):  # something is there, or it is a path: nothing else is looked for
        code, _, err = _answer(capsys, command, other)
        assert code == 2 and "expected a session directory" in err


def test_fsck_names_every_damaged_checkpoint_and_ends_with_5(new_session: Maker, capsys: Output) -> None:
    paths = new_session()
    assert _answer(capsys, "fsck", str(paths.root))[:2] == (0, "no checkpoints\n")
    store = _save(paths, 1, 2, 3)
    weights = store.path(2) / "agents.agent.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 4
    weights.write_bytes(content)
    before = {path: path.stat().st_mtime_ns for path in paths.root.rglob("*")}

    code, out, _ = _answer(capsys, "fsck", str(paths.root))

    lines = out.splitlines()
    assert code == 5
    assert (lines[0], lines[2]) == ("checkpoint-1: ok", "checkpoint-3: ok")
    assert lines[1].startswith("checkpoint-2: damaged: agents.agent.safetensors")
    assert {path: path.stat().st_mtime_ns for path in paths.root.rglob("*")} == before


def test_fsck_finds_a_file_that_is_whole_and_cannot_be_read(
    new_session: Maker, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = new_session()
    good = checkpoint_files.write_safetensors
    with monkeypatch.context() as hostile:
        hostile.setattr(
            checkpoint_files, "write_safetensors", lambda arrays: [b"\xff" * 8 + b"".join(good(arrays))[8:]]
        )
        _save(paths, 1)

    code, out, _ = _answer(capsys, "fsck", str(paths.root))

    assert code == 5
    assert out.startswith("checkpoint-1: damaged: ")


def test_trust_signs_what_the_parameters_name_with_their_changes(new_session: Maker, capsys: Output) -> None:
    paths = new_session()
    change = {"path": "/env/from_module", "old": None, "new": "tug_game.envs", "epoch": 0, "time": ""}
    paths.repeal.write_text(json.dumps([change]))

    found = _json(capsys, "trust", str(paths.root))

    assert found == {"path": str(paths.root), "signed": True, "modules": ["tug_game"]}
    assert assess(paths).allowed[-1] == "tug_game"


def test_where_no_key_can_be_kept_trust_ends_with_6(
    new_session: Maker, capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))

    code, _, err = _answer(capsys, "trust", str(new_session().root))

    assert code == 6
    assert "no key can be kept" in err


def test_selftest_passes_on_a_file_system_that_keeps_its_word(tmp_path: Path, capsys: Output) -> None:
    results = selftest.run_selftest(tmp_path, kills=3)

    assert [(result.name, result.ok) for result in results] == [("kill", True), ("lock", True), ("exactness", True)]
    assert results[0].finding.startswith("3 processes killed in ")
    assert list(tmp_path.iterdir()) == []


def test_selftest_makes_a_directory_that_is_missing_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, modes = tmp_path / "sessions", []
    monkeypatch.setattr(selftest, "_attempt", lambda name, trial: modes.append(place.stat().st_mode & 0o777))

    selftest.run_selftest(place)

    assert modes == [0o700] * 3
    assert not place.exists()


def test_selftest_leaves_a_directory_that_somebody_uses_by_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "sessions"
    monkeypatch.setattr(selftest, "_attempt", lambda name, trial: (place / "mine").touch())

    selftest.run_selftest(place)

    assert [path.name for path in place.iterdir()] == ["mine"]


def test_selftest_notices_a_store_that_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "expected_state", lambda number: {"number": number + 1})

    results = selftest.run_selftest(tmp_path, kills=1)

    assert not results[0].ok
    assert "expected the keys that were saved" in results[0].finding


def test_selftest_ends_with_9_where_something_failed(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = [selftest.Result("kill", False, "lost\nforged")]
    monkeypatch.setattr(selftest, "run_selftest", lambda place: failed)

    assert _answer(capsys, "selftest", str(tmp_path))[:2] == (9, "kill: FAILED, lost forged\n")


def test_sizes_count_a_file_once_and_follow_no_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "big").symlink_to("/usr")
    (tmp_path / "loop").symlink_to(tmp_path)

    assert tree_bytes(tmp_path) == 1000


def test_a_reader_that_stops_early_is_no_error(new_session: Maker) -> None:
    command = [sys.executable, "-m", "digideep.sessions", "list", str(new_session().root.parent)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None

    process.stdout.close()  # long before the program writes
    with process:
        errors = process.stderr.read()

    assert (process.returncode, errors) == (0, b"")


def test_nothing_heavy_is_imported_to_list_and_show(new_session: Maker) -> None:
    root = new_session().root
    program = (
        "import sys; from digideep.sessions import main; main(['show', sys.argv[1]]); main(['list', sys.argv[1]]);"
        "print(sorted({'torch', 'gymnasium', 'numpy'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program, str(root)], capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["list", "show", "last", "fsck", "trust", "selftest"])
@pytest.mark.parametrize("name", ["x" * 300, "/dev/null/x"])
def test_a_place_that_cannot_be_is_one_line(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)

    code, out, err = _answer(capsys, command, name)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("digideep: error: ") and ": expected " in err


def test_a_reader_that_goes_away_ends_nothing(new_session: Maker) -> None:
    for number in range(40):
        new_session(f"s{number}")
    place = new_session("last").root.parent
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [sys.executable, "-m", "digideep.sessions", "list", str(place)],
        stdout=writer, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(writer)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_the_terminal_cannot_show_is_written_with_escapes(new_session: Maker) -> None:
    place = new_session("plain").root.parent
    os.rename(place / "plain", place / "n\u00e9v\u00e9")

    done = subprocess.run(
        [sys.executable, "-m", "digideep.sessions", "list", str(place)],
        capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert "n\\xe9v\\xe9" in done.stdout


def test_a_summary_that_says_done_without_the_lock_is_not_done(new_session: Maker) -> None:
    paths = new_session("s")
    summary = Summary.read(paths)
    summary.update({"state": "done", "reason": "goal"})

    open_again = state_of(paths, summary)
    mark_done(paths.root, "goal")

    assert open_again == ("stopped", "done.lock was removed: a resume goes on")
    assert state_of(paths, summary) == ("done", "goal")
