"""Sessions that want to run code, lead elsewhere, or forge output: looked at, they do nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from digideep import sessions
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.summary import Summary

Maker = Callable[..., SessionPaths]
Output = pytest.CaptureFixture[str]

# Every module that is executed from below the session is reported, as is every file opened for writing there.
WATCHER = """
import sys
session = sys.argv.pop(1)
def watch(event, arguments):
    if event == "exec" and arguments[0].co_filename.startswith(session):
        sys.stderr.write("RAN " + arguments[0].co_filename + "\\n")
    if event == "open" and str(arguments[0]).startswith(session) and (arguments[2] or 0) & 3:
        sys.stderr.write("WROTE " + str(arguments[0]) + "\\n")
    if event in ("subprocess.Popen", "os.exec", "os.system"):
        sys.stderr.write("STARTED " + str(arguments[0]) + "\\n")
sys.addaudithook(watch)
"""
LOOK = WATCHER + "from digideep.sessions import main\nsys.exit(main(sys.argv[1:]))\n"
LOAD = WATCHER + (
    "import warnings; warnings.simplefilter('ignore')\n"
    "from digideep.post import load\n"
    "loader = load(session)\n"
    "loader.params, loader.cpanel, loader.summary, loader.varlog(), loader.prolog(), loader.monlog(), loader.meta\n"
    "print('read', loader.checkpoints)\n"
)


def _make_hostile(paths: SessionPaths, canary: Path) -> None:
    evil = f"open({str(canary)!r}, 'w').close()\n"
    for name in ("torch.py", "json.py", "sitecustomize.py", "usercustomize.py", "numpy.py", "digideep/__init__.py"):
        (paths.modules / name).write_text(evil)
    (paths.modules / "evil.pth").write_text(f"import os; {evil}")
    for file in (paths.init, paths.saam, paths.root / "json.py", paths.root / "sitecustomize.py"):
        file.write_text(evil)
    (paths.modules / "evil.py").write_text(evil)


@pytest.mark.parametrize("command", ["list", "show", "fsck", "last"])
def test_looking_at_a_hostile_session_runs_and_writes_nothing(new_session: Maker, tmp_path: Path, command: str) -> None:
    paths = new_session()
    _make_hostile(paths, tmp_path / "canary")
    place = paths.root.parent if command in ("list", "last") else paths.root

    done = subprocess.run(
        [sys.executable, "-P", "-c", LOOK, str(paths.root), command, str(place)],
        capture_output=True,
        text=True,
        cwd=paths.modules,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "canary").exists()


def test_loading_a_hostile_session_runs_and_writes_nothing(new_session: Maker, tmp_path: Path) -> None:
    paths = new_session()
    _make_hostile(paths, tmp_path / "canary")

    done = subprocess.run(
        [sys.executable, "-P", "-c", LOAD, str(paths.root)], capture_output=True, text=True, cwd=paths.root
    )

    assert (done.stdout, done.stderr) == ("read []\n", "")
    assert not (tmp_path / "canary").exists()


def _main(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "digideep.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_playing_and_resuming_a_hostile_session_runs_nothing_of_it(tmp_path: Path) -> None:
    small = ["num_envs=2", "n_steps=16", "number_epochs=1", "total_frames=0", "stop_return=null", "test_activate=false"]
    place = ["--session-path", str(tmp_path), "--session-name", "session_1"]
    made = _main("--params", "digideep.params.cartpole_ppo", "--set", *small, *place, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    paths = SessionPaths(tmp_path / "session_1")
    _make_hostile(paths, tmp_path / "canary")

    named = ["--load-checkpoint", str(paths.root)]
    played = _main("--play", *named, "--episodes", "1", cwd=paths.root)
    resumed = _main("--resume", *named, "--set", "/runner/n_epochs=2", cwd=paths.root)
    needing = _main("--resume", *named, "--code", "session", cwd=paths.root)
    paths.repeal.write_text(json.dumps([{"path": "/runner/on_epoch", "old": None, "new": "evil:hook"}]))
    hooked = _main("--play", *named, cwd=paths.root)

    assert [run.returncode for run in (played, resumed, needing, hooked)] == [0, 0, 6, 6]
    assert "the session is not trusted" in resumed.stderr
    assert "'evil'" in hooked.stderr
    assert not (tmp_path / "canary").exists()
    assert Summary.read(paths).exactness == "none (code)"


def test_the_watcher_notices_code_of_a_session_that_runs(new_session: Maker, tmp_path: Path) -> None:
    paths = new_session()
    _make_hostile(paths, tmp_path / "canary")

    done = subprocess.run(
        [sys.executable, "-P", "-c", WATCHER + "sys.path.insert(0, session)\nimport saam\n", str(paths.root)],
        capture_output=True,
        text=True,
    )

    assert f"RAN {paths.saam}" in done.stderr
    assert (tmp_path / "canary").exists()


def test_names_and_reasons_cannot_forge_output(new_session: Maker, capsys: Output) -> None:
    escape = "\x1b[2J\r\nfake  done\u2028"
    paths = new_session("session\n\x1b[31mred")
    Summary(state="failed", reason=f"reason{escape}", exactness=escape).write(paths)
    meta = json.loads(paths.meta.read_text())
    paths.meta.write_text(json.dumps({**meta, "preset": escape, "message": escape, "runs": [{escape: escape}]}))
    (paths.root.parent / "x\x07.d").mkdir()

    for arguments in (["list", str(paths.root.parent)], ["show", str(paths.root)], ["last", str(paths.root.parent)]):
        for json_option in ([], ["--json"]):
            assert sessions.main([*arguments, *json_option]) == 0
            out = capsys.readouterr().out
            assert not set(out) & set("\x1b\r\x07\u2028\x85")
            assert all(not line.startswith("fake") for line in out.splitlines())


def test_a_name_that_is_no_text_does_not_stop_the_list(new_session: Maker) -> None:
    paths = new_session()
    os.rename(paths.root, os.fsencode(paths.root.parent) + b"/session_\xff")

    done = subprocess.run(
        [sys.executable, "-m", "digideep.sessions", "list", str(paths.root.parent)], capture_output=True, text=True
    )

    assert done.returncode == 0
    assert "session_\\udcff" in done.stdout


def _link(file: Path) -> None:
    file.symlink_to("/etc/passwd")


def _huge(file: Path) -> None:
    with open(file, "wb") as stream:
        stream.truncate(1 << 40)


def _deep(file: Path) -> None:
    file.write_text("[" * 100_000)


def _directory(file: Path) -> None:
    file.mkdir()


def _device(file: Path) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", ["meta.json", "summary.json"])
@pytest.mark.parametrize("spoil", [_link, os.mkfifo, _huge, _deep, _directory, _device])
def test_a_spoilt_file_makes_a_session_damaged_and_the_list_goes_on(
    new_session: Maker, capsys: Output, name: str, spoil: Callable[[Path], None]
) -> None:
    bad, good = new_session("bad"), new_session("good")
    (bad.root / name).unlink()
    spoil(bad.root / name)

    code = sessions.main(["list", str(good.root.parent), "--json"])

    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert code == 0
    assert rows["good"]["state"] == "stopped"
    if "bad" in rows:  # without a regular meta.json a directory is no session at all
        assert rows["bad"]["state"] == "damaged"
        assert rows["bad"]["reason"]
    assert sessions.main(["show", str(bad.root)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["checkpoints", "modules", "running.lock", "varlog.jsonl", "signature.json"])
def test_links_out_of_the_session_are_not_followed(
    new_session: Maker, tmp_path: Path, name: str, capsys: Output
) -> None:
    paths = new_session()
    outside = tmp_path / "outside"
    outside.mkdir()
    if (paths.root / name).exists():
        (paths.root / name).rename(tmp_path / "former")
    (paths.root / name).symlink_to(outside)

    codes = [sessions.main([command, str(paths.root)]) for command in ("show", "fsck")]

    assert codes in ([0, 0], [2, 2])
    assert list(outside.iterdir()) == []
