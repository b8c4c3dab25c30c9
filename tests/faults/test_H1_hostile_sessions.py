"""H1: nothing of a session runs unless it is trusted: looked at, loaded, played and resumed, a hostile one is data."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cold import Cold
from hostile import PRESET, SETS

from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.summary import Summary

HERE = Path(__file__).resolve().parent
# In a fresh interpreter, since what is imported before cannot be replaced by a file of the session any more.
DRIVER = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from cold import PROGRAMS, watch
del sys.path[0]
session, writable, program = sys.argv[1:4]
watch([session], writable=writable, tell=lambda seen: sys.stderr.write(f"SEEN {{seen}}\\n"))
code = PROGRAMS[program](sys.argv[4:])
sys.stdout.flush()
sys.exit(code)
"""
# Names that Python, its libraries, pytest and Gymnasium import by themselves, and those that configuration may name.
NAMES = (
    "sitecustomize usercustomize json torch numpy gymnasium yaml safetensors tensorboard psutil pynvml rich conftest "
    "setup ale_py shimmy minigrid gymnasium_robotics envpool encodings importlib logging typing dataclasses"
).split()


def _make_hostile(root: Path, canary: Path) -> None:
    paths, evil = SessionPaths(root), f"open({str(canary)!r}, 'w').close()\n"
    for directory in (paths.root, paths.modules):
        for name in NAMES:
            (directory / f"{name}.py").write_text(evil)
        (directory / "evil.py").write_text(evil)
        (directory / "evil.pth").write_text(f"import os; {evil}")
        (directory / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-p evil"\n')
        information = directory / "evil-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text("[gymnasium.envs]\nevil = evil:f\n[pytest11]\nevil = evil\n")
        _compiled(directory / "evil.py", directory / "__pycache__" / "saam.cpython-311.pyc")
    for file in (paths.init, paths.saam, paths.modules / "digideep/__init__.py", paths.modules / "digideep/main.py"):
        file.write_text(evil)
    outside = root.parent / "elsewhere"
    outside.mkdir()
    (outside / "__init__.py").write_text(evil)
    (paths.modules / "linked").symlink_to(outside)
    _compiled(paths.modules / "evil.py", paths.modules / "digideep/__pycache__/errors.cpython-311.pyc")
    _hostile_data(paths)


def _compiled(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    py_compile.compile(str(source), cfile=str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _hostile_data(paths: SessionPaths) -> None:
    """Files that readers of other programs have executed: pickles, and names of code wherever a name may stand."""
    pickle = b"cposix\nsystem\n(S'touch canary'\ntR."
    for name in ("policy.pkl", "checkpoint.pt", "monitor.pickle", "checkpoints/state.pth"):
        (paths.root / name).write_bytes(pickle)
    (paths.root / "tensorboard" / "events.out.tfevents.1.evil").write_bytes(pickle)
    (paths.root / "monitor" / "train").mkdir(parents=True, exist_ok=True)
    (paths.root / "monitor" / "train" / "9.monitor.csv").write_text('#{"env_id": "evil:X-v0"}\nr,l,t\n=cmd|x,1,2\n')
    (paths.crash).mkdir()
    (paths.crash / "crash.json").write_text(json.dumps({"format": "digideep-crash", "env": {"model_name": "evil:X"}}))
    meta = json.loads(paths.meta.read_text())
    evil = {"command_line": ["--params", "evil"], "start": "evil:f", "exit_code": 0}
    paths.meta.write_text(json.dumps({**meta, "preset": "evil", "lineage": {"session": "evil:f"}, "runs": [evil]}))
    contents = json.loads((paths.modules / "contents.json").read_text())
    repository = paths.root / "evilrepo" / "evil"
    repository.mkdir(parents=True)
    contents["copied"]["evil"] = {"source": str(repository), "files": {"evil/__init__.py": "0" * 64}}
    (paths.modules / "contents.json").write_text(json.dumps(contents))


@pytest.fixture
def hostile(trained: Path, tmp_path: Path) -> Path:
    """A trained session of somebody else's that wants to run code wherever it can."""
    root = tmp_path / "s"
    shutil.copytree(trained, root)
    _make_hostile(root, tmp_path / "canary")
    return root


def _driven(session: Path, program: str, *argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    place = session.parent
    (place / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(place / "tmp"), "HOME": str(place)}
    command = [sys.executable, "-P", "-c", DRIVER, str(session), str(place), program, *argv]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120)


def _seen(done: subprocess.CompletedProcess[str], session: Path) -> list[str]:
    """Return what was seen, without questions to the machine that have nothing to do with the session."""
    seen = [line.removeprefix("SEEN ") for line in done.stderr.splitlines() if line.startswith("SEEN ")]
    return [line for line in seen if not line.startswith(HARMLESS) or str(session) in line]


# Which commit the installed code is of, and which processor this is.
HARMLESS = ("subprocess.Popen git ", "subprocess.Popen uname ")

LOOKS = {
    "list": ["sessions", "list", "{place}"],
    "show": ["sessions", "show", "{session}"],
    "fsck": ["sessions", "fsck", "{session}"],
    "last": ["sessions", "last", "{place}"],
    "load": ["load", "{session}", "params", "cpanel", "meta", "summary", "checkpoints", "varlog", "prolog", "monlog"],
}


@pytest.mark.parametrize("look", LOOKS)
def test_H1_looking_at_a_hostile_session_runs_and_writes_nothing(hostile: Path, tmp_path: Path, look: str) -> None:
    words = [word.format(place=tmp_path, session=hostile) for word in LOOKS[look]]
    before = {path: path.lstat().st_mtime_ns for path in hostile.rglob("*")}

    done = _driven(hostile, *words, cwd=hostile if look in ("show", "load") else hostile / "modules")

    assert (done.returncode, _seen(done, hostile)) == (0, []), done.stderr
    assert "Traceback" not in done.stderr
    assert {path: path.lstat().st_mtime_ns for path in hostile.rglob("*")} == before
    assert not (tmp_path / "canary").exists()


def test_H1_a_policy_of_a_hostile_session_acts_without_running_its_code(hostile: Path, tmp_path: Path) -> None:
    done = _driven(hostile, "load", str(hostile), "policy", cwd=hostile)

    assert (done.returncode, done.stdout, _seen(done, hostile)) == (0, "policy LoadedPolicy\n", []), done.stderr
    assert not (tmp_path / "canary").exists()


def test_H1_playing_and_resuming_a_hostile_session_run_nothing_of_it(hostile: Path, tmp_path: Path) -> None:
    named = ["main", "--load-checkpoint", str(hostile)]

    played = _driven(hostile, *named, "--play", "--episodes", "1", cwd=hostile)
    resumed = _driven(hostile, *named, "--resume", cwd=hostile / "modules")

    for done in (played, resumed):
        assert (done.returncode, _seen(done, hostile)) == (0, []), done.stderr
        assert "the session is not trusted" in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "canary").exists()
    assert Summary.read(SessionPaths(hostile)).exactness == "none (code)"


def test_H1_the_same_command_and_todays_code_run_nothing_of_a_hostile_session(
    warm: Cold, hostile: Path, tmp_path: Path
) -> None:
    again = [*PRESET, "--session-path", str(tmp_path), "--session-name", "s", "--autoresume", "--set", *SETS]
    watched = [str(hostile)]

    resumed = warm.ask("main", *again, cwd=tmp_path, watch=watched)
    taken = warm.ask(
        *("main", "--load-checkpoint", str(hostile), "--resume", "--code", "installed", "--set", "/runner/n_epochs=3"),
        cwd=tmp_path,
        watch=watched,
    )

    for ended in (resumed, taken):
        assert ended.code in (0, 75), ended
        assert [line for line in ended.seen if not line.startswith(HARMLESS)] == []
    assert not any(str(hostile) in line for line in (*resumed.seen, *taken.seen))
    carried = {path.name for path in (hostile / "modules").iterdir()}
    assert carried == {"digideep", "contents.json"}, "nothing of the former code is signed with today's"
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"path": "/runner/on_epoch", "new": "evil:f"},
        {"path": "/runner/on_epoch", "new": "digideep.sessions:main"},
        {"path": "/env/from_module", "new": "evil"},
        {"path": "/env/model_name", "new": "evil:X-v0"},
        {"path": "/runner/type", "new": "evil:Config"},
        {"path": "/agents/agent/model", "new": {"type": "evil:Net"}},
        {"path": "/agents/agent/model", "new": {"layers": [{"type": "evil:Net"}]}},
        {"path": "/engine", "new": {"type": "evil:Engine"}},
    ],
)
def test_H1_a_session_that_names_code_is_refused_with_the_two_ways_out(
    cold: Cold, hostile: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    (hostile / "repeal.json").write_text(json.dumps([{"old": None, "epoch": 0, "time": "", **change}]))
    watched = [str(hostile)]
    found: list[str] = []
    for verb in ("--play", "--resume"):
        answer = cold.ask("main", "--load-checkpoint", str(hostile), verb, cwd=tmp_path, watch=watched)
        ways_out = "--trust-session" in answer.err and "digideep.sessions trust" in answer.err
        if answer.code != 6 or not ways_out or answer.seen or "torch" in answer.heavy or answer.err.count("\n") != 1:
            found.append(f"{verb}: {answer}")

    assert found == []
    assert not (tmp_path / "canary").exists()


def test_H1_a_shown_session_needs_no_code_to_be_trusted(cold: Cold, hostile: Path, tmp_path: Path) -> None:
    answer = cold.ask("sessions", "trust", str(hostile), cwd=tmp_path, watch=[str(hostile)])

    assert answer.code == 2, "a link in its modules could lead anywhere later"
    assert answer.seen == []


def test_H1_the_watcher_notices_code_of_a_session_that_runs(hostile: Path, tmp_path: Path) -> None:
    program = DRIVER.replace(
        "code = PROGRAMS[program](sys.argv[4:])", "sys.path.insert(0, session); import saam; code = 0"
    )
    place = str(hostile.parent)

    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(hostile), place, "list"], capture_output=True, text=True, cwd=tmp_path
    )

    assert f"SEEN ran {hostile / 'saam.py'}" in done.stderr or (tmp_path / "canary").exists()
    assert (tmp_path / "canary").exists()


def test_H1_importing_a_session_is_the_limit_that_the_documentation_states(hostile: Path, tmp_path: Path) -> None:
    page = (HERE.parents[1] / "docs" / "sessions.md").read_text()

    done = subprocess.run([sys.executable, "-c", "import s"], capture_output=True, text=True, cwd=tmp_path)

    assert done.returncode == 0
    assert (tmp_path / "canary").exists(), "as any import does"
    assert "post.load" in page or "digideep.post" in page
