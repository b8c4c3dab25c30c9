"""The scripts as a newcomer meets them, with a stand-in for pip: nothing is fetched and nothing real is installed."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# The place of pip: writes what it was called with, "installs" a program that shows its arguments, or does as told.
PIP = """
import fcntl, os, pathlib, sys
site = pathlib.Path(__file__).parent.parent
log = pathlib.Path(os.environ["PIP_LOG"])
with log.open("a") as file:
    file.write("start " + " ".join(sys.argv[1:]) + "\\n")
mode = os.environ.get("PIP_MODE", "")
if mode == "fail":
    sys.exit(7)
info = site / "digideep-0.dist-info"
if mode == "slow":
    info.mkdir()
    print("pip is half done", flush=True)
    with open(os.environ["PIP_GATE"]) as gate:  # the test holds a lock on this file: waits here until it lets go
        fcntl.flock(gate, fcntl.LOCK_SH)
        if gate.read() == "stop":
            sys.exit(9)
    (info / "RECORD").touch()
if info.exists() and not (info / "RECORD").exists():
    sys.exit("pip took a torn package for an installed one")
package = site / "digideep"
package.mkdir(exist_ok=True)
(package / "__init__.py").touch()
(package / "main.py").write_text(os.environ["PROGRAM"])
for name in ("pytest", "ruff", "mypy", "benchmarks"):
    (site / (name + ".py")).write_text(os.environ["PROGRAM"])
info.mkdir(exist_ok=True)
(info / "RECORD").touch()
print("pip says something")
with log.open("a") as file:
    file.write("end\\n")
