"""Which code a session runs, and the fresh interpreter that runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import digideep
from digideep.errors import StorageError, TrustError, UsageError
from digideep.pipeline import relaunch, snapshot
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.relaunch import (
    check_options,
    decide,
    decide_in_python,
    relaunch_environment,
    take_installed_code,
    told_files,
)
from digideep.pipeline.snapshot import differing_files, find_sources, read_contents, sources_today
from digideep.pipeline.trust import assess, consented, sign

Maker = Callable[..., SessionPaths]

OWN_MAIN = """
import json, os, signal, sys, digideep
print(json.dumps({
    "argv": sys.argv[1:],
    "pid": os.getpid(),
    "file": digideep.__file__,
    "safe_path": sys.flags.safe_path,
    "bytecode": not sys.dont_write_bytecode,
    "blocked": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "pending": sorted(int(number) for number in signal.sigpending()),
    "torch": "torch" in sys.modules,
}))
"""

STARTER = """
import os, signal, sys
from pathlib import Path
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.relaunch import relaunch
received = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, frame: received.append(number))
print(os.getpid(), flush=True)
for text in filter(None, sys.argv[2].split(",")):
    os.kill(os.getpid(), int(text))
relaunch(SessionPaths(Path(sys.argv[1])), sys.argv[3:], received=lambda: received)
"""


def _edit(paths: SessionPaths, name: str = "digideep/errors.py") -> None:
    with open(paths.modules / name, "a", encoding="utf-8") as file:
        file.write("\n# edited\n")


def test_equal_code_changes_nothing(new_session: Maker) -> None:
    paths = new_session()
    sign(paths, modules=[])

    for code in (None, "session", "installed"):
        assert decide(paths, assess(paths), code=code) == ("same", (), "", True)  # type: ignore[arg-type]


def test_a_trusted_session_runs_its_own_code_where_it_differs(new_session: Maker) -> None:
    paths = new_session()
    _edit(paths)
    sign(paths, modules=[])

    decision = decide(paths, assess(paths), code=None)

    assert (decision.action, decision.differing, decision.exact) == ("session", ("digideep/errors.py",), True)
    assert decision.line == "code: the session's own, which differs in digideep/errors.py"


def test_an_untrusted_session_runs_what_is_installed_and_is_not_exact_any_more(new_session: Maker) -> None:
    paths = new_session()
    _edit(paths)

    decision = decide(paths, assess(paths), code=None)

    assert (decision.action, decision.exact) == ("data", False)
    assert "not trusted (it is not signed)" in decision.line
    with pytest.raises(TrustError, match=r"own code \(--code session\).*--trust-session.*sessions trust"):
        decide(paths, assess(paths), code="session")


def test_code_installed_takes_over_whoever_signed(new_session: Maker) -> None:
    paths = new_session()
    _edit(paths)

    decision = decide(paths, assess(paths), code="installed")

    assert (decision.action, decision.exact) == ("installed", False)


def test_damaged_contents_stop_a_resume_and_no_play_of_an_untrusted_session(new_session: Maker) -> None:
    paths = new_session()
    (paths.modules / "contents.json").write_text("{")

    assert decide(paths, assess(paths), code=None, resumes=False).action == "data"
    with pytest.raises(UsageError, match=r"contents\.json.*or give --code installed"):
        decide(paths, assess(paths), code=None)
    sign(paths, modules=[])
    assert decide(paths, assess(paths), code="installed").action == "installed"
    with pytest.raises(UsageError, match=r"contents\.json"):
        decide(paths, assess(paths), code=None)


def test_python_never_changes_the_code_it_runs_without_being_asked(new_session: Maker) -> None:
    paths = new_session()
    assert decide_in_python(paths, code=None, command="digideep --resume").action == "same"
    _edit(paths)

    with pytest.raises(UsageError, match=r'run it in a shell: digideep --resume, or give code="installed"'):
        decide_in_python(paths, code=None, command="digideep --resume")
    assert decide_in_python(paths, code="installed", command="").action == "installed"


def test_only_a_few_of_many_files_are_told() -> None:
    assert told_files(["a", "b", "c"]) == "a, b, c"
    assert told_files(["a", "b", "c\n", "d", "e"]) == "a, b, c and 2 more"


def test_an_option_that_the_sessions_version_does_not_know_is_refused(new_session: Maker) -> None:
    contents = read_contents(new_session().modules)
    assert contents is not None

    check_options(["--resume", "--load-checkpoint", "x", "--set=a=b", "-k", "--"], contents)
    with pytest.raises(UsageError, match=rf"--new-thing: .* {digideep.__version__}, .* or give --code installed"):
        check_options(["--resume", "--new-thing=3"], contents)


def test_the_sessions_code_comes_first_and_workers_inherit_that() -> None:
    environ = relaunch_environment(Path("/s/modules"), {"PYTHONPATH": "/a:/s/modules::/b", "HOME": "/h"})

    assert environ["PYTHONPATH"] == "/s/modules:/a:/b"
    assert environ["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environ["HOME"] == "/h"


def _with_own_main(paths: SessionPaths) -> None:
    (paths.modules / "digideep" / "main.py").write_text(OWN_MAIN)


def _start(paths: SessionPaths, *arguments: str, received: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", STARTER, str(paths.root), received, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=paths.root,
    )


def test_the_same_process_goes_on_with_the_sessions_code_and_signals_held_back(new_session: Maker) -> None:
    paths = new_session("session 1")  # a space in its name
    _with_own_main(paths)
    sign(paths, modules=[])
    (paths.root / "json.py").write_text("raise SystemExit('the current directory is on the path')\n")

    done = _start(paths, "--resume", "--set", "a=b c", received="10")

    before, after = done.stdout.splitlines()
    found = json.loads(after)
    assert found["pid"] == int(before)
    assert found["argv"] == ["--resume", "--set", "a=b c"]
    assert found["file"] == str(paths.modules / "digideep" / "__init__.py")
    assert found["safe_path"]
    assert {1, 2, 10, 15} <= set(found["blocked"])
    assert found["pending"] == [10]
    assert not found["torch"]
    assert assess(paths).code  # nothing was written into modules/


def test_a_signal_that_came_before_is_delivered_afterwards(new_session: Maker) -> None:
    paths = new_session()
    _with_own_main(paths)

    done = _start(paths, "--resume", received="10,15")

    assert json.loads(done.stdout.splitlines()[1])["pending"] == [10, 15]


def test_a_restart_that_did_not_help_is_not_repeated(new_session: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = new_session()
    monkeypatch.setenv("DIGIDEEP_CODE_FROM", str(paths.modules))

    done = _start(paths, "--resume")

    assert done.returncode == 1
    assert "expected the code of the session after a restart, found another" in done.stderr


def test_a_path_that_cannot_stand_on_pythons_path_is_a_usage_error(new_session: Maker) -> None:
    with pytest.raises(UsageError, match="expected a path without ':'"):
        relaunch.relaunch(new_session("a:b"), ["--resume"])


def test_a_session_without_a_copy_of_digideep_cannot_be_relaunched(new_session: Maker) -> None:
    paths = new_session()
    paths.modules.rename(paths.root / "gone")

    with pytest.raises(UsageError, match="expected a copy of digideep, found none; give --code installed"):
        relaunch.relaunch(paths, ["--resume"])


def test_the_installed_code_replaces_the_sessions_and_the_former_is_kept(new_session: Maker) -> None:
    paths = new_session()
    _edit(paths)
    paths.saam.write_text("hostile = True\n")
    (paths.root / "modules-1.superseded").mkdir()

    former, contents = take_installed_code(paths, find_sources([]), options=["--resume"])

    assert former == "modules-2.superseded"
    assert (paths.root / former / "digideep" / "errors.py").read_text().endswith("# edited\n")
    assert differing_files(paths.modules) == []
    assert contents.options == ("--resume",)
    assert "hostile" not in paths.saam.read_text()
    sign(paths, modules=[])
    assert assess(paths).allowed == consented(())


def test_the_former_code_is_back_in_its_place_when_the_copy_fails(
    new_session: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = new_session()
    _edit(paths)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(snapshot, "_copy", fail)

    with pytest.raises(StorageError, match="ENOSPC"):
        take_installed_code(paths, find_sources([]))
    assert (paths.modules / "digideep" / "errors.py").read_text().endswith("# edited\n")
    assert not (paths.root / "modules-1.superseded").exists()


def test_code_installed_takes_over_where_nobody_can_tell_what_a_session_carries(
    new_session: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    paths = new_session()
    (paths.modules / "contents.json").unlink()  # killed in the middle of its making

    sources = sources_today(paths.modules, trusted=True)

    assert [source.name for source in sources] == ["digideep"]
    assert "digideep alone is taken into the session" in caplog.text