"""
PROGRAM = """
import os, pathlib, sys
print("session: none", sys.argv[1:], flush=True)
sys.exit(int(os.environ.get(pathlib.Path(__file__).stem.upper() + "_EXIT", "0")))
"""
# The place of python3: the real one, but for `-m venv`, which makes an environment that holds the pip above.
PYTHON = """#!/bin/bash
if [ "$2" = -m ] && [ "$3" = venv ]; then
    "{python}" -I -m venv --without-pip "$4"
    site=$("$4/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    mkdir "$site/pip" "$site/pip-0.dist-info"
    touch "$site/pip/__init__.py" "$site/pip-0.dist-info/RECORD"
    printf '%s' "$PIP" > "$site/pip/__main__.py"
    exit
fi
exec "{python}" "$@"
"""


class Clone:
    """A copy of what the scripts need, in a path with spaces, with its own stand-ins on PATH."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "a clone [1]"
        self.bin = directory / "bin"
        self.log = directory / "pip.log"
        self.cwd = directory / "somewhere else"
        self.gate = directory / "gate"
        self.lock = -1
        self.started: list[subprocess.Popen[str]] = []
        for path in (self.root, self.bin, self.cwd):
            path.mkdir()
        for name in ("scripts", "requirements", ".ci"):
            shutil.copytree(ROOT / name, self.root / name)
        shutil.copy(ROOT / "pyproject.toml", self.root)
        for tool in ("bash", "dirname", "basename", "readlink", "mkdir", "mktemp", "rm", "touch"):
            self.add(tool, target=shutil.which(tool))
        self.add("python3", text=PYTHON.format(python=Path(sys.executable).resolve()))
        self.environment = {
            "PATH": str(self.bin),
            "PIP": PIP,
            "PROGRAM": PROGRAM,
            "PIP_LOG": str(self.log),
            "HOME": str(directory),
        }

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def add(self, name: str, *, text: str = "", target: str | None = None) -> None:
        path = self.bin / name
        if target is not None:
            path.symlink_to(target)
        else:
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, *command: str | Path, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=self.cwd,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, script: str | Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(self.root / "scripts" / script, *arguments, **environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def close_gate(self) -> None:
        """Make the slow installer wait at the gate."""
        self.lock = os.open(self.gate, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def open_gate(self, answer: str) -> None:
        """Let the installer, where it still lives, read `answer`."""
        if self.lock >= 0:
            os.write(self.lock, answer.encode())
            os.close(self.lock)
            self.lock = -1

    def installs(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    clone = Clone(tmp_path)
    yield clone
    clone.open_gate("stop")
    for process in clone.started:
        process.kill()
        process.communicate(timeout=30)


def test_first_run_installs_with_constraints_and_leaves_stdout_to_the_program(clone: Clone) -> None:
    result = clone.run("train", "--set", "seed=3", "name=a b")

    assert result.returncode == 0, result.stderr
    expected = ["--params", "digideep.params.cartpole_ppo", "--set", "seed=3", "name=a b"]
    assert result.stdout == f"session: none {expected}\n"
    assert "pip says something" in result.stderr
    command = "install --no-input --disable-pip-version-check --quiet -c requirements/constraints.txt -e ."
    assert clone.installs() == [f"start {command}", "end"]


def test_second_run_installs_nothing(clone: Clone) -> None:
    clone.run("train")

    result = clone.run("train", PIP_MODE="fail")

    assert (result.returncode, result.stderr) == (0, "")
    assert len(clone.installs()) == 2


def test_test_extra_is_installed_once_and_serves_train_too(clone: Clone) -> None:
    first = clone.run("test", "-k", "resume")
    second = clone.run("test", PIP_MODE="fail")
    third = clone.run("train", PIP_MODE="fail")

    assert first.stdout == "session: none ['--numprocesses', 'logical', '--dist', 'worksteal', '-k', 'resume']\n"
    assert (second.returncode, third.returncode) == (0, 0)
    assert clone.installs()[0].endswith("-e .[dev]")
    assert len(clone.installs()) == 2


def test_changed_dependencies_are_installed_and_changed_tool_settings_are_not(clone: Clone) -> None:
    clone.run("train")
    project = clone.root / "pyproject.toml"

    project.write_text(project.read_text() + "\n[tool.other]\nkey = 1\n")
    clone.run("train")
    after_settings = len(clone.installs())
    project.write_text(project.read_text().replace('"psutil>=6.0"', '"psutil>=6.1"'))
    clone.run("train")

    assert after_settings == 2
    assert len(clone.installs()) == 4


def test_moved_clone_installs_again(clone: Clone) -> None:
    clone.run("train")
    clone.root = clone.root.rename(clone.root.with_name("moved"))

    result = clone.run("train")

    assert result.returncode == 0, result.stderr
    assert len(clone.installs()) == 4


def test_exit_code_is_that_of_the_program(clone: Clone) -> None:
    result = clone.run("train", MAIN_EXIT="75")

    assert result.returncode == 75


def test_program_takes_the_place_of_the_script_so_that_signals_reach_it(clone: Clone) -> None:
    process = clone.start(clone.root / "scripts" / "train", PROGRAM="import os; print(os.getpid())")

    out, _ = process.communicate(timeout=60)

    assert out == f"{process.pid}\n"


def test_check_runs_everything_before_it_fails(clone: Clone) -> None:
    result = clone.run("check", RUFF_EXIT="1")

    assert result.returncode == 1
    assert result.stderr.endswith("scripts/check: failed: ruff check, ruff format\n")
    assert "== mypy\nsession: none []" in result.stdout
    assert "documentation: 0 faults" in result.stdout


def test_lint_corrects_findings_and_format(clone: Clone) -> None:
    result = clone.run("lint", RUFF_EXIT="0")

    assert result.stdout == "session: none ['check', '--fix', '.']\nsession: none ['format', '.']\n"


def test_bench_hands_on_its_options(clone: Clone) -> None:
    result = clone.run("bench", "--setup")

    assert result.stdout == "session: none ['--setup']\n"


@pytest.mark.parametrize(("outcome", "expected"), [({}, 0), ({"PYTEST_EXIT": "5"}, 1), ({"MYPY_EXIT": "1"}, 1)])
def test_ci_fails_where_a_check_fails_or_no_test_ran(clone: Clone, outcome: dict[str, str], expected: int) -> None:
    clone.add("strace", text="#!/bin/bash\n")

    result = clone.run("../.ci/run", **outcome)

    assert result.returncode == expected, result.stderr
    assert "=== scripts/check: status" in result.stdout
    assert "=== scripts/test --durations=15: status" in result.stdout


def test_ci_fails_where_strace_is_missing_and_cannot_be_installed(clone: Clone) -> None:
    clone.add("apt-get", text="#!/bin/bash\nexit 100\n")

    result = clone.run("../.ci/run")

    assert result.returncode == 1
    assert result.stderr.endswith(".ci/run: failed: strace_is_there\n")


def test_named_parameters_and_sessions_replace_the_preset(clone: Clone) -> None:
    result = clone.run("train", "--resume", "--load-checkpoint", "somewhere")

    assert result.stdout == "session: none ['--resume', '--load-checkpoint', 'somewhere']\n"


def test_script_works_through_a_symbolic_link_and_with_a_relative_venv(clone: Clone) -> None:
    link = clone.bin / "cartpole"
    link.symlink_to(os.path.relpath(clone.root / "scripts" / "train", clone.bin))

    process = clone.start(link, DIGIDEEP_VENV="my env")
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out.startswith("session: ")) == (0, True), err
    assert (clone.cwd / "my env" / "pyvenv.cfg").exists()
    assert not clone.venv.exists()


@pytest.mark.parametrize("script", ["train", "test", "check", "lint", "docs", "bench", "promises"])
def test_python_that_is_too_old_is_one_line(clone: Clone, script: str) -> None:
    (clone.bin / "python3").unlink()
    clone.add("python3", text="#!/bin/bash\necho 3.9.2\n")

    result = clone.run(script)

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"scripts/{script}: error: Python: expected 3.11 or newer, found 3.9.2 (python3); "
        "install one, or name it: PYTHON=/path/to/python3\n"
    )
    assert not clone.venv.exists()


def test_newer_python_beside_an_old_one_is_found(clone: Clone) -> None:
    (clone.bin / "python3").rename(clone.bin / "python3.12")
    clone.add("python3", text="#!/bin/bash\necho 3.9.2\n")
    clone.add("python3.13", text="#!/bin/bash\necho no such version >&2\nexit 127\n")

    result = clone.run("train")

    assert result.returncode == 0, result.stderr


def test_named_python_is_the_only_one_considered(clone: Clone) -> None:
    result = clone.run("train", PYTHON=str(clone.bin / "missing"))

    assert result.returncode == 2
    assert "expected 3.11 or newer, found none" in result.stderr


def test_python_without_venv_is_one_line(clone: Clone) -> None:
    text = PYTHON.format(python=Path(sys.executable).resolve())
    broken = text.replace("#!/bin/bash\n", '#!/bin/bash\nif [[ "$*" = *ensurepip* ]]; then exit 1; fi\n')
    (clone.bin / "python3").write_text(broken)

    result = clone.run("train")

    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "scripts/train: error: python3: expected the modules venv and ensurepip, found none; "
        "install them (on Debian and Ubuntu: apt install python3-venv)"
    ]


def test_failed_installation_is_finished_by_the_next_run(clone: Clone) -> None:
    first = clone.run("train", PIP_MODE="fail")

    second = clone.run("train")

    assert first.returncode == 2
    assert "pip install ended with status 7" in first.stderr.splitlines()[-1]
    assert second.returncode == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_interrupted_installation_is_noticed_and_finished(clone: Clone, how: signal.Signals) -> None:
    process = start_slow(clone)

    process.send_signal(how)
    process.wait(timeout=30)
    clone.open_gate("stop")
    second = clone.run("train")

    assert second.returncode == 0, second.stderr
    assert second.stdout.startswith("session: none")


def test_venv_without_its_configuration_is_made_anew(clone: Clone) -> None:
    clone.run("train")
    (clone.venv / "pyvenv.cfg").unlink()

    result = clone.run("train")

    assert result.returncode == 0, result.stderr
    assert (clone.venv / "pyvenv.cfg").exists()


def test_directory_of_someone_else_is_refused_and_kept(clone: Clone, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").touch()

    result = clone.run("train", DIGIDEEP_VENV=str(precious))

    assert result.returncode == 2
    assert "expected a virtual environment" in result.stderr
    assert [path.name for path in precious.iterdir()] == ["thesis.txt"]


def test_second_script_waits_for_the_first_and_installs_nothing(clone: Clone) -> None:
    first = start_slow(clone)
    second = clone.start(clone.root / "scripts" / "train", "--second")
    assert second.stderr is not None
    waiting = second.stderr.readline()

    clone.open_gate("go on")
    first_out, first_err = first.communicate(timeout=60)
    second_out, second_err = second.communicate(timeout=60)

    assert waiting.startswith("waiting for another script")
    assert (first.returncode, second.returncode) == (0, 0), first_err + second_err
    assert first_out.startswith("session: none") and "--second" in second_out
    assert len(clone.installs()) == 2


def start_slow(clone: Clone) -> subprocess.Popen[str]:
    """Start scripts/train and return once its installer is half done and waits at the gate."""
    clone.close_gate()
    process = clone.start(clone.root / "scripts" / "train", PIP_MODE="slow", PIP_GATE=str(clone.gate))
    assert process.stderr is not None
    assert "pip is half done\n" in iter(process.stderr.readline, "")
    return process
